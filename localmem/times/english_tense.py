"""Whether the verbs about a time in an English text are past or future. Its lists are in english_context.yaml."""

from collections.abc import Iterator, Sequence, Set
from functools import cache
from itertools import takewhile
from typing import Literal

from localmem.times.english_words import Word, load_grammar, words_beside

Tense = Literal["past", "future", "present", "unclear", "none"]

_CROSSING = 4.0  # what a comma or a conjunction between a verb and a time counts, in words
_BEHIND = 1.5  # and what it counts that the verb comes after the time
_REACH = 60  # words to the farthest verb that is looked for: a text of dates alone has none, however long it is
_SUBJECTS = frozenset({"i", "we", "they"})
_AHEAD = frozenset({"going", "supposed", "meant", "planning", "hoping", "due"})
_THIRD = frozenset({"he", "she", "it", "who", "that", "they", "we", "i"})
_ASKS = frozenset({"asked", "told", "reminded", "invited", "warned", "advised"})
_SAYS = frozenset({"said", "told"})
_INVITES = {  # words behind what is asked for or ordered, which tell that it lies ahead
    "invited": {"to", "for", "round", "over"}, "asked": {"round", "over"}, "ordered": {"delivery", "collection"},
}  # fmt: skip
_PERSONS = frozenset({"me", "us", "him", "them", "you", "it", "everyone", "each"})


@cache
def verbs_of(name: str) -> frozenset[str]:
    """A list of verbs of english_context.yaml."""
    return frozenset(load_grammar()["tense"][name].split())


def find_tense(words: Sequence[Word], start: int, end: int) -> tuple[Tense, bool]:
    """The tense of the verb nearest to words[start:end] in their sentence, and whether it is of their own clause.

    "none" where there is no verb.
    """
    if start > 1 and words[start - 1].text in ("of", "from", "dated") and words[start - 2].text in verbs_of("papers"):
        return "past", True
    if tense := _tense_of_place(words, start, end):
        return tense, True
    tense, own = _find_nearest(words, start, end, crossing=False), True
    if tense == "none":
        tense, own = _find_nearest(words, start, end, crossing=True), False
        tense = "none" if tense == "unclear" else tense
    if end < len(words) and words[end].text == "now" and tense != "present":
        return "future", own
    return ("future", own) if tense in ("past", "unclear") and _is_planned(words, start) else (tense, own)


def _tense_of_place(words: Sequence[Word], start: int, end: int) -> Tense | None:
    """What settles the tense whatever is near: "since the op in March", "Friday is fine", "tell me about Friday"."""
    before, after = _text_at(words, start - 1), _text_at(words, end)
    lead = start - 1 if before in verbs_of("leads") else start
    if (
        lead > 1 and words[lead - 1].text == "now" and words[lead - 2].kind in ".,-"
    ):  # "it was refused, now on the 25th"
        return "future"
    if before in ("was", "were") and _follows_now(words, start):
        return "unclear"
    if before in ("about", "of") and any(word.text in ("tell", "telling") for word in words[max(0, start - 5) : start]):
        return "past"
    if after in verbs_of("of_the_day") and before not in verbs_of("leads") and before not in ("the", "of"):
        return _tense_of(words, end)
    for index in range(start - 1, max(-1, start - 6), -1):
        if words[index].text == "since":
            return "past"
        if words[index].kind in ".,-/" or _tense_of(words, index) is not None:
            break
    return None


def _follows_now(words: Sequence[Word], start: int) -> bool:
    """Whether something else holds now: "the wedding is now 14 June, was 7 June"."""
    for word in reversed(words[max(0, start - 8) : start]):
        if word.kind == ".":
            return False
        if word.text == "now":
            return True
    return False


def _find_nearest(words: Sequence[Word], start: int, end: int, *, crossing: bool) -> Tense:
    opens = crossing or all(word.kind == "." for word in _before_lead(words, start))
    before = _walk(words, range(start - 1, max(-1, start - 1 - _REACH), -1), 0.0, crossing=crossing)
    after = _walk(words, range(end, min(len(words), end + _REACH)), _BEHIND, crossing=opens)
    best: tuple[float, Tense] = (1e9, "none")
    for cost, index in (*before, *after):
        if cost < best[0] and (tense := _tense_of(words, index)) is not None:
            best = (cost, tense)
    return best[1]


def _before_lead(words: Sequence[Word], start: int) -> Sequence[Word]:
    """The word before words[start] and its preposition, if there is one."""
    if start and words[start - 1].text in verbs_of("leads"):
        start -= 1
    return words[max(0, start - 1) : start]


def find_earlier_tense(words: Sequence[Word], start: int) -> Tense:
    """The tense of the last verb before words[start], in whatever sentence that is near."""
    for index in range(start - 1, max(-1, start - 1 - _REACH), -1):
        tense = _tense_of(words, index)
        if tense is not None:
            return tense
    return "none"


