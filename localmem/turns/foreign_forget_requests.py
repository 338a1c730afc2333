"""Requests to forget in other languages than English, by the patterns of foreign_forget_requests.yaml.

The verb must open a clause, for elsewhere it mostly tells who forgets what ("ma mère oublie mon nom"). "What I said"
and "that" are enough; "my address", "the code" or "that I have a dog" only where it is all that the message says, or
where it is polite. To delete is mostly said of a text, so there it must be a personal datum, or the memory be named.
Does not know what is remembered.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from localmem.files import read_yaml
from localmem.turns.forget_topics import find_topic

_I = re.IGNORECASE


def may_be_foreign(lowered: str) -> bool:
    """Whether a message (in small letters) holds a word that such a request needs. Most hold none, and all are read."""
    return next(_languages(lowered), "") != ""


def find_foreign_requests(text: str) -> Iterator[re.Match[str]]:
    """The commands to forget."""
    yield from (request for _, request in _find(text))


def languages_of_request(text: str) -> list[str]:
    """The ISO 639-1 codes of the languages, other than English, in which a message asks to forget."""
    return [name for name, _ in _find(text)]


def _find(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    """The commands to forget, each with its language."""
    for name in _languages(text.lower()):
        commands, figure = _patterns(name)
        if not figure.search(text):
            requests = (request for command in commands for request in command.finditer(text))
            yield from ((name, request) for request in requests if _is_meant(text, request))


def name_foreign(request: re.Match[str]) -> str:
    """What a request names beyond "that" and "what I said": the boss of "what I said about my boss"."""
    groups = request.groupdict()
    if groups.get("everything"):
        return "everything"
    if groups.get("whom"):
        return f"everything about {groups['whom']}"
    name = groups.get("own") or groups.get("fact") or ""
    if not name:
        after = re.split("[.!?…\n]", request.string[request.end() :], maxsplit=1)[0]
        about = _part("ABOUT").search(after)
        clause = re.split("[,;،，、]", about["topic"] if about else after, maxsplit=1)[0]
        name = clause if find_topic(clause) else ""
    return "" if _part("THAT_DATUM").fullmatch(name) else _part("UNNAMED").sub("", name)


def _is_meant(text: str, request: re.Match[str]) -> bool:
    groups = request.groupdict()
    own, fact = groups.get("own"), groups.get("fact")
    named = own or fact
    if not named or named >= "\u3040":  # a language that writes no spaces has a form of its own for requests
        return True
    start = max(text.rfind(mark, 0, request.start() + 1) for mark in ".!?\n") + 1
    alone = not text[: request.start()].strip() and not text[request.end() :].strip(" .!…")
    polite = re.search(rf"\b{_part('PLEASE').pattern}\b", text[start : request.end()], _I)
    if fact:
        return bool(alone or polite) and not _part("INSTEAD").search(fact)
    if _part("PART_OF_TEXT").search(named):
        return False
    if not _part("DELETES").search(request[0]):
        return bool(polite or (alone and _part("ALONE").fullmatch(named)))
    if _part("OF_MEMORY").search(named):
        return True
    mine = _part("MY_DATUM").fullmatch(named) or (polite and _part("MY_THING").fullmatch(named))
    return bool(mine and (alone or polite))


def _languages(lowered: str) -> Iterator[str]:
    """The languages that a message may be in."""
    return (name for name, phrases in _read()["languages"].items() if _holds_any(lowered, phrases["stems"]))


def _holds_any(lowered: str, stems: Iterable[str]) -> bool:
    return any(stem in lowered for stem in stems)


@cache
def _patterns(language: str) -> tuple[list[re.Pattern[str]], re.Pattern[str]]:
    """The commands of a language, and its figures of speech."""
    phrases = _read()["languages"][language]
    return [_compile(each) for each in phrases["request"]], re.compile("|".join(phrases["figure"]), _I)


@cache
def _part(name: str) -> re.Pattern[str]:
    return _compile(f"(?:{'|'.join(_read()['parts'][name])})")


def _compile(pattern: str) -> re.Pattern[str]:
    """A pattern, with the parts that it names."""
    names = "|".join(rf"(?<![A-Z_]){name}(?![A-Z_])" for name in _read()["parts"])
    return re.compile(re.sub(names, lambda name: _part(name[0]).pattern, pattern), _I)


@cache
def _read() -> dict[str, Any]:
    return read_yaml(Path(__file__).with_suffix(".yaml"))
