"""Calibrations are kept by judge, prompt and model, and found again by the same."""

import dataclasses
from pathlib import Path

import pytest

from localmem.config import Settings, load_settings
from localmem.errors import BadInput
from localmem.evaluation.judging import (
    JUDGES,
    Calibration,
    ModelIdentity,
    Verdict,
    calibrate_judge,
    calibration_store,
    find_calibration,
    model_identity,
)
from localmem.evaluation.judging.calibration import Label, LabelledSet
from localmem.evaluation.judging.calibration_store import FILE, nli_identity, save_calibration
from localmem.prompts import load

JUDGE = JUDGES["entailment"]
MODEL = ModelIdentity("small", "a" * 64)
LABELLED = LabelledSet(
    "by hand", "b" * 64, tuple(Label(item={"past": "p", "answer": "a"}, label=label) for label in ("entail", "neutral"))
)


def figures() -> Calibration:
    return calibrate_judge(JUDGE, LABELLED, [Verdict(label, {label: 1.0}) for label in ("entail", "neutral")])


def test_what_was_kept_is_found_as_it_was(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert find_calibration(data, JUDGE, MODEL) is None
    save_calibration(data, JUDGE, MODEL, LABELLED, 0, figures())
    assert find_calibration(data, JUDGE, MODEL) == figures()
    assert [path.name for path in data.iterdir()] == [FILE]


def test_another_model_judge_or_number_of_samples_is_uncalibrated(tmp_path: Path) -> None:
    save_calibration(tmp_path, JUDGE, MODEL, LABELLED, 0, figures())
    assert find_calibration(tmp_path, JUDGE, ModelIdentity("small", "c" * 64)) is None
    assert find_calibration(tmp_path, JUDGE, ModelIdentity("large", MODEL.checksum)) is None
    assert find_calibration(tmp_path, JUDGE.with_samples(3), MODEL) is None
    assert find_calibration(tmp_path, JUDGES["correct"], MODEL) is None


def test_a_changed_prompt_is_uncalibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_calibration(tmp_path, JUDGE, MODEL, LABELLED, 0, figures())
    changed = load(JUDGE.prompt).model_copy(update={"digest": "d" * 64})
    monkeypatch.setattr(calibration_store, "load", lambda _: changed)
    assert find_calibration(tmp_path, JUDGE, MODEL) is None


def test_a_later_calibration_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    save_calibration(tmp_path, JUDGE, MODEL, LABELLED, 0, figures())
    other = dataclasses.replace(figures(), agreement=0.25)
    save_calibration(tmp_path, JUDGE, MODEL, LABELLED, 1, other)
    save_calibration(tmp_path, JUDGE, ModelIdentity("large", ""), LABELLED, 1, figures())
    assert find_calibration(tmp_path, JUDGE, MODEL) == other
    assert find_calibration(tmp_path, JUDGE, ModelIdentity("large", "")) == figures()


def test_a_file_of_something_else_is_one_line(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"a": 1}')
    with pytest.raises(BadInput, match="run `localmem eval calibrate` again"):
        find_calibration(tmp_path, JUDGE, MODEL)


def test_the_model_is_the_backbone_with_its_checksum() -> None:
    settings = load_settings()
    model = model_identity(settings)
    assert model.name == settings.model
    assert len(model.checksum) == 64


def test_weights_behind_a_url_are_not_seen() -> None:
    assert model_identity(Settings(llm={"url": "http://127.0.0.1:1", "served_as": "big"})) == ModelIdentity("big", "")  # type: ignore[arg-type]  # checked by pydantic


def test_an_adapter_for_judges_makes_another_model(tmp_path: Path) -> None:
    folder = tmp_path / "strict"
    folder.mkdir()
    (folder / "adapter.bin").write_text("weights")
    settings = Settings(llm={"adapters": {"judge": folder}})  # type: ignore[arg-type]  # checked by pydantic
    plain, tuned = model_identity(settings), model_identity(settings, JUDGE)
    assert tuned.name == f"{plain.name}+strict"
    assert tuned.checksum != plain.checksum
    (folder / "adapter.bin").write_text("others")
    assert model_identity(settings, JUDGE).checksum != tuned.checksum


def test_an_nli_model_in_a_folder_has_a_checksum_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_text("weights")
    assert len(nli_identity(str(tmp_path)).checksum) == 64
