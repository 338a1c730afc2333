"""Division of labelled pairs into training and held-out parts: by group, stratified by label, seeded.

Does not depend on what the labels mean.
"""

from collections.abc import Sequence
from typing import NamedTuple

from localmem.errors import BadInput, MissingExtra
from localmem.evaluation.datasets.labelled_pairs import LabelledPair


class Fold(NamedTuple):
    """Training and held-out pairs, each in data order; no group is on both sides."""

    train: list[LabelledPair]
    held_out: list[LabelledPair]


def make_folds(pairs: Sequence[LabelledPair], count: int, seed: int) -> list[Fold]:
    """Folds for cross-validation: every pair is held out once, and each part has about the same share of each label.

    Raises BadInput if a label occurs in fewer than `count` groups, because some part would have none of it.
    """
    if count < 2:
        raise BadInput(f"cannot make {count} folds; use 2 or more")
    if not pairs:
        raise BadInput("there are no pairs to divide; use a file that holds some")
    by_label: dict[str, set[str]] = {}
    for pair in pairs:
        by_label.setdefault(pair.label, set()).add(pair.group)
    rarest = min(by_label, key=lambda label: len(by_label[label]))
    if (fewest := len(by_label[rarest])) < count:
        raise BadInput(f"{rarest} occurs in {fewest} groups, too few for {count} parts; use fewer parts or more data")
    try:
        from sklearn.model_selection import StratifiedGroupKFold
    except ImportError as error:
        raise MissingExtra("folds need scikit-learn; run `pip install 'localmem[train]'`") from error
    splitter = StratifiedGroupKFold(count, shuffle=True, random_state=seed)
    labels, groups = [pair.label for pair in pairs], [pair.group for pair in pairs]
    return [
        Fold([pairs[index] for index in train], [pairs[index] for index in held_out])
        for train, held_out in splitter.split(pairs, labels, groups)
    ]


def hold_out(pairs: Sequence[LabelledPair], share: float, seed: int) -> Fold:
    """Hold out about `share` of the pairs: the first of 1/share folds. Raises BadInput as `make_folds` does."""
    if not 0 < share <= 0.5:
        raise BadInput(f"the held-out share is {share}; use more than 0 and at most 0.5")
    return make_folds(pairs, round(1 / share), seed)[0]
