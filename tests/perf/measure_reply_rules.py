"""Precision and recall of the rules that score replies, on replies labelled by hand and on gold replies about people.

    python -m tests.perf.measure_reply_rules [FOLDER]   of people; by default finetune/lessons/people

A gold reply of a question that was never answered, or whose answer is to be forgotten, is a denial; every other one is
not. Only people in English count. The rules were extended by what they missed of finetune/lessons/people, so only
people by other authors give a figure.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from tabulate import tabulate

from localmem.evaluation.datasets.scenarios import ABSTENTION, FORGOTTEN
from localmem.evaluation.metrics.replies import abstains, contains_answer
from localmem.files import read_text

ROOT = Path(__file__).parents[2]
LABELS = ROOT / "tests/evaluation/labelled/replies.yaml"
PEOPLE = ROOT / "finetune/lessons/people"


class Measured(NamedTuple):
    """How often a rule that says yes is right, how many of the cases it says yes to, and how many cases there are."""

    precision: float
    recall: float
    positives: int
    negatives: int


def read_labels() -> dict[str, Any]:
    """`denies`, `strangers`, `later` and `answers`, as the file describes them."""
    labels: dict[str, Any] = yaml.safe_load(LABELS.read_text(encoding="utf-8"))
    return labels


def measure_denials(replies: Mapping[bool, Sequence[str]]) -> Measured:
    """The rule for denials, by whether a reply is one."""
    return _measure([(abstains(reply), is_denial) for is_denial, texts in replies.items() for reply in texts])


def measure_answers(rows: Sequence[Mapping[str, Any]]) -> Measured:
    """The rule for answers, on rows of `answer`, `reply` and whether it `says` the answer."""
    return _measure([(contains_answer(row["reply"], [str(row["answer"])]), row["says"]) for row in rows])


def read_gold_replies(folder: Path) -> dict[bool, list[str]]:
    """Gold replies about people, by whether they are denials."""
    replies: dict[bool, list[str]] = {True: [], False: []}
    for path in sorted(folder.glob("*.json")):
        person = yaml.safe_load(read_text(path, "restore it"))
        for probe in person["probes"] if person["language"] == "en" else ():
            replies[probe["type"] in (ABSTENTION, FORGOTTEN)].append(probe["reply"])
    return replies


def _measure(pairs: Sequence[tuple[bool, bool]]) -> Measured:
    both = sum(says and is_so for says, is_so in pairs)
    positives = sum(is_so for _, is_so in pairs)
    return Measured(both / max(1, sum(says for says, _ in pairs)), both / positives, positives, len(pairs) - positives)


def main() -> None:
    """Print the table."""
    labels, folder = read_labels(), Path(sys.argv[1]) if sys.argv[1:] else PEOPLE
    rows = [
        ("denies, labelled", *measure_denials(labels["denies"])),
        ("denies, labelled by another hand", *measure_denials(labels["strangers"])),
        ("denies, labelled after the last change", *measure_denials(labels["later"])),
        ("gives the answer, labelled", *measure_answers(labels["answers"])),
        ("denies, gold replies about people", *measure_denials(read_gold_replies(folder))),
    ]
    print(tabulate(rows, ("rule and replies", *Measured._fields), floatfmt=".3f"))


if __name__ == "__main__":
    main()