def _walk(words: Sequence[Word], indexes: range, cost: float, *, crossing: bool) -> Iterator[tuple[float, int]]:
    """The words up to the end of the sentence, or of the clause where there is no crossing, each with its distance."""
    for index in indexes:
        word = words[index]
        ends = word.kind in ",-/" or word.text in verbs_of("joins" if indexes.step < 0 else "joins_behind")
        if word.kind == "." or (ends and not crossing):
            return
        cost += _CROSSING if ends else 1.0
        yield cost, index


def _tense_of(words: Sequence[Word], index: int) -> Tense | None:
    """What the word says of time by itself and by the words about it; None where it is no verb that tells."""
    text, before, after = words[index].text, _text_at(words, index - 1), _text_at(words, index + 1)
    if tense := _tense_of_helper(words, index, after) or _tense_of_plan(words, index, after):
        return tense
    if before == "as" or _text_at(words, index - 2) == "as":  # "not Thursday as I said"
        return None
    if text == "could" and _is_offer(words, index):
        return "future"
    if text in verbs_of("unsure"):
        return _tense_of_past(words, index, "unclear")
    if text in ("called", "named") and index > 1 and _gives_name(words, index):
        return None
    if _is_past(text, before, after, _text_at(words, index - 2)) or (
        text in verbs_of("bare_past") and _is_bare_past(words, index)
    ):
        return _tense_of_past(words, index)
    if text in verbs_of("present") and before.endswith("'d"):
        return "unclear"
    if not words[index].group and _follows(words, index, ("did", "didn't", "didnt")):
        return "past" if text.isalpha() else None
    if tense := _tense_of_subject(words, index, before):
        return tense
    return "present" if _is_present(words, index) else None


def _gives_name(words: Sequence[Word], index: int) -> bool:
    """Whether "called" says who it is: "on Monday with somebody called Trev", "a couple called Singh"."""
    if index > 2 and words[index - 1].group:
        return True
    follower = words[index + 1] if index + 1 < len(words) else None
    is_name = follower is not None and follower.kind == "_" and follower.text not in verbs_of("after_called")
    return is_name and words[index - 2].group == "ARTICLE"


def _tense_of_infinitive(words: Sequence[Word], index: int) -> Tense | None:
    """What "had to go" and "told Tom to go" say of when, at the "go"; a time between them is that of the telling."""
    lead = _text_at(words, index - 2)
    if lead == "had":
        return None if _follows(words, index - 2, {"if", "wish"} | _SAYS) else "past"
    before = reversed(words[max(0, index - 6) : index - 1])
    clause = takewhile(lambda word: word.group in ("", "ARTICLE") and word.kind not in ".,/", before)
    is_request = lead == "said" or any(word.text in _ASKS for word in clause)
    return "future" if is_request and words[index].text not in _PERSONS | verbs_of("determiners") else None


def _is_present(words: Sequence[Word], index: int) -> bool:
    """Whether it is a verb in the present; not the "its" that says whose something is."""
    text = words[index].text
    if text == "its" and not _opens_clause(words, index) and _text_at(words, index - 1) not in verbs_of("reports"):
        return False
    return text in verbs_of("present") or (text.endswith(("'re", "'m", "'s", "'ve")) and not _is_owner(words, index))


def _is_owner(words: Sequence[Word], index: int) -> bool:
    """Whether "'s" says whose something is, as the clause has its verb: "I lost my dad's watch on Friday"."""
    if not words[index].text.endswith("'s") or _text_at(words, index - 1) not in verbs_of("determiners"):
        return False
    for word in reversed(words[max(0, index - 6) : index]):
        if word.kind in ".,/" or word.text in verbs_of("joins"):
            return False
        if word.text in verbs_of("past") or (word.text.endswith("ed") and word.text not in verbs_of("not_ed")):
            return True
    return False


def _is_offer(words: Sequence[Word], index: int) -> bool:
    """Whether "could" asks or offers: "could you", "I could be there", "could I come"."""
    after = _text_at(words, index + 1)
    offers = verbs_of("offers")
    return after in ("you", "we") or after in offers or (after == "i" and _text_at(words, index + 2) in offers)


def _tense_of_subject(words: Sequence[Word], index: int, before: str) -> Tense | None:
    """What a word behind "we" or "she" is: "we start", "she starts"."""
    text = words[index].text
    if words[index].group not in ("", "POINT"):
        return None
    if before in _SUBJECTS and text not in verbs_of("adverbs") and text.isalpha():
        return "unclear" if text in verbs_of("same_in_past") else "present"
    return "present" if before in ("he", "she", "it") and text.endswith("s") else None


def _text_at(words: Sequence[Word], index: int) -> str:
    return words[index].text if 0 <= index < len(words) else ""


