"""Training the second stage of a reranker: a run over other people, what it saves, and how much it counts."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from finetune.trainers.second_stage import SecondStageRecipe, train, weigh, words_loss
from finetune.trainers.training import TrainingJob
from localmem.errors import BadInput
from localmem.factory import reranker
from tests.finetune.trainers.test_reranker import write_people


def test_a_trained_second_stage_finds_the_evidence_of_other_people(starter_encoder_dir: Path, tmp_path: Path) -> None:
    data = write_people(tmp_path / "people", "a-1", "a-2", "b-1")
    recipe = SecondStageRecipe(
        base=str(starter_encoder_dir), data=(data,), epochs=6, learning_rate=2e-3, rank=4, depth=5, negatives=4
    )
    result = train(TrainingJob(recipe, tmp_path / "run", notify=lambda _: None))
    assert result.measures["mrr"] > 0.8
    report = json.loads((tmp_path / "run" / "run.json").read_text())
    assert report["learned"] > report["checked"] > 0
    texts = [f"User: My {animal} is big.\nAssistant: I see." for animal in ("dog", "goat", "hen")]
    scores = reranker(str(tmp_path / "run"), "cpu").score("What about the goat?", texts)
    assert max(scores) == scores[1]
    words = reranker(str(tmp_path / "run"), "cpu").find_words("What about the goat?", texts[:1])  # type: ignore[attr-defined]
    assert texts[0][words[0][1].start : words[0][1].end] == ":"
    with pytest.raises(BadInput, match="holds a finished run"):
        train(TrainingJob(recipe, tmp_path / "run", notify=lambda _: None))


def test_a_run_without_lessons_is_refused(starter_encoder_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="give --lessons FOLDER"):
        train(TrainingJob(SecondStageRecipe(base=str(starter_encoder_dir)), tmp_path / "run"))


def test_the_loss_of_words_is_of_texts_with_marked_answers_and_lower_for_wrong_texts() -> None:
    shares = torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25], [0.2, 0.4, 0.4]]).log()
    right, wrong, unknown = [False, True, True], [True, False, False], [False, False, False]
    half = -float(np.log(0.5))
    assert words_loss(shares, torch.tensor([right, wrong, unknown])).item() == pytest.approx(1.1 * half)
    assert words_loss(shares, torch.tensor([unknown] * 3)).item() == 0


def test_the_better_of_both_scores_counts_more() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 400)
    sharp, dull = (labels * size + rng.normal(size=400) for size in (3.0, 0.3))
    weights = weigh(sharp.astype(np.float32), dull, labels)
    assert weights["scale"] > 2 * abs(weights["earlier"])
    assert weights["shift"] < 0
