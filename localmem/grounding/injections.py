"""Signs that a text tries to instruct whatever model reads it: told by its form, in texts that are not the user's own.

A person may instruct their assistant as they like, so nobody's typed words are judged here. A document, a program or a
reply has no business to: orders to an assistant, standing rules for later chats, triggers ("when the user asks X, say
Y"), claims of authority, messages that forge a role, what is to be sent elsewhere or kept from the user, and secrets.
Disguises are undone first: letters of other alphabets, invisible ones, spaced ones and encoded text. Words stand in
injections.yaml. Pure functions, no model; who judges what, and what becomes of it, is in `chat.quarantine`.
"""

import base64
import binascii
import codecs
import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path

from pydantic import BaseModel

from localmem.files import read_yaml
from localmem.text.provenance import has_disguise, has_labels

_ENOUGH = 2  # points: a strong sign alone, or two weak ones
_ALONE = 3  # points by which an assistant's reply, which tells people what to do all day, is judged
_LONGEST = 20_000  # characters that are judged together
_OVERLAP = 1_000  # of one such part of a long text with the next
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}|(?:[0-9a-f]{2}[ :]?){16,}", re.IGNORECASE)
_SPACED = re.compile(r"(?<!\w)(?:\w[ .\-_*|]{1,3}){5,}\w(?!\w)")
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff]")
_HINT = re.compile(
    r"\b(?:users?\b|assistant|ai\b|bots?\b|models?\b|system|instruct|rules?\b|prompts?\b|mode\b|memor|ignor|disregard"
    r"|overrid|now on\b|future|henceforth|polic|restrict|http|decode|developer|\[)",
    re.IGNORECASE,
)
_TAGS = re.compile("[\U000e0020-\U000e007e]")
_LETTERS = str.maketrans(
    "аеорсухіјѕԁһӏвмнткАВЕКМНОРСТХІЅαορνικΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "aeopcyxijsdhlbmhtkABEKMHOPCTXISaopvikABEZHIKMNOPTYX"
)
_MIXED = re.compile(r"\b(?=\w*[A-Za-z])(?=\w*[\u0370-\u03ff\u0400-\u04ff])\w{3,}")
_DIGITS = str.maketrans("013457@$", "oieastas")
_LEET = re.compile(r"\b(?=\w*[a-z])(?=\w*[013457@$])[\w@$]{3,}", re.IGNORECASE)


@lru_cache(maxsize=2048)
def find_signs(text: str) -> tuple[str, ...]:
    """The names of the signs in a text, or in the worst part of a long one, strong ones first; mostly none."""
    starts = range(0, max(1, len(text) - _OVERLAP), _LONGEST - _OVERLAP)
    parts = (list(_signs(text[start : start + _LONGEST])) for start in starts)
    return tuple(sorted(max(parts, key=lambda signs: sum(map(_points, signs))), key=lambda name: -_points(name)))


def is_injected(text: str, *, by_assistant: bool = False) -> bool:
    """Whether a text that is not the user's is likely to be an instruction to a model, or a secret of somebody's."""
    if by_assistant and not any(map(_HINT.search, _undo_disguises(text[:_LONGEST]))):
        return False  # nearly every reply: it speaks of no model, rules or memory
    return sum(map(_points, find_signs(text))) >= (_ALONE if by_assistant else _ENOUGH)


def crosses(earlier: str, text: str) -> bool:
    """Whether two texts, harmless each, make an instruction when they are read one after the other."""
    joined = f"{earlier.rstrip(' .…')} {text.lstrip(' .…')}"
    return not is_injected(earlier) and is_injected(joined[-_LONGEST:])


def _points(name: str) -> int:
    return {"disguise": 2, "role": 2}.get(name) or _rules()[name][0]


def _signs(text: str) -> Iterator[str]:
    forms = _undo_disguises(text)
    signs = {name for name, (_, pattern) in _rules().items() if any(pattern.search(form) for form in forms)}
    yield from signs
    if has_labels(text):
        yield "role"
    plain = {name for name in signs if _rules()[name][1].search(text)}
    if has_disguise(text) or signs > plain or (_MIXED.search(text) and signs):
        yield "disguise"


@lru_cache(maxsize=256)
def _undo_disguises(text: str) -> list[str]:
    """The text with its disguises undone: plain, unspaced, with digits as letters, decoded."""
    plain = unicodedata.normalize("NFKC", _UNSEEN.sub("", _TAGS.sub(lambda tag: chr(ord(tag[0]) - 0xE0000), text)))
    mixed = _MIXED.sub(lambda word: word[0].translate(_LETTERS), plain)
    forms = [mixed, _SPACED.sub(lambda run: re.sub(r"(?<=\w)[ .\-_*|](?=\w)", "", run[0]), mixed)]
    if any(map(str.isdigit, mixed)):
        forms.append(_LEET.sub(lambda word: word[0].translate(_DIGITS), mixed))
    forms += _decode_runs(mixed)
    if "rot13" in mixed.lower():
        forms.append(codecs.decode(mixed, "rot13"))
    if re.search(r"\b(?:reversed?|backwards?)\b", mixed, re.IGNORECASE):
        forms.append(mixed[::-1])
    return list(dict.fromkeys(forms))


def _decode_runs(text: str) -> Iterator[str]:
    for run in _ENCODED.findall(text):
        for decode in (_from_base64, _from_hex):
            try:
                words = decode(run).decode()
            except (binascii.Error, ValueError):
                continue
            if sum(map(str.isalpha, words)) > 0.6 * len(words):
                yield words


def _from_base64(run: str) -> bytes:
    return base64.b64decode(run + "=" * (-len(run) % 4), altchars=b"-_" if set(run) & set("-_") else None)


def _from_hex(run: str) -> bytes:
    return bytes.fromhex(run.replace(":", ""))


class _Table(BaseModel):
    words: dict[str, str]
    signs: dict[str, list[int | str]]


@cache
def _rules() -> Mapping[str, tuple[int, re.Pattern[str]]]:
    """The points and the pattern of each sign. A name in braces stands for a list of words."""
    table = _Table.model_validate(read_yaml(Path(__file__).with_suffix(".yaml")))
    words = {name: f"(?:{text.strip()})" for name, text in table.words.items()}
    rules = {}
    for name, (points, *patterns) in table.signs.items():
        joined = "|".join(map(str, patterns))
        for word, alternatives in words.items():
            joined = joined.replace("{" + word + "}", alternatives)
        rules[name] = (int(points), re.compile(joined, re.IGNORECASE))
    return rules
