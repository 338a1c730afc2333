"""Labelled pairs for the operation classifier, made by recombining statements that people wrote.

`finetune/data/operation_statements.txt` holds blocks of statements about one matter, by what they do to each other; its
head explains the marks. A pair takes two of them with the same value or with two, and says both of one person, in the
first person, by name or as "the user", or of two people. Pairs of one block are one group. Seeded; does not depend on
any model.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

from localmem.classification import Operation
from localmem.errors import BadInput
from localmem.evaluation.datasets.labelled_pairs import LabelledPair
from localmem.files import read_text

STATEMENTS = Path(__file__).parent / "data" / "operation_statements.txt"

_TRIES = 30
_QUOTED = 0.4  # of the pairs in the first person
_SHARES: dict[Operation, int] = {"PASS": 28, "REPLACE": 34, "APPEND": 28, "DELETE": 10}
_MALE, _FEMALE = ("Tom", "Amir", "Jonas", "Luca", "Kofi", "Ben"), ("Ana", "Priya", "Maren", "Ruth", "Sana", "Zoe")
_OTHERS = ("his sister", "his brother", "his flatmate", "his uncle", "Femi", "Olga", "Mrs Hall", "his best friend")
_ANIMALS = ("cat", "dog", "rabbit", "parrot")
_SHE = {"he": "she", "him": "her", "his": "her"}
_I = {"him": "me", "his": "my", "N's": "my", "N": "I", "he": "I"}
_FIRST_PERSON = {"is": "am", "has": "have", "does": "do", "was": "was", "lies": "lie", "goes": "go"}
_SHORT = {"do not": "don't", "does not": "doesn't", "is not": "isn't", "cannot": "can't", "I am": "I'm"}
_VERB = re.compile(
    r"\b(N|he) ((?:(?:no longer|never|always|still|hardly|only|really|often|also|rarely) )?)([a-z]+)\b(?!')"
)

Voice = Literal["I", "name", "user", "none"]
_ALIKE: dict[Voice, tuple[Voice, ...]] = {  # voices that speak of the same person
    "I": ("I", "user", "none"),
    "name": ("name", "none"),
    "user": ("I", "user", "none"),
    "none": ("I", "user", "none"),
}


@dataclass(frozen=True, slots=True)
class Block:
    """The statements about one matter by their mark, and the values that `{x}` takes.

    Two values contradict each other if the block is `exclusive`; else both can be true.
    """

    statements: dict[str, list[str]] = field(default_factory=dict)
    values: tuple[str, ...] = ("",)
    exclusive: bool = True


class _Statement(NamedTuple):
    text: str
    value: str
    other: bool = False  # about somebody else


def read_blocks(path: Path = STATEMENTS) -> list[Block]:
    """The blocks of a file. Raises BadInput for a line without a mark."""
    text = read_text(path, "use the shipped file or one of its format")
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    return [_read_block(part.strip().splitlines(), path) for part in re.split(r"\n\s*\n", lines) if part.strip()]


def make_pairs(blocks: Sequence[Block], count: int, seed: int = 0) -> list[LabelledPair]:
    """`count` different pairs, or as many as can be made, with fixed shares of the labels."""
    random = Random(seed)  # noqa: S311  # not used for security
    pairs: dict[LabelledPair, None] = {}
    labels = random.choices(list(_SHARES), list(_SHARES.values()), k=3 * count)
    for label in labels:
        for _ in range(_TRIES):  # not every block has every label
            number = random.randrange(len(blocks))
            if pair := _DRAW[label](blocks, number, random):
                first, second = _write(pair, random)
                pairs[LabelledPair(first, second, label, f"block {number}")] = None
                break
        if len(pairs) == count:
            break
    return list(pairs)


def _read_block(lines: Sequence[str], path: Path) -> Block:
    block = Block()
    for line in lines:
        mark, _, content = line.partition(" ")
        texts = [text.strip() for text in content.split(" | ")]
        if mark in ("@", "@@"):
            block = Block(block.statements, tuple(texts), exclusive=mark == "@")
        elif mark in ("=", "!", "+", ">", "-"):
            block.statements[mark] = texts
        else:
            raise BadInput(f"{path}: {line!r} begins with none of the marks = ! + > - @ @@")
    return block


_Drawn = tuple[_Statement, _Statement] | None


def _draw(block: Block, random: Random, marks: str, *, same: bool = True, other: bool = False) -> _Drawn:
    """A statement of each mark, with one value or with two, the second perhaps about somebody else."""
    first, second = (block.statements.get(mark) for mark in marks)
    if not first or not second:
        return None
    old, new = random.choice(first), random.choice(second)
    values = random.sample(block.values, 2) if not same else [random.choice(block.values)] * 2
    if old == new and same and not other:
        return None
    return _Statement(old, values[0]), _Statement(new, values[1], other)


def _draw_pass(blocks: Sequence[Block], number: int, random: Random) -> _Drawn:
    return _draw(blocks[number], random, random.choice(("==", "==", "==", ">=")))


def _draw_replace(blocks: Sequence[Block], number: int, random: Random) -> _Drawn:
    block = blocks[number]
    if len(block.values) > 1 and block.exclusive and random.random() < 0.5:
        return _draw(block, random, random.choice(("==", "=>", ">=")), same=False)
    return _draw(block, random, random.choice(("=!", "=!", "=!", "!=", ">!", "=>")))


def _draw_append(blocks: Sequence[Block], number: int, random: Random) -> _Drawn:
    block, chance = blocks[number], random.random()
    if len(block.values) > 1 and not block.exclusive and chance < 0.5:
        return _draw(block, random, random.choice(("==", "=>", ">=")), same=False)
    if chance < 0.2:
        return _draw(block, random, random.choice(("==", "=!", "=-", "!=")), other=True)
    if chance < 0.3:
        far = random.choice(blocks)
        pair = _draw(far, random, random.choice(("==", "=!", "++")))
        near = _draw(block, random, "==")
        return (near[0], pair[1]) if near and pair and far is not block else None
    return _draw(block, random, random.choice(("=+", "=+", "+=", "++", ">+", "+>")))


def _draw_delete(blocks: Sequence[Block], number: int, random: Random) -> _Drawn:
    return _draw(blocks[number], random, random.choice(("=-", "=-", ">-")))


_DRAW: dict[Operation, Callable[[Sequence[Block], int, Random], _Drawn]] = {
    "PASS": _draw_pass,
    "REPLACE": _draw_replace,
    "APPEND": _draw_append,
    "DELETE": _draw_delete,
}


@dataclass(frozen=True, slots=True)
class _Scene:
    """Whom and what the two statements of a pair speak of."""

    name: str
    somebody: str
    friend: str
    animal: str
    female: bool


def _write(pair: tuple[_Statement, _Statement], random: Random) -> tuple[str, str]:
    """Both statements written out, mostly in one voice."""
    female = random.random() < 0.5
    name = random.choice(_FEMALE if female else _MALE)
    somebody, friend = random.sample(_OTHERS, 2)
    scene = _Scene(name, somebody, friend, random.choice(_ANIMALS), female)
    voice: Voice = random.choice(("I", "I", "name", "name", "user", "none"))
    other = voice if random.random() < 0.7 else random.choice(_ALIKE[voice])
    texts = [_say(statement, scene, voice_of) for statement, voice_of in zip(pair, (voice, other), strict=True)]
    if random.random() < 0.5:
        for long, short in _SHORT.items():
            texts = [text.replace(long, short) for text in texts]
    end = "." if random.random() < 0.85 else ""
    if voice == other == "I" and random.random() < _QUOTED:
        return f'{name} said: "{texts[0]}{end}"', f'{name} said: "{texts[1]}{end}"'
    return texts[0] + end, texts[1] + end


def _say(statement: _Statement, scene: _Scene, voice: Voice) -> str:
    """One statement in a voice."""
    text = statement.text.replace("{y}", scene.friend).replace("{z}", scene.animal)
    text = _of_somebody(text, scene) if statement.other else _of_person(text, scene, voice)
    text = text.replace("{x}", statement.value)
    return text[:1].upper() + text[1:]


def _of_person(text: str, scene: _Scene, voice: Voice) -> str:
    if voice == "I":
        text = _VERB.sub(_in_first_person, text)
        return re.sub(r"\b(?:N's|N|he|him|his)(?!\w)", lambda match: _I[match[0]], text)
    if scene.female:
        text = _in_female(text)
    if voice == "none" and text.startswith("N "):
        return text.removeprefix("N ").replace("N", scene.name)
    return re.sub(r"\bN\b", "the user" if voice in ("user", "none") else scene.name, text)


def _of_somebody(text: str, scene: _Scene) -> str:
    """The same statement of the scene's somebody, who is named in it."""
    text = re.sub(r"\bN\b", scene.somebody.replace("his ", "their "), text)
    return _in_female(text) if scene.somebody in ("his sister", "Olga", "Mrs Hall") else text


def _in_female(text: str) -> str:
    return re.sub(r"\b(?:he|him|his)\b", lambda match: _SHE[match[0]], text)


def _in_first_person(match: re.Match[str]) -> str:
    verb = match[3]
    if verb in _FIRST_PERSON:
        verb = _FIRST_PERSON[verb]
    elif verb.endswith("ies"):
        verb = f"{verb[:-3]}y"
    elif verb.endswith(("sses", "shes", "ches", "xes", "zzes")):
        verb = verb[:-2]
    elif verb.endswith("s") and not verb.endswith("ss"):
        verb = verb[:-1]
    return f"I {match[2]}{verb}"
