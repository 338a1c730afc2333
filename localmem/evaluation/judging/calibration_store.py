"""Calibrations that were measured, kept in one file of the data directory, and whether a verdict's judge has one.

A calibration holds for one judge with its samples, one text of its prompt and one model: any other was not measured.
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
from localmem.weights.folder import sums
from localmem.weights.manifest import Manifest

FILE = "calibration.json"


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """The model behind a judge. `checksum` is over its files; "" where a server holds weights that nobody here sees."""

    name: str
    checksum: str


@dataclass(frozen=True, slots=True)
class CalibrationRecord:
    """A calibration and what it is of. `labelled` and `labelled_sha256` say on which set it was measured."""

    judge: str
    prompt_sha256: str
    samples: int
    temperature: float
    model: ModelIdentity
    labelled: str
    labelled_sha256: str
    seed: int
    figures: Calibration


_KEPT = TypeAdapter(dict[str, CalibrationRecord])


def model_identity(settings: Settings, judge: Judge | None = None) -> ModelIdentity:
    """The backbone that the settings name, with the adapter that a judge's prompt goes through, if one does."""
    served = settings.llm.url is not None
    name = settings.llm.served_as or settings.model if served else settings.model
    folders = {prompt: str(folder) for prompt, folder in settings.llm.adapters.items()}
    adapter = route(folders, judge.prompt) if judge else None
    known = Manifest.load().models.get(settings.model)
    checksum = (known.checksum or "") if known and not served else ""
    if adapter is None:
        return ModelIdentity(name, checksum)
    folder = Path(adapter)
    return ModelIdentity(f"{name}+{folder.name}", _over({"base": checksum, **_sums(folder)}))


def nli_identity(name: str) -> ModelIdentity:
    """A trained NLI model, by its name in the manifest or its folder."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return ModelIdentity(folder.name, _over(_sums(folder)))
    return ModelIdentity(name, Manifest.load().entry(name).checksum or "")


def find_calibration(data: Path, judge: Judge, model: ModelIdentity) -> Calibration | None:
    """What was measured of this judge on this model, with its prompt as it is now. None: verdicts are uncalibrated."""
    held = _read(data / FILE).get(_key(judge, model))
    return held.figures if held else None


def save_calibration(
    data: Path, judge: Judge, model: ModelIdentity, labelled: LabelledSet, seed: int, figures: Calibration
) -> CalibrationRecord:
    """Writes a calibration into the data directory's file, in the place of an earlier one of the same judge."""
    path = data / FILE
    held = _read(path)
    held[_key(judge, model)] = kept = CalibrationRecord(
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
    write_json(path, {key: asdict(entry) for key, entry in held.items()}, "choose another data directory")
    return kept


def _key(judge: Judge, model: ModelIdentity) -> str:
    asked = json.dumps([judge.name, load(judge.prompt).digest, judge.samples, judge.temperature])
    return f"{judge.name} {model.name}@{model.checksum[:12] or 'unseen'} {sha256(asked.encode()).hexdigest()[:12]}"


def _sums(folder: Path) -> Mapping[str, str]:
    """The sha256 of every file in a folder of weights."""
    return {name: file.sha256 for name, file in sums(folder, folder.name).items()}


def _over(sums_by_name: Mapping[str, str]) -> str:
    return sha256(json.dumps(sorted(sums_by_name.items())).encode()).hexdigest()


def _read(path: Path) -> dict[str, CalibrationRecord]:
    if not path.is_file():
        return {}
    return read_json(path, _KEPT, "remove it and run `localmem eval calibrate` again")
