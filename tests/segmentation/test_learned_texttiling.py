"""Learned tiling: what people's cuts teach is found again, and every session is covered."""

import json
import tracemalloc
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from finetune.trainers.segmenter import TextTilingRecipe, train_tiling
from finetune.trainers.training import TrainingJob
from localmem.cli.finetune import finetune
from localmem.errors import BadInput
from localmem.evaluation.datasets.segmented_dialogues import read_segmented_dialogues
from localmem.factory import trained_segmenter
from localmem.segmentation.texttiling import (
    FILE,
    PLAIN,
    LearnedTextTiling,
    TilingModel,
    _neighbour_cosines,
    gap_features,
)
from localmem.types import Session
from localmem.weights import Manifest
from tests.fakes import WordEncoder, session
from tests.finetune.small import small_encoder

CATS = "user: my cat sleeps[NEWLINE]agent: the cat purrs[NEWLINE]user: a cat wants food"
CARS = "user: the car broke down?[NEWLINE]agent: a car is dear[NEWLINE]user: my car is red"
FLAT = TilingModel(weights=(0.0,) * PLAIN, bias=0.0, threshold=0.6)


def dialogues(folder: Path, number: int = 30) -> Path:
    path = folder / "dialogues.jsonl"
    mark = "[NEWLINE][BOUNDARY][NEWLINE]"
    kinds = cycle([[CATS, CARS], [CATS, CARS, CATS], [CARS, CATS, CARS, CATS]])
    lines = [{"id": f"d{at}", "dialogue": mark.join(parts)} for at, parts in zip(range(number), kinds, strict=False)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = f"{CATS} {CARS}".replace("[NEWLINE]", " ").replace("?", "").split()
    return small_encoder(tmp_path_factory.mktemp("base"), words)


def job(base: Path, path: Path, out: Path) -> TrainingJob[TextTilingRecipe]:
    return TrainingJob(TextTilingRecipe(base=str(base), train=(path,)), out, notify=lambda _: None)


def test_what_people_cut_is_learned(base: Path, tmp_path: Path) -> None:
    path = dialogues(tmp_path)
    trained = train_tiling(job(base, path, tmp_path / "run"))
    assert trained.measures["score"] > 0.9
    marked = read_segmented_dialogues(path)[:3]
    segments = trained_segmenter(str(tmp_path / "run"), "cpu").segment(
        [marked[0].session, session("hello", name="b"), Session("c"), marked[1].session]
    )
    assert segments == [list(marked[0].segments), [range(1)], [], list(marked[1].segments)]
    report = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert report["dialogues"] == 30
    assert len(report["data"]["dialogues.jsonl"]) == 64
    assert "| score |" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


def test_the_command_registers_what_it_trained(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMEM_MODELS", str(tmp_path / "models"))
    path = dialogues(tmp_path)
    arguments = ["texttiling", "--base", base, "--train", path, "--valid", path, "--out", tmp_path / "run"]
    result = CliRunner().invoke(finetune, [*map(str, arguments), "--name", "light", "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["measures"]["score"] > 0.9
    assert Manifest.load(tmp_path / "models").models["light"].role == "classifier"


def test_a_gap_has_its_own_features_its_neighbours_and_two_vectors() -> None:
    encoder = WordEncoder()
    talk = session("my cat", "purrs", "the cat", "sleeps", "a car?", "is red", "car", "car")
    (features, nothing) = gap_features(encoder, [talk, Session("none")])
    assert nothing is None
    assert features is not None
    rows = encoder.encode(["x"], "passage")
    assert features.shape == (3, PLAIN + 2 * rows.shape[1])
    own = PLAIN // 3
    np.testing.assert_array_equal(features[0, own : 2 * own], 0)  # before the first gap there is none
    np.testing.assert_array_equal(features[1, own : 2 * own], features[0, :own])
    np.testing.assert_array_equal(features[1, 2 * own : PLAIN], features[2, :own])


def test_the_cosines_near_a_gap_take_no_memory_for_all_pairs() -> None:
    tracemalloc.start()
    encoder = WordEncoder()
    encoder.encode = lambda texts, side: np.resize(np.eye(7, 4, dtype=np.float32) + 0.5, (len(texts), 4))  # type: ignore[method-assign]
    (features,) = gap_features(encoder, [session(*["a cat"] * 6_000)])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert features is not None
    assert len(features) == 2_999
    assert peak < 40e6  # 72 MB are the cosines of all pairs


def test_the_cosines_near_a_gap_are_those_of_single_exchanges() -> None:
    rows = np.random.default_rng(0).normal(size=(7, 5))
    all_pairs = rows @ rows.T
    backward, forward, past_left, past_right, within_right, within_left = _neighbour_cosines(rows)
    assert backward[3] == pytest.approx(max(all_pairs[1, 4], all_pairs[2, 4], all_pairs[3, 4]))
    assert forward[3] == pytest.approx(max(all_pairs[3, 4], all_pairs[3, 5], all_pairs[3, 6]))
    assert forward[5] == pytest.approx(all_pairs[5, 6])
    assert [past_left[0], past_left[3]] == pytest.approx([0, all_pairs[2, 4]])
    assert [past_right[3], past_right[5]] == pytest.approx([all_pairs[3, 5], 0])
    assert [within_right[3], within_right[5]] == pytest.approx([all_pairs[4, 5], 0])
    assert [within_left[0], within_left[3]] == pytest.approx([0, all_pairs[2, 3]])


def test_a_folder_that_does_not_fit_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="use the encoder it was trained with"):
        LearnedTextTiling(WordEncoder(), FLAT).segment([session("a", "b", "c", "d")])
    (tmp_path / FILE).write_text("{}", encoding="utf-8")
    with pytest.raises(BadInput, match="train the segmenter again"):
        TilingModel.load(tmp_path)


def test_dialogues_without_a_boundary_teach_nothing(base: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.jsonl"
    plain.write_text(json.dumps({"id": "a", "dialogue": CATS}) + "\n", encoding="utf-8")
    with pytest.raises(BadInput, match="no boundary in the training dialogues"):
        train_tiling(job(base, plain, tmp_path / "run"))
    with pytest.raises(BadInput, match=r"too few dialogues \(1\)"):
        train_tiling(job(base, dialogues(tmp_path, number=1), tmp_path / "run"))
    assert not (tmp_path / "run").exists()
