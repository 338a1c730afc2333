"""Forgetting at a person's request: finds in the log what a message asks to forget, and proposes to hide it.

Works on turns, not on units, so it holds for every memory system, for sessions that are still open, and after a
rebuild: what came from a hidden turn is not recalled, and no system is shown the turn again. A match needs the words of
the request, for which rare words count more than common ones; a search of the memory only orders the matches. Does not
commit anything and asks no LLM.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from itertools import dropwhile, takewhile
from typing import NamedTuple

from localmem.chat.forgetting_replies import language_of_request, replies_to
from localmem.journal import Journal
from localmem.memory import Memory
from localmem.text.inflections import is_inflection
from localmem.text.parse import words
from localmem.times.annotate import write_dates
from localmem.turns.forget_requests import ForgetRequest, read_forget_request, request_about
from localmem.turns.forget_topics import introduces, read_lower_case_name, terms
from localmem.turns.restore_requests import drop_questions, is_restore_request, is_undo_request
from localmem.types import Change, DateRange, Hide, Recall, Restore, Session, SetNote, Turn

_RECENT = 3  # user's turns that "that" may refer to
_MOST = 4  # turns about one thing that are hidden without asking which
_ASKED = 3  # turns that are named where no words match
_NEAR = 0.85  # of the best score
_ENOUGH = 0.5  # of the weight of a request's words
_ENOUGH_IF_FIRST = 0.25  # the same, for what the memory's own search puts first
_INFLECTED = 0.8  # of a word's weight where only a form of it occurs: below _NEAR, so that the word itself wins
_RARE = 4  # turns that hold a rare word at most
_QUOTE = 60  # characters
_DIGITS = re.compile(r"\d(?:[\d.,:/ -]*\d)?")
_FIGURE = re.compile(r"\d|\b(?:\w+teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty)\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?。！？।॥۔])\s+|\n+")
_YEAR = re.compile(r"(?:19|20)\d\d")
_TIME = re.compile(r".*:.*|\d{1,4}([./-])\d{1,2}\1\d{1,4}")  # of a clock or calendar: says nothing by itself
_MEASURES = frozenset(
    words(
        "euros dollars pounds cents percent grams kilos litres liters metres meters miles hours minutes weeks months"
        " years monday tuesday wednesday thursday friday saturday sunday january february march april august"
        " september october november december"
    )
)
_KINDS = frozenset(
    words(
        "number name amount code mark score price sum word thing address date figure reading result grade story"
        " much many "
        "colour color age old new whole last year day detail details"
    )
)
_FIGURES = frozenset(
    words(
        "number amount code mark score price sum figure reading grade pin salary rent weight income much rate dose age"
    )
)


@dataclass(frozen=True, slots=True)
class Utterance:
    """Something that may be hidden: a turn, or a unit that came from no turn. `id` is that of the turn or unit."""

    id: str
    text: str
    time: datetime
    by_user: bool = True


class Cures(NamedTuple):
    """The commands that erase all of a memory, and what the request {request} hid, for good, as replies show them."""

    everything: str = "`localmem forget --all --user NAME`"
    hidden: str = "`localmem forget --unit {request}` (page: Memory, Filters, Hidden or replaced)"


class Forgetting:
    """Answers requests to forget for one user's memory; `recall` is pure."""

    def __init__(self, memory: Memory, journal: Journal) -> None:
        self._memory = memory
        self._journal = journal

    def recall(self, dialogue: Session) -> Recall | None:
        """Memory's own reply to the dialogue's last turn and the changes that go with it, if it asks to forget."""
        turn = dialogue.turns[-1]
        if turn.role != "user":
            return None
        hidden = self._memory.bank.hidden
        if turn.id in hidden and hidden[turn.id].by == turn.id:
            return _answer(turn, self._same_reply(turn, dialogue))
        request = self._last_request(dialogue) if is_restore_request(turn.text) else ""
        if restores := self.restore(request, turn.time, dialogue) if request else []:
            return _answer(turn, replies_to(turn.text).restored, restores)
        if is_undo_request(turn.text):
            return _answer(turn, replies_to(turn.text).not_hidden)
        to_forget = read_forget_request(turn.text) or self._request_about_name(turn, dialogue)
        return self.forget(to_forget, turn, dialogue) if to_forget else None

    def _request_about_name(self, turn: Turn, dialogue: Session) -> ForgetRequest | None:
        """The request of "forget about callum", where something that the user said introduces the name."""
        name = read_lower_case_name(turn.text)
        texts = (item.text for item in self._utterances(turn, dialogue) if item.by_user) if name else ()
        return request_about(name) if any(introduces(text, name) for text in texts) else None

    def restore(self, request: str, time: datetime, dialogue: Session | None = None) -> list[Restore]:
        """The changes that take back what a request hid. Its reply stays hidden, and a request that says no more."""
        return [Restore(item, time) for item in self._hidden_by(request, self._turns(dialogue))]

    def _hidden_by(self, request: str, turns: Mapping[str, Turn]) -> list[str]:
        replies = {reply.id for reply in _replies_to(request, turns.values())}
        asked = read_forget_request(turns[request].text) if request in turns else None
        apart = replies if asked and asked.target == "message" else {request, *replies}
        hides = self._memory.bank.hidden.values()
        return [hide.item for hide in hides if hide.by == request and hide.item not in apart]

    def _last_request(self, dialogue: Session) -> str:
        """What hid something last, if nothing was told since, else what hid the user's last words; "" for neither."""
        turn, earlier = dialogue.turns[-1], drop_questions(dialogue.turns)
        hidden = self._memory.bank.hidden
        before = earlier or [other for other in self._turns(dialogue).values() if other.time <= turn.time]
        times = [other.time for other in before if other is not turn]
        hides = [hide for hide in hidden.values() if max(times, default=hide.time) <= hide.time <= turn.time]
        requests = [hide.by for hide in hides if hide.by == hide.item]
        previous = next((other.id for other in reversed(earlier) if other.role == "user"), "")
        return requests[-1] if requests else hidden[previous].by if previous in hidden else ""

    def forget(self, request: ForgetRequest, turn: Turn, dialogue: Session, cures: Cures | None = None) -> Recall:
        """What is hidden for a request of a turn, with the reply that says so and how to erase it."""
        cures, replies = cures or Cures(), replies_to(turn.text)
        if request.target == "everything":
            return _answer(turn, replies.everything.format(commands=cures.everything))
        if request.target == "unclear":
            return _answer(turn, replies.unclear)
        utterances = self._utterances(turn, dialogue)
        in_turn = request.target == "message"
        chosen = self._recent(request, utterances, dialogue) if request.target == "recent" and not in_turn else []
        if not chosen and not in_turn:  # words beside the request may say what it means
            chosen = self._matches(request.topic, utterances) or self._matches(request.around, utterances)
        if not chosen and not in_turn:
            nearest = self._nearest(request.topic, utterances)
            nothing = replies.nothing if request.topic else replies.unclear
            return _answer(turn, _list_quotes(replies.nearest, nearest, turn) if nearest else nothing)
        if len(chosen) > _MOST:
            return _answer(turn, _list_quotes(replies.many, chosen[: 2 * _MOST], turn))
        own = [Utterance(turn.id, request.own, turn.time)] if in_turn else []
        signs = _signs([*chosen, *own], utterances, request.topic)
        copies = _repetitions([*chosen, *own], utterances, signs)
        hides = [Hide(item.id, turn.id, turn.time) for item in (*chosen, *copies)]
        notes = self._rewrite_notes(signs, turn.time)
        reply = [_confirm([*chosen, *own], len(copies), turn)]
        reply += [replies.cut] if notes else []
        reply += [replies.coarse] if self._takes_more({hide.item for hide in hides}) else []
        reply += [replies.how_to_go_on.format(commands=cures.hidden.format(request=turn.id))]
        return _answer(turn, " ".join(reply), [*hides, *notes])

    def _same_reply(self, request: Turn, dialogue: Session) -> str:
        """The reply to a request that was carried out already, which is asked for again and hides nothing more."""
        bank, turns = self._memory.bank, self._turns(dialogue)
        replies = _replies_to(request.id, turns.values())
        if whole := next((reply.text for reply in replies if not reply.is_cut), ""):
            return whole
        sources = [turns.get(item) or bank.units.get(item) for item in self._hidden_by(request.id, turns)]
        chosen = [Utterance(source.id, source.text, source.time) for source in sources if source]
        texts = replies_to(request.text)
        how_to_go_on = texts.how_to_go_on.format(commands=Cures().hidden.format(request=request.id))
        return f"{_confirm(chosen, 0, request)} {how_to_go_on}" if chosen else texts.unclear

    def _takes_more(self, hidden: Set[str]) -> bool:
        """Whether units go that came from more than an exchange."""
        live = self._memory.bank.live()
        return any(len(unit.sources) > 2 and not hidden.isdisjoint(unit.sources) for unit in live)

    # -- what there is -------------------------------------------------------------------------------------------------

    def _turns(self, dialogue: Session | None) -> dict[str, Turn]:
        """The turns of the log and of the dialogue, by id."""
        sessions = (*self._journal.sessions(), *([dialogue] if dialogue else []))
        return {turn.id: turn for session in sessions for turn in session.turns}

    def _utterances(self, turn: Turn, dialogue: Session) -> list[Utterance]:
        """What was said before a turn and is not hidden: the log, the dialogue, and units that came from no turn."""
        bank, sessions = self._memory.bank, (*self._journal.sessions(), dialogue)
        turns = {other.id: other for session in sessions for other in session.turns}
        # In an added session all turns may have one time, so there the order counts.
        before = {other.id for each in sessions for other in takewhile(lambda other: other.id != turn.id, each.turns)}
        utterances = {
            other.id: Utterance(other.id, other.text, other.time, other.role == "user")
            for other in turns.values()
            if other.id in before and other.id not in bank.hidden and other.time <= turn.time
        }
        for unit in bank.live():
            if not unit.sources or (len(unit.sources) == 1 and unit.sources[0] not in turns):
                name = unit.sources[0] if unit.sources else unit.id
                utterances.setdefault(name, Utterance(name, unit.text, unit.time))
        return list(utterances.values())

    def _recent(self, request: ForgetRequest, utterances: Sequence[Utterance], dialogue: Session) -> list[Utterance]:
        """What the user just said: the last turns that hold a word of the request, else the last one for a "that"."""
        by_id = {item.id: item for item in utterances if not _is_request(item.text)}
        users = [by_id[other.id] for other in dialogue.turns[:-1] if other.role == "user" and other.id in by_id]
        weights = _weights(request.topic, utterances)
        scored = [(_coverage(weights, item), item) for item in users[-_RECENT:]]
        best = max((score for score, _ in scored), default=0.0)
        exact = [item for item in utterances if item.by_user and not weights.keys().isdisjoint(_terms(item.text))]
        is_beaten = bool(exact) and not any(item in exact for _, item in scored)
        if best >= _ENOUGH_IF_FIRST and not is_beaten:
            return [item for score, item in scored if score >= _NEAR * best]
        elsewhere = max((_coverage(weights, item) for item in utterances if item.by_user), default=0.0)
        if request.is_bare and elsewhere < _ENOUGH:
            return users[-1:]
        return []

    def _matches(self, topic: Sequence[str], utterances: Sequence[Utterance]) -> list[Utterance]:
        """What the user said at any time about the topic, best first."""
        weights = _weights(topic, utterances)
        if not weights:
            return []
        ranks = self._ranks(" ".join(topic))
        wants_figure = not _FIGURES.isdisjoint(topic)
        scores = {}
        for item in utterances:
            coverage, rank = _coverage(weights, item), ranks.get(item.id, 99)
            if not item.by_user or _is_request(item.text) or coverage < (_ENOUGH_IF_FIRST if rank < 3 else _ENOUGH):
                continue
            figure = 0.2 if wants_figure and _FIGURE.search(item.text) else 0.0
            question = 0.3 if item.text.rstrip().endswith("?") else 0.0
            scores[item] = coverage + figure - question + 0.1 / (1 + rank)
        best = max(scores.values(), default=0.0)
        chosen = [item for item, score in scores.items() if score >= _NEAR * best]
        return sorted(chosen, key=lambda item: -scores[item])

    def _nearest(self, topic: Sequence[str], utterances: Sequence[Utterance]) -> list[Utterance]:
        """What the memory's own search puts first of what shares a word: a request may name a thing by other words."""
        ranks, weights = self._ranks(" ".join(topic)) if topic else {}, _weights(topic, utterances)
        users = [item for item in utterances if item.by_user and item.id in ranks and not _is_request(item.text)]
        users = [item for item in users if _coverage(weights, item)]
        return sorted(users, key=lambda item: ranks[item.id])[:_ASKED]

    def _ranks(self, query: str) -> dict[str, int]:
        """The places of turns in the memory's own search for a text."""
        ranks: dict[str, int] = {}
        for place, hit in enumerate(self._memory.search(query, 20)):
            for name in hit.unit.sources or (hit.unit.id,):
                ranks.setdefault(name, place)
        return ranks

    def _rewrite_notes(self, signs: "_Signs", time: datetime) -> list[Change]:
        """The notes without the sentences that hold something new that was hidden."""
        changes: list[Change] = []
        for name, text in self._memory.bank.notes.items():
            parts = _SENTENCE_END.split(text)
            remaining = [part for part in parts if not signs.are_in(part)]
            if len(remaining) < len(parts) and not text.startswith(("{", "[")):
                changes.append(SetNote(name, ("\n" if "\n" in text else " ").join(remaining), time))
        return changes


