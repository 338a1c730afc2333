"""The clauses of a sentence that answer a question, by the shares of its words in the answer.

What is left out is other matter, or what the sentence itself corrects ("my desk is 3B no sorry 4B"). Knows no model.
"""

import re
from collections.abc import Sequence
from itertools import accumulate, combinations_with_replacement, pairwise

from localmem.retrieval.base import WordShare
from localmem.text.clauses import CUT, begins_contrast, join_clauses, split_clauses
from localmem.turns.utterances import has_verb

_SHORTEST = 22  # characters of the clauses, if others that say nothing of the answer stand beside them
_LIST = re.compile(r"\D*?(?:\b(?:and|or|plus)\b|&)\D*", re.IGNORECASE)  # with a number an item is a fact of its own
_SLIP = re.compile(  # "eighty-one, no, I tell a lie, eighty-two", but not "two cats, no dogs"
    r"(?:(?:no|nope)(?=\W*$|\W+(?:no|sorry|wait|i|it|its|it['’]s|that['’]?s|make|actually|rather|\d)\b)"
    r"|sorry|sry|oops|wait|hang on|or rather|rather|i mean(?:t)?|i tell a lie|i was (?:wrong|mistaken)|make (?:that|it)"
    r"|correction|(?:scratch|scrap) that)\b",
    re.IGNORECASE,
)
_LETTER = re.compile(r"\w")
_SILENT = 0.03  # the part of the answer below which a clause says nothing of it


def choose_clauses(text: str, words: Sequence[WordShare], least: float, part: float) -> str:
    """The fewest clauses side by side with that part of the answer, with a subject, marked where the text is cut.

    "" for a whole text, as one is where the shares of its words sum up to less than the `least`.
    """
    clauses = _join_lists(text, join_clauses(text, split_clauses(text)))
    shares = [sum(word.share for word in words if begin <= word.start < end) for begin, end in clauses]
    if sum(shares) < least:
        return ""
    first, last = _find_densest(shares, part * sum(shares))
    first = _find_subject(text, clauses, shares, (first, last))
    while clauses[last][1] - clauses[first][0] < _SHORTEST:
        silent = [place for place in (first - 1, last + 1) if 0 <= place < len(shares) and shares[place] < _SILENT]
        if not silent:
            break
        place = min(silent, key=lambda place: shares[place])
        first, last = min(first, place), max(last, place)
    last = _find_correction([text[begin:end] for begin, end in clauses], last)
    if last - first + 1 == len(clauses):
        return ""
    begin, end = (f"{CUT} " if first else ""), (f" {CUT}" if last + 1 < len(clauses) else "")
    return f"{begin}{text[clauses[first][0] : clauses[last][1]].rstrip(',;:')}{end}"


def _join_lists(text: str, clauses: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The clauses, where those without a verb that go on with a list belong to the one before them."""
    heads = [
        number
        for number, (begin, end) in enumerate(clauses)
        if not number or has_verb(text[begin:end]) or begins_contrast(text[begin:end])
    ]
    joined: list[tuple[int, int]] = []
    for first, following in pairwise([*heads, len(clauses)]):
        begin, end = clauses[first][0], clauses[following - 1][1]
        is_list = _LIST.fullmatch(text, clauses[first][1], end)
        joined += [(begin, end)] if is_list else clauses[first:following]
    return joined


def _find_densest(shares: Sequence[float], least: float) -> tuple[int, int]:
    """The first and the last of the fewest neighbours that share at least so much, of equally many the largest."""
    sums = [0.0, *accumulate(shares)]
    runs = [
        (last - first, sums[first] - sums[last + 1], first, last)
        for first, last in combinations_with_replacement(range(len(shares)), 2)
        if sums[last + 1] - sums[first] >= least
    ]
    return min(runs)[2:] if runs else (0, len(shares) - 1)


def _find_correction(clauses: Sequence[str], last: int) -> int:
    """The last of the clauses behind that one that correct it, or that one: what was corrected is no answer alone."""
    end = last
    while end + 1 < len(clauses) and (_SLIP.match(clauses[end + 1]) or not _LETTER.search(_SLIP.sub("", clauses[end]))):
        end += 1
    return end


def _find_subject(
    text: str, clauses: Sequence[tuple[int, int]], shares: Sequence[float], chosen: tuple[int, int]
) -> int:
    """The first of the chosen clauses with those before them that say whom or what they speak of."""
    first, last = chosen
    while first and shares[first - 1] < _SILENT:
        quoted = text[clauses[first][0] : clauses[last][1]]
        if has_verb(quoted) or begins_contrast(quoted):
            break
        first -= 1
    return first
