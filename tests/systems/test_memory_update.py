"""Algorithm 1: every small label matrix against the paper's lines as they stand, and what the lines imply."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import pytest

from localmem.classification import OPERATIONS, Operation
from localmem.systems.carecall.memory_update import Outcome, remaining, replacements, update

Labels = Mapping[tuple[str, str], Operation]


def _line_by_line(memory: Sequence[str], sentences: Sequence[str], labels: Labels) -> set[str]:
    """Algorithm 1 as printed, with sets."""
    m_del, s_del = set(), set()
    for m in memory:
        for s in sentences:
            if labels[m, s] in {"REPLACE", "DELETE"}:
                m_del.add(m)
                if labels[m, s] == "DELETE":
                    s_del.add(s)
    remaining_names = set(memory) - m_del
    for s in sentences:
        for m in remaining_names:
            if labels[m, s] == "PASS":
                s_del.add(s)
    return remaining_names | (set(sentences) - s_del)


def _all_matrices(rows: int, columns: int) -> Iterator[tuple[list[str], list[str], Labels]]:
    memory, sentences = [f"m{n}" for n in range(rows)], [f"s{n}" for n in range(columns)]
    pairs = list(product(memory, sentences))
    for row in product(OPERATIONS, repeat=len(pairs)):
        yield memory, sentences, dict(zip(pairs, row, strict=True))


_SMALL = [(0, 0), (0, 2), (2, 0), (1, 1), (1, 3), (3, 1), (2, 2), (2, 3), (3, 2)]


@pytest.mark.parametrize("shape", _SMALL, ids=str)
def test_what_remains_is_what_the_papers_lines_leave(shape: tuple[int, int]) -> None:
    for memory, sentences, labels in _all_matrices(*shape):
        survivors = remaining(update(memory, sentences, labels))
        assert set(survivors) == _line_by_line(memory, sentences, labels), labels
        assert survivors == [name for name in [*memory, *sentences] if name in survivors], "old before new, in order"


@pytest.mark.parametrize("shape", _SMALL, ids=str)
def test_every_sentence_has_one_fate_and_a_true_cause(shape: tuple[int, int]) -> None:
    for memory, sentences, labels in _all_matrices(*shape):
        outcomes = update(memory, sentences, labels)
        assert [outcome.sentence for outcome in outcomes] == [*memory, *sentences]
        stored = {outcome.sentence for outcome in outcomes if outcome.step == "add"}
        for outcome in outcomes:
            _check_cause(outcome, memory, sentences, labels, stored)


def _check_cause(
    outcome: Outcome, memory: Sequence[str], sentences: Sequence[str], labels: Labels, stored: set[str]
) -> None:
    match outcome:
        case Outcome(m, "keep", None, ""):
            assert not {labels[m, s] for s in sentences} & {"REPLACE", "DELETE"}
        case Outcome(m, "retire", "REPLACE" | "DELETE" as why, s):
            assert labels[m, s] == why
            successors = [new for new in sentences if new in stored and labels[m, new] == "REPLACE"]
            assert not successors or s == successors[0]
        case Outcome(s, "add", None, ""):
            assert "DELETE" not in {labels[m, s] for m in memory}
        case Outcome(s, "drop", "DELETE" | "PASS" as why, m):
            assert labels[m, s] == why
            assert why == "DELETE" or "DELETE" not in {labels[old, s] for old in memory}
        case _:
            pytest.fail(f"no such outcome: {outcome}")


def _fates(*rows: str) -> dict[str, str]:
    """The steps for a matrix given by first letters: a row for each remembered sentence."""
    letters = {name[0]: name for name in OPERATIONS}
    labels = {(f"m{i}", f"s{j}"): letters[cell] for i, row in enumerate(rows) for j, cell in enumerate(row)}
    outcomes = update([f"m{i}" for i in range(len(rows))], [f"s{j}" for j in range(len(rows[0]))], labels)
    return {outcome.sentence: outcome.step for outcome in outcomes}


def test_each_operation_alone() -> None:
    assert _fates("P") == {"m0": "keep", "s0": "drop"}
    assert _fates("R") == {"m0": "retire", "s0": "add"}
    assert _fates("A") == {"m0": "keep", "s0": "add"}
    assert _fates("D") == {"m0": "retire", "s0": "drop"}


def test_conflicts_are_settled_by_the_order_of_the_lines() -> None:
    # A remembered sentence that one new sentence retires is not there any more to PASS another.
    assert _fates("RP") == {"m0": "retire", "s0": "add", "s1": "add"}
    # A DELETE takes its new sentence along, which then stands in for nothing it replaced.
    assert _fates("D", "R") == {"m0": "retire", "m1": "retire", "s0": "drop"}
    # A PASS by a sentence that stays drops the new one, and what that one replaced is retired all the same.
    assert _fates("P", "R") == {"m0": "keep", "m1": "retire", "s0": "drop"}
    # One new sentence replaces and another deletes: the old one goes, the first is stored.
    assert _fates("RD") == {"m0": "retire", "s0": "add", "s1": "drop"}


def test_a_pair_without_a_label_is_an_append() -> None:
    outcomes = update(["m0", "m1"], ["s0"], {("m1", "s0"): "REPLACE"})
    assert remaining(outcomes) == ["m0", "s0"]


def test_the_place_of_an_old_sentence_is_taken_by_a_stored_one_only() -> None:
    labels: dict[tuple[str, str], Operation] = {
        ("m0", "s0"): "REPLACE",
        ("m1", "s0"): "REPLACE",
        ("m2", "s1"): "DELETE",
    }
    assert replacements(update(["m0", "m1", "m2"], ["s0", "s1"], labels)) == {"s0": ["m0", "m1"]}