# -- words -----------------------------------------------------------------------------------------------------------


def _weights(topic: Iterable[str], utterances: Sequence[Utterance]) -> dict[str, float]:
    """How much each word of a request says: rare ones most, those that only name a kind of thing little."""
    topic = list(topic)
    texts = [_terms(item.text) for item in utterances]
    weights = {}
    for word in topic:
        count = sum(_share(text, word) > 0 for text in texts)
        weights[word] = math.log(1 + len(texts) / max(count, 1)) * (0.2 if word in _KINDS and len(topic) > 1 else 1.0)
    return weights


def _coverage(weights: dict[str, float], item: Utterance) -> float:
    """The share of the words' weight that a text holds."""
    text = _terms(item.text)
    return sum(weight * _share(text, word) for word, weight in weights.items()) / (sum(weights.values()) or 1.0)


def _share(text: Collection[str], word: str) -> float:
    """How much of a word's weight a text holds: all of it, less for another form of the word, or nothing."""
    return 1.0 if word in text else _INFLECTED if any(is_inflection(word, other) for other in text) else 0.0


def _terms(text: str) -> set[str]:
    return set(terms(words(text)))


@dataclass(frozen=True, slots=True)
class _Signs:
    """What tells a repetition: long numbers, alone or beside a word, and rare words that nobody had said before."""

    codes: frozenset[str]
    numbers: frozenset[str]
    words: frozenset[str]
    topic: frozenset[str]

    def are_in(self, text: str, least: int = 2) -> bool:
        """Whether a text repeats a code, a number beside a word, or at least so many of the words."""
        numbers, rare = set(map(_bare, _DIGITS.findall(text))), self.words.intersection(words(text))
        if not self.numbers.isdisjoint(numbers):
            texts = _terms(text)
            return least == 1 or bool(rare - _MEASURES) or any(_share(texts, word) for word in self.topic)
        return not self.codes.isdisjoint(numbers) or len(rare) >= least


