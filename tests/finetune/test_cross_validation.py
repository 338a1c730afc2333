"""Division by group and label loses and leaks nothing, and is reproducible by seed."""

from collections import Counter

import pytest

from finetune.operation_pairs import hold_out, make_folds
from localmem.errors import BadInput
from localmem.evaluation.datasets.labelled_pairs import LabelledPair

# Forty groups of three pairs; a label of every other group, and one of every group.
PAIRS = [
    LabelledPair(f"m{group}", f"s{group}.{number}", label, f"g{group}")
    for group in range(40)
    for number, label in enumerate(["yes", "no" if group % 2 else "yes", "maybe"])
]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_pair_is_held_out_once_and_no_group_is_on_both_sides(seed: int) -> None:
    parts = make_folds(PAIRS, 5, seed)
    assert Counter(pair for part in parts for pair in part.held_out) == Counter(PAIRS)
    for train, held_out in parts:
        assert Counter(train) + Counter(held_out) == Counter(PAIRS)
        assert not {pair.group for pair in train} & {pair.group for pair in held_out}


def test_every_part_has_the_share_of_each_label() -> None:
    for _, held_out in make_folds(PAIRS, 5, seed=0):
        assert Counter(pair.label for pair in held_out) == {"yes": 12, "no": 4, "maybe": 8}


def test_the_parts_depend_on_the_seed_alone() -> None:
    assert make_folds(PAIRS, 4, seed=3) == make_folds(PAIRS, 4, seed=3)
    assert make_folds(PAIRS, 4, seed=3) != make_folds(PAIRS, 4, seed=4)


def test_a_split_holds_out_the_share() -> None:
    train, held_out = hold_out(PAIRS, 0.2, seed=0)
    assert (len(train), len(held_out)) == (96, 24)
    assert not {pair.group for pair in train} & {pair.group for pair in held_out}


@pytest.mark.parametrize("share", [0.0, 0.7, -0.1])
def test_an_invalid_share_is_refused(share: float) -> None:
    with pytest.raises(BadInput, match="the held-out share is"):
        hold_out(PAIRS, share, seed=0)


def test_too_few_groups_of_a_label_are_refused() -> None:
    rare = [*PAIRS, LabelledPair("m", "s1", "rare", "g0"), LabelledPair("m", "s2", "rare", "g1")]
    with pytest.raises(BadInput, match=r"rare occurs in 2 groups, too few for 3 parts"):
        make_folds(rare, 3, seed=0)
    assert len(make_folds(rare, 2, seed=0)) == 2


@pytest.mark.parametrize("pairs, number, message", [([], 2, "no pairs to divide"), (PAIRS, 1, "cannot make 1 folds")])
def test_nothing_to_divide_is_refused(pairs: list[LabelledPair], number: int, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make_folds(pairs, number, seed=0)