def _tense_of_helper(words: Sequence[Word], index: int, after: str) -> Tense | None:
    """What "will", "going to", "were supposed to" and their like say."""
    text = words[index].text
    if text == "would" and after == "you":  # "would you believe"
        return None
    if text.endswith("'d"):
        return _tense_of_contraction(after)
    if text in verbs_of("future") or text.endswith("'ll"):
        return "past" if after in ("have", "of", "'ve") and text in ("should", "would", "could", "might") else "future"
    if text == "due" and _text_at(words, index - 1) == "fell":
        return "past"
    if text in _AHEAD:
        return "unclear" if _follows(words, index, ("was", "were")) else "future"
    if text in ("was", "were") and (after in _AHEAD or after == "to"):
        return "unclear"
    if text in ("was", "were") and after in verbs_of("departures") and _follows(words, index, _SAYS):
        return "future"
    if text == "were" and _opens_clause(words, index):  # "we're", by those who write no apostrophes
        return "present"
    if text in verbs_of("orders") and (_opens_clause(words, index) or _text_at(words, index - 1) in ("said", "says")):
        return "future"
    return "past" if text in ("remember", "recall") and after != "to" else None


def _tense_of_plan(words: Sequence[Word], index: int, after: str) -> Tense | None:
    """What "good luck", "promised to", "have booked" and "leaving" say."""
    text = words[index].text
    before = _text_at(words, index - 1)
    if before == "to" and words[index].group in ("", "POINT") and (tense := _tense_of_infinitive(words, index)):
        return tense
    if text == "luck" and before == "good":
        return "future"
    if text == "got" and _is_event(words, index, after):
        return "unclear"  # "got a scan on Friday", of what is to come
    if text.endswith("ing") and before == "since":
        return "past"
    if text == "back" and _opens_clause(words, index) and after in ("to", "at"):  # "back to school on the 8th"
        return "future"
    if text in verbs_of("settled") and after == "to" and not _follows(words, index, ("had", "was", "were", "not")):
        return "future"
    if text in verbs_of("signs_up") and _is_for(words, index):
        return "future"
    if text in _INVITES and any(word.text in _INVITES[text] for word in words[index + 1 : index + 6]):
        return "future"
    if text in verbs_of("intents") and (after == "to" or _follows(words, index, verbs_of("have"))):
        return "unclear" if after == "to" or _follows(words, index, ("had", "was", "were")) else "future"
    return _tense_of_departure(words, index) if text in verbs_of("departures") else None


def _is_for(words: Sequence[Word], index: int) -> bool:
    """Whether "for" something follows close behind, or "on a" something: "signed up for", "a deposit on a trip"."""
    following = [word.text for word in words[index + 1 : index + 3]]
    is_day = any(word.group != "ARTICLE" and word.group for word in words[index + 2 : index + 4])  # "on the 1st"
    return "for" in following or (following in (["on", "a"], ["on", "the"], ["on", "my"], ["on", "our"]) and not is_day)


def _is_event(words: Sequence[Word], index: int, after: str) -> bool:
    """Whether what somebody "got" may lie ahead: "got a lift" at the start of a clause, "also got a date"."""
    if _opens_clause(words, index):
        return after in ("a", "an", "my", "me", "another")
    opens = words[index - 1].text in ("also", "i", "we") and _opens_clause(words, index - 1)
    events = verbs_of("events") | words_beside("events")
    return (
        opens and after in verbs_of("determiners") and any(word.text in events for word in words[index + 2 : index + 4])
    )


def _tense_of_contraction(after: str) -> Tense | None:
    """What "I'd" is by the word behind it: "I'd the", "I'd gone", or "I'd go"."""
    if after in ("a", "an", "the", "no", "my", "been"):
        return "past"
    is_past = not after.isalpha() or after.endswith("ed") or after in verbs_of("past") | verbs_of("adverbs")
    return None if is_past or after in verbs_of("same_in_past") else "future"


def _tense_of_departure(words: Sequence[Word], index: int) -> Tense | None:
    """What "leaving on the 11th" is where no "was" or "after" stands before it."""
    return "present" if index and not _follows(words, index, verbs_of("not_alone")) else None


def _tense_of_past(words: Sequence[Word], index: int, alone: Tense = "past") -> Tense:
    """A past form: "is booked" is present, "has moved" says nothing of when; `alone` is what it is by itself."""
    text = words[index].text
    if _is_wanted(words, index):
        return "future"
    if text in ("was", "were", "had", "did", "didn't", "didnt", "went", "came"):
        return "unclear" if text != "had" and _follows(words, index, ("thought", "assumed")) else "past"
    for place in range(index - 1, max(-1, index - 4), -1):
        verb = words[place].text
        if words[place].kind in ".,/":
            return alone
        if _text_at(words, place - 1) == "to" and (tense := _tense_of_infinitive(words, place)):  # "had to be towed"
            return tense
        if verb in ("was", "were", "had"):
            return "past"
        if verb in verbs_of("have") or verb.endswith("'ve"):
            if text == "got":
                return "present"
            return "past" if place and words[place - 1].text in ("should", "would", "could", "might") else "unclear"
        contracted = verb.endswith(("'re", "'m")) or (verb.endswith("'s") and place == index - 1)
        if text != "been" and (verb in verbs_of("be") or contracted):
            return "present"
    return alone