def _signs(chosen: Sequence[Utterance], utterances: Sequence[Utterance], topic: Iterable[str]) -> _Signs:
    first, ids = min(item.time for item in chosen), {item.id for item in chosen}
    total, before = Counter[str](), Counter[str]()
    for item in utterances:
        total.update(set(words(item.text)))
        if item.time < first and item.id not in ids:
            before.update({*words(item.text), *map(_bare, _DIGITS.findall(item.text))})
    texts = [_about(item.text, topic) for item in chosen]
    new = {word for text in texts for word in words(text) if word.isalpha() and not before[word]}
    matches = {_bare(match): match for text in texts for match in _DIGITS.findall(text)}
    numbers = {number for number in matches if len(number) > 2 and not _YEAR.fullmatch(number)}
    codes = {number for number in numbers if _is_code(matches[number]) and not before[number]}
    rare = frozenset(word for word in new if len(word) > 4 and total[word] <= _RARE)
    return _Signs(frozenset(codes), frozenset(numbers - codes), rare, frozenset(topic))


def _is_code(number: str) -> bool:
    """Whether a number is hardly said twice by chance: of five digits or more, no time, and not round."""
    digits = _bare(number)
    return len(digits) > 4 and len(digits.rstrip("0")) > 3 and not _TIME.fullmatch(number)


