"""English words that are times only beside others: may, June, sat, sun, fall; and names: Friday Creek, Chief Sunday."""

import re
from collections.abc import Sequence

from localmem.times.english_tense import verbs_of
from localmem.times.english_words import OTHER, Word, words_beside

_DAY_NAMES = ("sat", "sun", "mon", "wed")
_VERBS = ("may", "march")
_SHORT = ("mar", "jan", "jun", "dec", "sep")
_PEOPLE = ("april", "june", "august", "jan")
_NAMING = frozenset({"WEEKDAY", "MONTH"})
_DOMAIN = re.compile(r"\.(?:com|io|org|net|co|app|ai|dev|uk|fm|tv)\b|@\w|_\w")
_OWNERS = frozenset({"my", "our", "his", "her", "their", "your", "me"})


def settle_names(words: Sequence[Word], text: str) -> list[Word]:
    """The words, where one that only looks like a time has no kind."""
    named = {word.text for index, word in enumerate(words) if word.group in _NAMING and _is_named(words, index, text)}
    return [
        word._replace(kind=OTHER, group="")
        if word.group and ((word.text in named and not _is_led(words, index)) or _is_something_else(words, index, text))
        else word
        for index, word in enumerate(words)
    ]


def _is_led(words: Sequence[Word], index: int) -> bool:
    """Whether the word before words[index] makes a time of it, though somebody of the name is spoken of."""
    return _leads(words, index, "months") or _has_day(words, index) or words[index - 1].text in ("on", "this")


def _is_named(words: Sequence[Word], index: int, text: str) -> bool:
    """Whether the words about words[index] say that somebody, or something, has this name."""
    return _is_called(words, index) or _is_presented(words, index, text) or _is_apposed(words, index)


def _text_of(words: Sequence[Word], index: int) -> str:
    return words[index].text if 0 <= index < len(words) else ""


def _is_called(words: Sequence[Word], index: int) -> bool:
    """A cat called Tuesday, his name is Sunday, we call him Friday."""
    third, second, first = (_text_of(words, index - back) for back in (3, 2, 1))
    if first in ("nicknamed", "christened", "dubbed", "named", "name's"):
        return True
    if first == "called":
        return third in ("a", "an", "another", "this", "that", "one") or second in verbs_of("be") or second == "bloke"
    if first == "is" and second == "name":
        return True
    return first in ("him", "her", "it", "them") and second == "call" and third in ("we", "they", "everyone", "people")


def _is_before_name(words: Sequence[Word], index: int, text: str) -> bool:
    """Whether a capital word that is no time follows: "I met Friday Okon"."""
    after = words[index + 1] if index + 1 < len(words) else None
    capital = after is not None and after.start == words[index].end + 1 and text[after.start].isupper()
    return bool(after and capital and not after.group and after.text != "i")


def _is_presented(words: Sequence[Word], index: int, text: str) -> bool:
    """My cousin Sunday is, Chief Friday, Friday said, June from billing called."""
    second, first, after = (_text_of(words, index + step) for step in (-2, -1, 1))
    if first in words_beside("kin") and second in _OWNERS:
        if words[index].text in _PEOPLE and not _has_day(words, index):
            return True
        return after in words_beside("doings")
    if first in words_beside("met") and words[index].group == "WEEKDAY" and _is_before_name(words, index, text):
        return True
    if first in ("mr", "mrs", "ms", "miss", "dr"):
        return True
    if first in words_beside("honours") and second not in ("the", "a", *_OWNERS):
        return True
    opens = index == 0 or words[index - 1].kind in ".," or first in ("and", "but", "so", "when", "because", "then")
    if not opens:
        return False
    if words[index].text in (*_PEOPLE, "may") and after == "from" and index + 2 < len(words):
        return not words[index + 2].group and words[index + 2].text not in ("what", "the", "now", "then", "a", "about")
    return words[index].group == "WEEKDAY" and after in ("said", "says", "told", "tells", "asked", "texted", "reckons")


