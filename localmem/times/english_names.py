"""English words that are times only beside others: may, march, June, sat, sun, fall."""

from collections.abc import Sequence

from localmem.times.english_tense import verbs_of
from localmem.times.english_words import OTHER, Word, words_beside

_DAY_NAMES = ("sat", "sun", "mon", "wed")
_VERBS = ("may", "march")
_SHORT = ("mar", "jan", "jun", "dec", "sep")
_PEOPLE = ("april", "june", "august", "jan")


def settle_names(words: Sequence[Word], text: str) -> list[Word]:
    """The words, where one that only looks like a time has no kind."""
    return [
        word._replace(kind=OTHER, group="") if word.group and _is_something_else(words, index, text) else word
        for index, word in enumerate(words)
    ]


def _is_something_else(words: Sequence[Word], index: int, text: str) -> bool:
    name = words[index].text
    if name == "good friday":
        return index > 0 and words[index - 1].text in ("a", "another")
    if name == "friday" and index and words[index - 1].text == "man":
        return True
    if name in _DAY_NAMES:
        return not (_is_choice(words, index) or _is_weekday(words, index, text))
    if name in _VERBS:
        return not _is_month(words, index, text)
    if name in _SHORT and name not in _PEOPLE:
        return not (_leads(words, index, "months") or _has_day(words, index) or _is_second_month(words, index))
    return name in _PEOPLE and _is_person(words, index)


def _leads(words: Sequence[Word], index: int, names: str) -> bool:
    """Whether the word before words[index] is of a list in english.yaml."""
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
    if _leads(words, index, "days"):
        return True
    spelling = text[words[index].start : words[index].end]
    if not spelling[0].isupper() or spelling.isupper():
        return False
    if after is not None and (after.kind in "-/" or after.text[0].isdigit()):
        return True
    return index > 0 and (after is None or after.kind in ".," or after.group in ("LAST", "NEXT", "THIS"))


def _is_choice(words: Sequence[Word], index: int) -> bool:
    """Whether words[index] is one of two weekdays, or three: "Wed or Thurs", "fri sat sun"."""
    pairs = [words[index - 2 : index][::-1] if index > 1 else [], words[index + 1 : index + 3]]
    return any(
        len(pair) == 2
        and pair[1].group == "WEEKDAY"
        and (pair[0].text in ("or", "-", "/") or pair[0].group == "WEEKDAY")
        for pair in pairs
    )


def _is_month(words: Sequence[Word], index: int, text: str) -> bool:
    name, before = words[index].text, words[index - 1].text if index else ""
    after = words[index + 1] if index + 1 < len(words) else None
    if _leads(words, index, "months") or (index and words[index - 1].group == "ORDINAL"):
        return True
    if index and words[index - 1].group == "SMALL" and (after is None or after.text not in ("be", "have", "not")):
        return True
    if after is not None and after.text in words_beside("verbs"):
        return False
    if before == "this":
        return name == "march" or after is None or after.kind in ".,"
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
    if index > 1 and words[index - 1].text == "and" and words[index - 2].text in _PEOPLE:
        return _is_person(words, index - 2)
    if index and words[index - 1].text in ("tell", "told", "ask", "asked", "thank", "invite", "invited", "remind"):
        return True
    if _has_day(words, index) or _leads(words, index, "months") or _is_second_month(words, index):
        return False
    return after in words_beside("doings") or _leads(words, index, "titles")
