"""Measured calibrations, stored in one file of the data directory, and the identity of the model behind a judge.

A calibration is valid for one judge with its samples, one version of its prompt and one model; any other combination
has not been measured.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from pydantic import TypeAdapter

from localmem.config import Settings
from localmem.evaluation.judging.calibration import Calibration, LabelledSet
from localmem.evaluation.judging.judges import Judge
from localmem.files import read_json, write_json
from localmem.llm.base import route
from localmem.prompts import load
from localmem.weights.folder import file_sums
from localmem.weights.manifest import Manifest

FILE = "calibration.json"


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """The model behind a judge. `checksum` is over its files; "" if a server holds weights that are not here."""

    name: str
    checksum: str


@dataclass(frozen=True, slots=True)
class CalibrationRecord:
    """A calibration and what it is valid for. `labelled` and `labelled_sha256` identify the labelled set."""

    judge: str
    prompt_sha256: str
    samples: int
    temperature: float
    model: ModelIdentity
    labelled: str
    labelled_sha256: str
    seed: int
    figures: Calibration


_RECORDS = TypeAdapter(dict[str, CalibrationRecord])


def model_identity(settings: Settings, judge: Judge | None = None) -> ModelIdentity:
    """The configured backbone, with the adapter that serves the judge's prompt, if there is one."""
    served = settings.llm.url is not None
    name = settings.llm.served_as or settings.model if served else settings.model
    folders = {prompt: str(folder) for prompt, folder in settings.llm.adapters.items()}
    adapter = route(folders, judge.prompt) if judge else None
    entry = Manifest.load().models.get(settings.model)
    checksum = (entry.checksum or "") if entry and not served else ""
    if adapter is None:
        return ModelIdentity(name, checksum)
    folder = Path(adapter)
    return ModelIdentity(f"{name}+{folder.name}", _combine({"base": checksum, **_file_sums(folder)}))


def nli_identity(name: str) -> ModelIdentity:
    """A trained NLI model, by its name in the manifest or its folder."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return ModelIdentity(folder.name, _combine(_file_sums(folder)))
    return ModelIdentity(name, Manifest.load().entry(name).checksum or "")


def find_calibration(data_dir: Path, judge: Judge, model: ModelIdentity) -> Calibration | None:
    """The calibration of this judge on this model with its current prompt; None if there is none."""
    record = _read(data_dir / FILE).get(_key(judge, model))
    return record.figures if record else None


def save_calibration(
    data_dir: Path, judge: Judge, model: ModelIdentity, labelled: LabelledSet, seed: int, figures: Calibration
) -> CalibrationRecord:
    """Store a calibration in the data directory; it replaces an earlier one of the same judge and model."""
    path = data_dir / FILE
    records = _read(path)
    records[_key(judge, model)] = record = CalibrationRecord(
        judge=judge.name,
        prompt_sha256=load(judge.prompt).digest,
        samples=judge.samples,
        temperature=judge.temperature,
        model=model,
        labelled=labelled.name,
        labelled_sha256=labelled.sha256,
        seed=seed,
        figures=figures,
    )
    write_json(path, {key: asdict(entry) for key, entry in records.items()}, "choose another data directory")
    return record


def _key(judge: Judge, model: ModelIdentity) -> str:
    request = json.dumps([judge.name, load(judge.prompt).digest, judge.samples, judge.temperature])
    return f"{judge.name} {model.name}@{model.checksum[:12] or 'unseen'} {sha256(request.encode()).hexdigest()[:12]}"


def _file_sums(folder: Path) -> Mapping[str, str]:
    """The sha256 of every file in a folder of weights."""
    return {name: file.sha256 for name, file in file_sums(folder, folder.name).items()}


def _combine(sums_by_name: Mapping[str, str]) -> str:
    return sha256(json.dumps(sorted(sums_by_name.items())).encode()).hexdigest()


def _read(path: Path) -> dict[str, CalibrationRecord]:
    if not path.is_file():
        return {}
    return read_json(path, _RECORDS, "remove it and run `localmem eval calibrate` again")