def _is_apposed(words: Sequence[Word], index: int) -> bool:
    """Friday is my hamster; August, my heeler, got hurt."""
    link, owner, noun, end = (_text_of(words, index + step) for step in (1, 2, 3, 4))
    if owner not in (*_OWNERS, "the") or _leads(words, index, "months") or _text_of(words, index - 1) == "on":
        return False
    is_pet = noun in words_beside("pets")
    ends = index + 4 >= len(words) or words[index + 4].kind in ".,"
    if link.strip() == ",":
        return is_pet or (ends and (words[index].group == "MONTH" or noun in words_beside("kin")) and bool(end))
    return link in ("is", "was") and (is_pet or (noun in words_beside("kin") and ends))


def _is_place(words: Sequence[Word], index: int, text: str) -> bool:
    """Friday Creek, Easter Road, Cafe Monday, Monday.com."""
    word = words[index]
    if _DOMAIN.match(text, word.end):
        return True
    if not text[word.start].isupper():
        return False
    after, before = (words[place] if 0 <= place < len(words) else None for place in (index + 1, index - 1))
    if after is not None and after.start == word.end + 1 and text[after.start].isupper():
        return after.text in words_beside("places")
    return before is not None and text[before.start].isupper() and before.text in words_beside("places_before")


def _is_something_else(words: Sequence[Word], index: int, text: str) -> bool:
    name = words[index].text
    if words[index].group in ("WEEKDAY", "MONTH", "HOLIDAY", "SEASON", "WEEKDAYS") and _is_place(words, index, text):
        return True
    if name == "good friday":
        return index > 0 and words[index - 1].text in ("a", "another")
    if name == "friday" and index and words[index - 1].text in ("man", "girl"):
        return True
    if name in _DAY_NAMES:
        return not (_is_choice(words, index) or _is_weekday(words, index, text))
    if name in _VERBS:
        return not _is_month(words, index, text)
    if name in _SHORT and name not in _PEOPLE:
        return not (_leads(words, index, "months") or _has_day(words, index) or _is_second_month(words, index))
    return name in _PEOPLE and _is_person(words, index)


def _leads(words: Sequence[Word], index: int, names: str) -> bool:
    """Whether the word before words[index] is of a list in english_context.yaml."""
    return index > 0 and words[index - 1].text in words_beside(names)


def _has_day(words: Sequence[Word], index: int) -> bool:
    """Whether a day of the month or a year stands beside words[index]."""
    following = words[index + 1 : index + 3]
    if following and following[0].text in (",", "the"):
        following = following[1:]
    before = index - 2 if index > 1 and words[index - 1].kind == "-" else index - 1
    beside = [*words[max(0, before) : index], *following[:1]]
    return any(word.group in ("SMALL", "ORDINAL", "YEAR") for word in beside)


def _is_second_month(words: Sequence[Word], index: int) -> bool:
    """Whether words[index] is one of two months: "Nov/Dec", "Sept to Dec"."""
    pairs = [words[index - 2 : index][::-1] if index > 1 else [], words[index + 1 : index + 3]]
    return any(
        len(pair) == 2 and pair[1].group == "MONTH" and pair[0].text.strip() in ("-", "/", "to", "and")
        for pair in pairs
    )


def _is_weekday(words: Sequence[Word], index: int, text: str) -> bool:
    after = words[index + 1] if index + 1 < len(words) else None
    if after is not None and (
        after.group in ("ORDINAL", "MONTH", "PART", "WEEKDAY") or after.name == "night" or after.group == "PARTS"
    ):
        return True
    if after is not None and after.text == "the" and index + 2 < len(words):
        return words[index + 2].group == "ORDINAL"
    if after is not None and after.group == "SMALL":
        return any(word.group == "MONTH" for word in words[index + 2 : index + 4])
    if after is not None and after.text in ("to", "through") and index + 2 < len(words):
        return words[index + 2].group == "WEEKDAY"
    if after is not None and after.text == "nav":
        return False
    if index and words[index - 1].text == "the":
        return (text[words[index].start].isupper() and words[index].text != "sun") or words[index].text in (
            "sat",
            "wed",
        )
    if _leads(words, index, "days") or (words[index].text == "mon" and _is_mon(words, index)):
        return True
    spelling = text[words[index].start : words[index].end]
    if not spelling[0].isupper() or spelling.isupper():
        return False
    if after is not None and (after.kind in "-/" or after.text[0].isdigit()):
        return True
    return index > 0 and (after is None or after.kind in ".," or after.group in ("LAST", "NEXT", "THIS"))


