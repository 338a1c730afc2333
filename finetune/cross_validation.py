"""Dividing labelled pairs into parts to learn from and parts to judge by: by group, stratified by label, by seed.

Knows nothing of what the labels mean.
"""

from collections.abc import Sequence
from typing import NamedTuple

from finetune.pairs import LabelledPair
from localmem.errors import BadInput, MissingExtra


class Fold(NamedTuple):
    """What to learn from and what is kept back, each in the order of the data; no group is on both sides."""

    train: list[LabelledPair]
    held_out: list[LabelledPair]


def folds(pairs: Sequence[LabelledPair], number: int, seed: int) -> list[Fold]:
    """For cross-validation: every pair is held out once, and each part has about the whole's share of each label.

    Raises BadInput where a label occurs in fewer than `number` groups, so that some part would go without.
    """
    _check(pairs, number)
    try:
        from sklearn.model_selection import StratifiedGroupKFold
    except ImportError as error:
        raise MissingExtra("folds need scikit-learn; run `pip install 'localmem[train]'`") from error
    splitter = StratifiedGroupKFold(number, shuffle=True, random_state=seed)
    labels, groups = [pair.label for pair in pairs], [pair.group for pair in pairs]
    return [
        Fold([pairs[index] for index in train], [pairs[index] for index in held_out])
        for train, held_out in splitter.split(pairs, labels, groups)
    ]


def split(pairs: Sequence[LabelledPair], share: float, seed: int) -> Fold:
    """About `share` of the pairs is held out: the first of 1/share folds. Raises BadInput as `folds` does."""
    if not 0 < share <= 0.5:
        raise BadInput(f"the share to hold out is {share}; give more than 0 and at most 0.5")
    return folds(pairs, round(1 / share), seed)[0]


def _check(pairs: Sequence[LabelledPair], number: int) -> None:
    if number < 2:
        raise BadInput(f"{number} folds cannot be made; give 2 or more")
    if not pairs:
        raise BadInput("there are no pairs to divide; give a file that holds some")
    groups: dict[str, set[str]] = {}
    for pair in pairs:
        groups.setdefault(pair.label, set()).add(pair.group)
    label = min(groups, key=lambda name: len(groups[name]))
    if len(groups[label]) < number:
        raise BadInput(
            f"{label} occurs in {len(groups[label])} groups, too few for {number} parts; give fewer parts or more data"
        )
