"""Pairs made from statements: labels follow from the marks, one seed gives one set, and no sentence is broken."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from finetune.operation_statements import Block, _say, _Scene, _Statement, make_pairs, read_blocks
from localmem.classification import OPERATIONS
from localmem.errors import BadInput

SCENE = _Scene("Ana", "his sister", "Olga", "cat", female=True)


def test_the_shipped_statements_give_ten_thousand_balanced_pairs_of_two_hundred_matters() -> None:
    pairs = make_pairs(read_blocks(), 10_000)
    assert len(set(pairs)) == 10_000
    shares = Counter(pair.label for pair in pairs)
    assert set(shares) == set(OPERATIONS)
    assert shares["PASS"] > 2000
    assert shares["REPLACE"] > 2500
    assert shares["DELETE"] > 700
    assert len({pair.group for pair in pairs}) > 200
    assert not any("{" in text or "  " in text or "N's" in text for pair in pairs for text in pair[:2])
    assert pairs == make_pairs(read_blocks(), 10_000)


@pytest.mark.parametrize(
    ("text", "voice", "expected"),
    [
        ("N has a cold and misses his bus", "I", "I have a cold and misses my bus"),
        ("N no longer works at {x}", "I", "I no longer work at Y"),
        ("N's son likes N", "name", "Ana's son likes Ana"),
        ("N lives with his mother", "name", "Ana lives with her mother"),
        ("N is tall", "none", "Is tall"),
        ("it makes him sad", "user", "It makes her sad"),
    ],
)
def test_a_statement_is_said_in_each_voice(text: str, voice: str, expected: str) -> None:
    assert _say(_Statement(text, "Y"), SCENE, voice) == expected  # type: ignore[arg-type]


def test_a_statement_about_somebody_else_names_them() -> None:
    assert _say(_Statement("N sold his car", "", other=True), SCENE, "I") == "Their sister sold her car"


def test_values_that_exclude_each_other_replace_and_others_are_added(tmp_path: Path) -> None:
    path = tmp_path / "statements.txt"
    path.write_text("# comment\n= N is in {x} | N stays in {x}\n@ A | B\n\n= N likes {x}\n@@ C | D\n", encoding="utf-8")
    exclusive, shared = read_blocks(path)
    assert (exclusive.values, exclusive.exclusive) == (("A", "B"), True)
    assert (shared.values, shared.exclusive) == (("C", "D"), False)
    by_group = {(pair.group, pair.label) for pair in make_pairs([exclusive, shared], 200)}
    assert ("block 0", "REPLACE") in by_group
    assert ("block 1", "REPLACE") not in by_group
    assert ("block 1", "APPEND") in by_group


def test_a_line_without_a_mark_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "statements.txt"
    path.write_text("N is in A\n", encoding="utf-8")
    with pytest.raises(BadInput, match="'N is in A' begins with none"):
        read_blocks(path)


def test_nothing_can_be_made_of_a_block_without_statements() -> None:
    assert make_pairs([Block()], 5, seed=Random(0).randint(0, 9)) == []
