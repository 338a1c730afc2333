"""Announcements: what a sentence says has ended or changed ("Pippin died", "Helen isn't coming at Easter after all").

By areas of life ("we moved" ends what belongs to a home) and by things, named by words that stand together. Words stand
in announcements.yaml, with those of what rests on each area. No model; pure functions.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from localmem.files import read_yaml

_NAME = re.compile(r"(?<![.!?:]\s)(?<!^)(?<![.!?:\n\"“])\b(?![A-Z]{2,}\b)[A-ZÀ-ÖØ-Þ][\w’'-]*[\wÀ-ÿ]")
_FIRST = re.compile(
    r"^\W*([A-ZÀ-ÖØ-Þ][a-zà-ÿ]{2,})(?=(?:['’]s)? "
    r"(?:&|and I|died|passed|retired|is|was|has|closed|ran|moved|broke|left|quit|gave|isn|doesn)(?!\w))"
)
_STEM = 6  # letters that are compared
_ENDING = re.compile(r"(?<=\w{2})(?:([b-df-hj-np-tv-z])\1ing|ing|(?<!s)s)$")  # of "swimming", "climbing", "bees"
_TITLES = frozenset({"s", "dr", "mr", "mrs", "st"})
_BEFORE = r"((?:(?!and |but |so )\w+ ){1,4})"  # a verb, the words for who or what does it
_JOINED = re.compile(r" (?:and|but|so|because|while|as)\b")
_PREPOSITION = re.compile(r"( (?:at|in|of|on|to|with|for|from|by|about))\b")
MINE = re.compile(r" (?:i|im|ive|id|ill|my|mine|me|we|were|weve|our|ours|us)\b")


@dataclass(frozen=True)
class AnnouncedChange:
    """What a sentence says ended or changed: areas of life, and things, each as the stems that name it together.

    Who is `leaving` goes on with the rest of a life: of kin, nothing becomes doubtful. What ended for `others` alone
    ("my brother") is over only in lines that name them.
    """

    areas: frozenset[str]
    things: frozenset[frozenset[str]]
    leaving: frozenset[frozenset[str]] = frozenset()
    others: frozenset[str] = frozenset()

    def is_named_in(self, line: str) -> bool:
        """Whether a line has all stems of a thing."""
        words = self.words.findall(line)
        if not words:  # as in most lines
            return False
        stems = stems_of(words)
        return any(thing <= stems for thing in self.things)

    @cached_property
    def words(self) -> re.Pattern[str]:
        """The words that begin as one of a thing does: those of the same stem are among them."""
        stems = "|".join(map(re.escape, frozenset().union(*self.things)))
        return re.compile(rf" ((?:{stems})\w*)" if stems else "(?!)")


def read_announced_change(sentence: str) -> AnnouncedChange | None:
    """What a sentence says ended or changed; None for most."""
    line, rules = plain_line(sentence), read_rules()
    changes = {name: match for name, area in rules.areas.items() if (match := area.change.search(line))}
    first = next(iter(changes.values()), None) or rules.over.search(line)
    if not first:
        return None
    if sentence.rstrip().endswith("?") or rules.no_news.search(line):
        return None
    names = _names(sentence)
    areas = {name for name, match in changes.items() if not (name in rules.personal and _is_of_another(match, names))}
    leaving = _things(line, names, ("leaves",))
    things = _things(line, names, ("ended", "stopped", "lost", "denied"))
    if not things and not leaving:
        new = {match[1].lower() for match in rules.new.finditer(sentence)}
        things = {frozenset(stems_of([name])) for area in areas for name in _names_beside(changes[area], names - new)}
    others = _relatives(first, names, areas)
    return AnnouncedChange(frozenset(areas), frozenset(things | leaving), frozenset(leaving), frozenset(others))


def _relatives(match: re.Match[str], names: Set[str], areas: Set[str]) -> set[str]:
    """The kin or friend to whom alone a change happened: "my friend Zoe got divorced". Partners share most."""
    before, rules = _clause_before(match), read_rules()
    after = _JOINED.split(match.string[match.end() :].partition(" ,")[0])[0]
    relative = rules.relatives.search(before)
    if relative is None or MINE.search(rules.relatives.sub("", before) + match[0] + after):
        return set()
    is_shared = relative[1] in rules.partners and not (areas and areas <= rules.personal - {"home", "relationship"})
    return set() if is_shared else {relative[1]} | names & set(before.split())


def _is_of_another(match: re.Match[str], names: Set[str]) -> bool:
    """Whether someone is named to whom a change happened, and the speaker is not: "Ruth has graduated"."""
    return not MINE.search(match.string) and not names.isdisjoint(_clause_before(match).split())


def _names_beside(match: re.Match[str], names: Set[str]) -> set[str]:
    """The names in the clause of a change: "Tom and I broke up"."""
    clause = f"{_clause_before(match)}{match[0]}{match.string[match.end() :].partition(' ,')[0]}"
    return {word for word in clause.split() if word in names}


def _clause_before(match: re.Match[str]) -> str:
    return match.string[: match.start()].rpartition(" ,")[2]


def _things(line: str, names: Set[str], kinds: Iterable[str]) -> set[frozenset[str]]:
    """What is over by the nouns beside the words that say so: "the caravan has gone", "we sold the caravan"."""
    ends = read_rules().ends
    matches = ((_READERS[kind], match) for kind in kinds for match in ends[kind].finditer(line))
    phrases = (phrase for read, match in matches for phrase in read(match, names))
    return {frozenset(stems_of(phrase)) for phrase in phrases if phrase}


def _read_before(match: re.Match[str], names: Set[str]) -> Iterator[Set[str]]:
    yield from (_read_phrase(group, names, is_last=True) for group in match.groups("") if group)


def _read_lost(match: re.Match[str], names: Set[str]) -> Iterator[Set[str]]:
    yield from (_read_phrase(group, names, is_last=False) for group in match.groups("") if group)


def _read_stopped(match: re.Match[str], names: Set[str]) -> Iterator[Set[str]]:
    """What somebody has no more, and who it is: "Gerald has given up bowls"."""
    before = _clause_before(match).split()
    subject = {word for word in before if word in names} if {"i", "we"}.isdisjoint(before) else set()
    yield from (phrase | subject for phrase in _read_lost(match, names) if phrase)


def _read_left(match: re.Match[str], names: Set[str]) -> Iterator[Set[str]]:
    """Who has left; where the place is named ("Tom left Rolls-Royce"), together with it."""
    after = match.string[match.end() :].partition(" ,")[0].split()
    place = set(takewhile(names.__contains__, after))
    if place or not after or after[0] not in read_rules().objects:
        yield from (phrase | place for phrase in _read_before(match, names) if phrase or place)


def _read_denied(match: re.Match[str], names: Set[str]) -> Iterator[Set[str]]:
    """What is not so any more, together with who is named: "Helen isn't coming after all" ends nothing else of her."""
    subject, denied = _read_phrase(match[1] or "", names, is_last=True), match[2].split()
    if not subject:
        yield _read_phrase(match[2], names, is_last=False)
        return
    nouns = {word for word in takewhile(lambda word: word != "with", denied) if len(word) > 2}
    nouns = (nouns - read_rules().no_nouns) or {word for word in denied[:1] if len(word) > 2}
    verbs = {f"{word.removesuffix('ing')}{end}" for word in nouns if word.endswith("ing") for end in ("e", "")}
    yield from (subject | {word} for word in sorted(nouns | verbs))


_READERS: Mapping[str, Callable[[re.Match[str], Set[str]], Iterator[Set[str]]]] = {
    "ended": _read_before, "leaves": _read_left, "stopped": _read_stopped, "lost": _read_lost, "denied": _read_denied,
}  # fmt: skip


def _read_phrase(text: str, names: Set[str], *, is_last: bool) -> Set[str]:
    """The words that name a thing together, at the end or the beginning of a text, with a place where it has one."""
    clause = _JOINED.split(text)[-1 if is_last else 0].removesuffix(" s ")
    head, preposition, tail = (*_PREPOSITION.split(clause, maxsplit=1), "", "")[:3]
    nouns, rules = _nouns(head, is_last=is_last), read_rules()
    _, owner, owned = head.rpartition(" s ")
    if owner and not _nouns(owned, is_last=True):  # "Gerald's back has gone"
        return set()
    if not owner:
        nouns = (nouns & names) or (nouns - rules.vague) or nouns
    is_vague = nouns <= rules.vague
    if preposition in (" at", " in", " of") or is_vague:
        place = (names & set(tail.split())) or (_nouns(tail, is_last=False) if is_vague else set())
        return place if place and is_vague and preposition != " with" else nouns | place
    return nouns


def _nouns(text: str, *, is_last: bool) -> set[str]:
    """The words of a text that stand together, without those that name nothing: the last or the first of them."""
    words = [word for word in text.split() if word not in _TITLES and not word.isdigit()]
    words = list(dropwhile(_names_nothing, words[::-1] if is_last else words))
    return set(takewhile(lambda word: not _names_nothing(word), words))


def _names_nothing(word: str) -> bool:
    return len(word) <= 2 or word in read_rules().no_nouns or word in read_rules().no_names


def _names(text: str) -> set[str]:
    """The words of the names in a text, as `plain_line` writes them."""
    names = {match[0] for match in _NAME.finditer(text)} | set(_FIRST.findall(text))
    return {word for name in names for word in plain_line(name).split()} - read_rules().no_names - _TITLES


def stems_of(words: Iterable[str]) -> set[str]:
    """The first letters of words, by which their forms are compared."""
    return {_ENDING.sub(r"\1", word)[:_STEM] for word in words}


@lru_cache(maxsize=8192)  # a user's latest statements are read again with each announcement
def plain_line(text: str) -> str:
    """Lower case without apostrophes, with a blank before each word, and a comma for the marks between words."""
    text = re.sub(r"['’](?=s\b)", " ", text.lower()).replace("'", "").replace("’", "")
    words = re.findall(r"\w+|(?:[,;:!?.)–—…](?=\s)|[–—(]|(?<=\s)-+(?=\s))+", text.strip(" .!?…"))
    return "".join(f" {word if word[0].isalnum() or word[0] == '_' else ','}" for word in words)


class Area(NamedTuple):
    """Words that announce a change in an area of life, that are about it, beside a name too, or rest on it."""

    change: re.Pattern[str]
    about: re.Pattern[str]
    depends: re.Pattern[str]
    before: re.Pattern[str]
    after: re.Pattern[str]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")

    new: str
    past: str
    others: str
    unreal: str
    ends: dict[str, str]
    kin: str
    relatives: str
    partners: str
    vague: str
    personal: str
    objects: str
    no_names: str
    no_nouns: str
    areas: dict[str, dict[str, str]]


@dataclass(frozen=True)
class Rules:
    """What announcements.yaml holds, compiled."""

    areas: Mapping[str, Area]
    new: re.Pattern[str]
    past: re.Pattern[str]
    others: re.Pattern[str]
    no_news: re.Pattern[str]
    over: re.Pattern[str]
    ends: Mapping[str, re.Pattern[str]]
    kin: re.Pattern[str]
    relatives: re.Pattern[str]
    partners: frozenset[str]
    vague: frozenset[str]
    personal: frozenset[str]
    objects: frozenset[str]
    no_names: frozenset[str]
    no_nouns: frozenset[str]


@cache
def read_rules() -> Rules:
    """The content of announcements.yaml."""
    table = _Table.model_validate(read_yaml(Path(__file__).with_suffix(".yaml")))
    return Rules(
        {name: _read_area(words) for name, words in table.areas.items()},
        re.compile(rf"\b(?i:{_join(table.new)})\s+(?:the |a |an )?([A-ZÀ-ÖØ-Þ][\w-]+)"),
        _compile(table.past),
        _compile(table.others),
        _compile(f"{table.past} | {table.unreal}"),
        _compile(" | ".join(table.ends.values()).replace("{before}", "")),
        {kind: _compile(words.replace("{before}", _BEFORE)) for kind, words in table.ends.items()},
        re.compile(rf" (?:{_join(table.kin)})(?: (?:called|named|is|s))*$"),
        re.compile(rf" (?:my|our)(?: \w+)?? ({_join(table.kin)}|{_join(table.relatives)})\b"),
        *(
            frozenset(words.split())
            for words in (table.partners, table.vague, table.personal, table.objects, table.no_names, table.no_nouns)
        ),
    )


def _read_area(words: Mapping[str, str]) -> Area:
    about = _join(words.get("about", "(?!)"))
    return Area(
        _compile(words.get("change", "(?!)")),
        re.compile(rf" (?:{about})"),
        _compile(words.get("depends", "(?!)")),
        re.compile(rf" (?:{about})(?: (?:called|named|is|s|in|to|at|for|from|the|a|an))*$"),
        re.compile(rf"(?: (?:is|was|s|,))?(?: (?:my|our|a|an|the))(?: \w+){{0,2}} (?:{about})\b"),
    )


def _compile(words: str) -> re.Pattern[str]:
    """Of a line as `plain_line` writes it: a pattern that begins with a blank is found much faster than with \\b."""
    return re.compile(rf" (?:{_join(words)})\b" if words != "(?!)" else words)


def _join(words: str) -> str:
    return words.strip().replace(" | ", "|")
