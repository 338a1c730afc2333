"""The shipped operation pairs have the properties that their README promises."""

import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from finetune.operation_pairs import make_folds
from localmem.classification import OPERATIONS
from localmem.evaluation.datasets.labelled_pairs import SHIPPED, LabelledPair, count_labels, read_operations

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def pairs() -> tuple[LabelledPair, ...]:
    return read_operations().pairs


def test_there_are_enough_pairs_of_every_label(pairs: tuple[LabelledPair, ...]) -> None:
    counts = count_labels(pairs, OPERATIONS)
    assert len(pairs) >= 400
    assert all(share >= 0.1 * len(pairs) for share in counts.values())


def test_no_pair_comes_twice(pairs: tuple[LabelledPair, ...]) -> None:
    plain = [tuple(re.sub(r"\W+", " ", text.lower()) for text in pair[:2]) for pair in pairs]
    assert [pair for pair, times in Counter(plain).items() if times > 1] == []


def test_equal_sentences_are_always_labelled_pass(pairs: tuple[LabelledPair, ...]) -> None:
    assert [pair for pair in pairs if pair.first == pair.second and pair.label != "PASS"] == []


def test_sentences_have_the_length_of_memories(pairs: tuple[LabelledPair, ...]) -> None:
    texts = {text for pair in pairs for text in pair[:2]}
    assert [text for text in texts if not 4 <= len(text.split()) <= 25] == []
    assert [text for text in texts if not re.match(r"[A-Z]", text) or not text.endswith(".")] == []


def test_a_sentence_belongs_to_one_group(pairs: tuple[LabelledPair, ...]) -> None:
    """Else a fold could be judged on sentences that were learned from."""
    groups = defaultdict(set)
    for pair in pairs:
        for text in pair[:2]:
            groups[text].add(pair.group)
    assert {text for text, names in groups.items() if len(names) > 1} == set()


def test_groups_are_small_and_of_several_labels(pairs: tuple[LabelledPair, ...]) -> None:
    groups = defaultdict(list)
    for pair in pairs:
        groups[pair.group].append(pair.label)
    assert len(groups) >= 100
    assert {group for group, labels in groups.items() if not 3 <= len(labels) <= 8 or len(set(labels)) < 2} == set()


@pytest.mark.parametrize("seed", [0, 1])
def test_folds_keep_groups_together_and_labels_in_proportion(pairs: tuple[LabelledPair, ...], seed: int) -> None:
    overall = count_labels(pairs, OPERATIONS)
    for train, held_out in make_folds(pairs, 5, seed):
        assert not {pair.group for pair in train} & {pair.group for pair in held_out}
        for label, number in count_labels(held_out, OPERATIONS).items():
            assert number == pytest.approx(overall[label] / 5, rel=0.25)


def test_the_readme_shows_the_output_of_its_code() -> None:
    readme = (SHIPPED.parent / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    assert examples
    for code in examples:
        process = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert process.returncode == 0, process.stderr
        for line in process.stdout.splitlines():
            assert line in readme