def _is_wanted(words: Sequence[Word], index: int) -> bool:
    """Whether a past form is what somebody wants done: "I need it baled by Friday"."""
    text = words[index].text
    if not (text.endswith("ed") or text in verbs_of("past")) or text in verbs_of("finite"):
        return False
    for place in range(index - 2, max(-1, index - 6), -1):
        if words[place].kind in ".,/" or words[place].text in verbs_of("joins"):
            return False
        if words[place].text in verbs_of("wants"):
            return place == 0 or words[place - 1].text not in ("did", "didn't", "had")
    return False


def _opens_clause(words: Sequence[Word], index: int) -> bool:
    return index == 0 or words[index - 1].kind in ".,-/" or words[index - 1].text in verbs_of("joins")


def _is_past(text: str, before: str, after: str, owner: str) -> bool:
    if text in verbs_of("past"):
        return not (text == "had" and after == "better")
    if text == "come":
        return before in verbs_of("have")
    if text in ("left", "spent") and (before == "and" or owner in verbs_of("determiners")):  # "my flatmate left"
        return True
    if text in verbs_of("opens_past") and not before.isalpha() and "'" not in before:
        return True
    if text in verbs_of("same_in_past"):
        return before in _THIRD if text == "left" else before.isalpha() and before not in verbs_of("not_third")
    return len(text) > 3 and text.endswith("ed") and text not in verbs_of("not_ed")


def _is_bare_past(words: Sequence[Word], index: int) -> bool:
    """Whether a third person "come" or "give", as many say for "came": "the vet come out Thursday"."""
    before = words[index - 1] if index else None
    if before is None or not before.text.isalpha() or before.group or before.text in verbs_of("not_third"):
        return False
    if before.text in ("he", "she", "it"):
        return not _follows(words, index, verbs_of("helpers"))
    named = before.kind == "_" and not before.text.endswith(("s", "ing", "ly", "ed", "n't", "'ll"))
    noun = index == 1 or words[index - 2].kind in ".," or words[index - 2].text in verbs_of("determiners")
    return named and noun and before.text not in verbs_of("helpers") and not _follows(words, index, verbs_of("helpers"))


def _follows(words: Sequence[Word], index: int, verbs: Sequence[str] | Set[str]) -> bool:
    """Whether one of `verbs` stands up to three words before words[index], in its clause."""
    for word in reversed(words[max(0, index - 3) : index]):
        if word.kind in ".,/":
            return False
        if word.text in verbs:
            return True
    return False


def _names_day(words: Sequence[Word], start: int) -> bool:
    """Whether the time is what was said or given: "we said the middle of January", "they gave me the 4th"."""
    while start and words[start - 1].text in verbs_of("hedges"):
        start -= 1
    before = [word.text for word in words[max(0, start - 2) : start]]
    pronouns = ("me", "us", "him", "her")
    is_offered = len(before) == 2 and before[0] in ("gave", "given", "offered") and before[1] in pronouns
    if start < len(words) and words[start].text in verbs_of("leads") and before[:1] in (["was"], ["were"]):
        return False  # "it was accepted on the 5th"
    return is_offered or (bool(before) and before[-1] in verbs_of("names"))


def is_moved(words: Sequence[Word], start: int) -> bool:
    """Whether a verb of moving stands close before words[start]: "moved from Tuesday to Thursday", "shift her to"."""
    return any(word.text in verbs_of("moved") | verbs_of("moves") for word in words[max(0, start - 5) : start])


def _is_planned(words: Sequence[Word], start: int) -> bool:
    """Whether a verb of planning leads to what begins at words[start], as in "moved to the 23rd"."""
    lead = [word.text for word in words[max(0, start - 2) : start + 1] if word.text not in ("the", "a", "about")]
    if lead and _names_day(words, start):
        return True
    if not set(lead[-2:]) & {"to", "for", "until", "till", "til", "by", "from"}:
        return False
    plans = verbs_of("plans") | (verbs_of("plans_for") if "for" in lead[-2:] else frozenset())
    for index in range(start - 1, max(-1, start - 10), -1):
        if words[index].kind == ".":
            return False
        if words[index].text in plans:
            return True
        if _tense_of(words, index) == "past":
            return False
    return False
