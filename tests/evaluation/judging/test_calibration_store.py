"""Calibrations are kept by judge, prompt and model, and found again by the same."""

import dataclasses
from pathlib import Path

import pytest

from localmem.config import Settings, load_settings
from localmem.errors import BadInput
from localmem.evaluation.judging import (
    JUDGES,
    Calibration,
    Model,
    Verdict,
    calibrated,
    calibration_of,
    calibration_store,
    model_of,
)
from localmem.evaluation.judging.calibration import Label, Labelled
from localmem.evaluation.judging.calibration_store import FILE, keep, nli_model
from localmem.prompts import load

JUDGE = JUDGES["entailment"]
MODEL = Model("small", "a" * 64)
LABELLED = Labelled(
    "by hand", "b" * 64, tuple(Label(item={"past": "p", "answer": "a"}, label=one) for one in ("entail", "neutral"))
)


def figures() -> Calibration:
    return calibrated(JUDGE, LABELLED, [Verdict(label, {label: 1.0}) for label in ("entail", "neutral")])


def test_what_was_kept_is_found_as_it_was(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert calibration_of(data, JUDGE, MODEL) is None
    keep(data, JUDGE, MODEL, LABELLED, 0, figures())
    assert calibration_of(data, JUDGE, MODEL) == figures()
    assert [path.name for path in data.iterdir()] == [FILE]


def test_another_model_judge_or_number_of_samples_is_uncalibrated(tmp_path: Path) -> None:
    keep(tmp_path, JUDGE, MODEL, LABELLED, 0, figures())
    assert calibration_of(tmp_path, JUDGE, Model("small", "c" * 64)) is None
    assert calibration_of(tmp_path, JUDGE, Model("large", MODEL.checksum)) is None
    assert calibration_of(tmp_path, JUDGE.sampled(3), MODEL) is None
    assert calibration_of(tmp_path, JUDGES["correct"], MODEL) is None


def test_a_changed_prompt_is_uncalibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path, JUDGE, MODEL, LABELLED, 0, figures())
    changed = load(JUDGE.prompt).model_copy(update={"digest": "d" * 64})
    monkeypatch.setattr(calibration_store, "load", lambda _: changed)
    assert calibration_of(tmp_path, JUDGE, MODEL) is None


def test_a_later_calibration_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    keep(tmp_path, JUDGE, MODEL, LABELLED, 0, figures())
    other = dataclasses.replace(figures(), agreement=0.25)
    keep(tmp_path, JUDGE, MODEL, LABELLED, 1, other)
    keep(tmp_path, JUDGE, Model("large", ""), LABELLED, 1, figures())
    assert calibration_of(tmp_path, JUDGE, MODEL) == other
    assert calibration_of(tmp_path, JUDGE, Model("large", "")) == figures()


def test_a_file_of_something_else_is_one_line(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"a": 1}')
    with pytest.raises(BadInput, match="run `localmem eval calibrate` again"):
        calibration_of(tmp_path, JUDGE, MODEL)


def test_the_model_is_the_backbone_with_its_checksum() -> None:
    settings = load_settings()
    model = model_of(settings)
    assert model.name == settings.model
    assert len(model.checksum) == 64


def test_weights_behind_a_url_are_not_seen() -> None:
    assert model_of(Settings(llm={"url": "http://127.0.0.1:1", "served_as": "big"})) == Model("big", "")  # type: ignore[arg-type]  # checked by pydantic


def test_an_adapter_for_judges_makes_another_model(tmp_path: Path) -> None:
    folder = tmp_path / "strict"
    folder.mkdir()
    (folder / "adapter.bin").write_text("weights")
    settings = Settings(llm={"adapters": {"judge": folder}})  # type: ignore[arg-type]  # checked by pydantic
    plain, tuned = model_of(settings), model_of(settings, JUDGE)
    assert tuned.name == f"{plain.name}+strict"
    assert tuned.checksum != plain.checksum
    (folder / "adapter.bin").write_text("others")
    assert model_of(settings, JUDGE).checksum != tuned.checksum


def test_an_nli_model_in_a_folder_has_a_checksum_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_text("weights")
    assert len(nli_model(str(tmp_path)).checksum) == 64