def _is_mon(words: Sequence[Word], index: int) -> bool:
    """Whether "mon" is the day in "it starts mon and", not a man's address: "come on, mon"."""
    before, after = words[index - 1] if index else None, words[index + 1] if index + 1 < len(words) else None
    ends = after is None or after.kind in ".," or after.text in words_beside("days_after")
    calls = ("come", "yes", "yeah", "ya", "hey", "no", "up", "there", "man", "the", "a", "my", "yo")
    return ends and before is not None and before.text.isalpha() and before.text not in calls


def _is_choice(words: Sequence[Word], index: int) -> bool:
    """Whether words[index] is one of two weekdays, or three: "Wed or Thurs", "fri sat sun"."""
    pairs = [words[index - 2 : index][::-1] if index > 1 else [], words[index + 1 : index + 3]]
    return any(
        len(pair) == 2
        and pair[1].group in ("WEEKDAY", "NEAR")
        and (
            pair[0].text.strip() in ("or", "-", "/", "to", "through")
            or pair[0].group == "WEEKDAY"
            or _is_and(words, index, pair)
        )
        for pair in pairs
    )


def _is_and(words: Sequence[Word], index: int, pair: Sequence[Word]) -> bool:
    """Whether "and" joins words[index] to a day: "tomorrow and wed", not "in the sun and wed"."""
    if pair[0].text != "and" or pair[1].text in _DAY_NAMES:
        return False
    end = index + 1
    return pair[1].start > words[index].start or end == len(words) or words[end].kind in ".,"


def _is_month(words: Sequence[Word], index: int, text: str) -> bool:
    name, before = words[index].text, words[index - 1].text if index else ""
    after = words[index + 1] if index + 1 < len(words) else None
    if _leads(words, index, "months") or (index and words[index - 1].group == "ORDINAL"):
        return True
    if before == "-" and index > 1 and words[index - 2].group == "POINT":  # "mid-May"
        return True
    if index and words[index - 1].group == "SMALL" and (after is None or after.text not in ("be", "have", "not")):
        return True
    if after is not None and after.text in words_beside("verbs"):
        return False
    if before == "this":
        return name == "march" or after is None or after.kind in ".," or _has_day(words, index)
    if before == "for" and name == "march":
        return True
    if before in ("to", "for"):
        return _is_second_month(words, index) or _is_put_off(words, index) or _has_day(words, index)
    if before in ("a", "an", "the", "my", "our"):
        return False
    starts = index == 0 or words[index - 1].kind == "."
    if name == "march" and starts and after is not None and after.text in ("is", "was", "will", "would"):
        return True
    return _has_day(words, index) or (name == "march" and not starts and text[words[index].start] == "M")


def _is_put_off(words: Sequence[Word], index: int) -> bool:
    plans = verbs_of("plans")
    return any(word.text in plans or word.text == "back" for word in words[max(0, index - 5) : index])


def _is_person(words: Sequence[Word], index: int) -> bool:
    after = words[index + 1].text if index + 1 < len(words) else ""
    if after and words[index + 1].start > words[index].end + 1:  # "June's cat"
        return after in words_beside("pets") or after in words_beside("kin")
    if index > 1 and words[index - 1].text == "and" and words[index - 2].text in _PEOPLE:
        return _is_person(words, index - 2)
    if index and words[index - 1].text in ("tell", "told", "ask", "asked", "thank", "invite", "invited", "remind"):
        return True
    if _has_day(words, index) or _leads(words, index, "months") or _is_second_month(words, index):
        return False
    return after in words_beside("doings") or _leads(words, index, "titles")