def _about(text: str, topic: Iterable[str]) -> str:
    """The sentences of a message that hold a word of the topic; all of it if none does."""
    parts = _SENTENCE_END.split(text)
    matching = [part for part in parts if any(_share(_terms(part), word) for word in topic if word not in _KINDS)]
    return "\n".join(matching) or text


def _repetitions(chosen: Sequence[Utterance], utterances: Sequence[Utterance], signs: _Signs) -> list[Utterance]:
    """What else tells it: the replies to it, if they say any of it, and later turns of either side."""
    ids, replies, is_reply = {item.id for item in chosen}, set[str](), False
    for item in utterances:
        is_reply = item.id in ids or (is_reply and not item.by_user)
        replies.update([item.id] if is_reply else [])
    first = min(item.time for item in chosen)
    later = (item for item in utterances if item.id not in ids and item.time >= first)
    return [item for item in later if signs.are_in(item.text, 1 if item.id in replies else 2)]


def _bare(number: str) -> str:
    return re.sub(r"\D", "", number)


def _replies_to(request: str, turns: Iterable[Turn]) -> list[Turn]:
    following = dropwhile(lambda turn: turn.id != request, turns)
    next(following, None)
    return list(takewhile(lambda turn: turn.role == "assistant", following))


def _is_request(text: str) -> bool:
    return read_forget_request(text) is not None


# -- replies ---------------------------------------------------------------------------------------------------------


def _answer(turn: Turn, reply: str, changes: Iterable[Change] = ()) -> Recall:
    """Memory's own reply. The request is hidden whatever comes of it: it names what is to be forgotten."""
    return Recall(reply=reply, proposed=(Hide(turn.id, turn.id, turn.time), *changes))


def _confirm(chosen: Sequence[Utterance], copies: int, request: Turn) -> str:
    replies = replies_to(request.text)
    quotes = "; ".join(_quote(item, request) for item in chosen)
    return (replies.repeated if copies else replies.hidden).format(quotes=quotes, count=copies)


def _list_quotes(opening: str, items: Iterable[Utterance], request: Turn) -> str:
    return "\n".join([opening, *(f"- {_quote(item, request)}" for item in items)])


def _quote(item: Utterance, request: Turn) -> str:
    """The beginning of what was said, without its numbers: whoever reads along must not learn them from this."""
    text = _DIGITS.sub("#", " ".join(item.text.split()))
    if len(text) > _QUOTE:
        text = f"{text[:_QUOTE].rpartition(' ')[0] or text[:_QUOTE]} ..."
    day = write_dates(DateRange(item.time.date(), item.time.date()), language_of_request(request.text))
    return replies_to(request.text).quote.format(day=day, text=text)
