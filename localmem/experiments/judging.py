"""Judging the answers of a run, and calibrating judges on labelled verdicts, by a backbone or a trained NLI model.

Prints nothing: notes and progress go to functions that the caller passes.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path

from localmem.config import Settings
from localmem.errors import BadInput
from localmem.evaluation import DATA
from localmem.evaluation.answers import read_answers
from localmem.evaluation.judgements import Ask, JudgeSetup, judge_all, open_judgements
from localmem.evaluation.judging.calibration import (
    CalibrationRecord,
    ModelIdentity,
    calibrate_judge,
    find_calibration,
    model_identity,
    nli_identity,
    read_labelled_set,
    save_calibration,
)
from localmem.evaluation.judging.judges import JUDGES, Judge, get_judge
from localmem.evaluation.judging.verdicts import ask_judge, infer_verdicts
from localmem.experiments.runs import ANSWERS, FULL_HISTORY, Notify, Progress, counting, ignore_progress, open_backbone
from localmem.llm.base import LLM


def judge_on_backbone(judge: Judge, settings: Settings, llm: LLM, seed: int = 0) -> JudgeSetup:
    """A judge on the settings' backbone, with its calibration if there is one."""
    return _setup(judge, settings, model_identity(settings, judge), partial(ask_judge, llm, judge, seed=seed))


def _judge_on_nli(judge: Judge, settings: Settings, name: str) -> JudgeSetup:
    """The entailment judge on a trained NLI model, given by its name in the manifest or its folder."""
    from localmem.factory import pair_model

    ask = partial(infer_verdicts, pair_model(name, settings.llm.device))
    return _setup(judge, settings, nli_identity(name), ask)


def _setup(judge: Judge, settings: Settings, model: ModelIdentity, ask: Ask) -> JudgeSetup:
    figures = find_calibration(settings.data, judge, model)
    return JudgeSetup(judge, f"{model.name}@{model.checksum[:12]}", ask, figures)


def _select_judges(
    criteria: Sequence[str], samples: int | None, nli: str | None, default: Sequence[str]
) -> list[Judge]:
    """The judges by these names, or by `default`; an NLI model is the entailment judge. Raises BadInput."""
    names = list(dict.fromkeys(criteria)) or (["entailment"] if nli else list(default))
    judges = [get_judge(name) for name in names]
    if nli and names != ["entailment"]:
        raise BadInput(f"an NLI model judges entailment only; omit --nli for the criteria {', '.join(names)}")
    if nli and samples:
        raise BadInput("an NLI model always gives the same verdict; omit --samples")
    return [judge.with_samples(samples) for judge in judges] if samples else judges


def judge_run(
    folder: Path,
    settings: Settings,
    *,
    criteria: Sequence[str] = (),
    samples: int | None = None,
    nli: str | None = None,
    baseline: str = FULL_HISTORY,
    seed: int = 0,
    notify: Notify = lambda _: None,
) -> dict[str, int]:
    """Judge the answers of the run in `folder` and return the number of new verdicts by judge. Raises BadInput.

    Judges that compare two compare each system with `baseline`. Verdicts are stored in the run's folder.
    """
    judges = _select_judges(criteria, samples, nli, ["correct"])
    lines = read_answers(folder / ANSWERS)
    counts: dict[str, int] = {}
    with ExitStack() as stack:
        log = stack.enter_context(open_judgements(folder))
        llm = None if nli else open_backbone(settings, stack, notify)
        for judge in judges:
            setup = judge_on_backbone(judge, settings, llm, seed) if llm else _judge_on_nli(judge, settings, str(nli))
            notify(f"{judge.name}: {setup.calibration.line if setup.calibration else 'not calibrated on this model'}")
            counts[judge.name] = judge_all(setup, lines, baseline, log)
    return counts


def calibrate_judges(
    settings: Settings,
    *,
    criteria: Sequence[str] = (),
    labelled: Path | None = None,
    samples: int | None = None,
    nli: str | None = None,
    seed: int = 0,
    notify: Notify = lambda _: None,
    progress: Progress = ignore_progress,
) -> list[CalibrationRecord]:
    """Compare judges (all by default) with labelled verdicts and store the figures in the data directory.

    `labelled` replaces the shipped set of a single judge. Raises BadInput.
    """
    judges = _select_judges(criteria, samples, nli, list(JUDGES))
    if labelled and len(judges) != 1:
        raise BadInput(f"{labelled} has the labels of one judge; give one --criterion")
    sets = [read_labelled_set(labelled or DATA / "calibration" / f"{judge.name}.jsonl", judge) for judge in judges]
    records = []
    with ExitStack() as stack:
        llm = None if nli else open_backbone(settings, stack, notify)
        for judge, items in zip(judges, sets, strict=True):
            if llm:
                track = counting(progress, judge.name, judge.prompts * len(items.lines))
                verdicts = ask_judge(llm, judge, items.items, seed=seed, track=track)
                model = model_identity(settings, judge)
            else:
                verdicts = list(_judge_on_nli(judge, settings, str(nli)).ask(items.items))
                model = nli_identity(str(nli))
            figures = calibrate_judge(judge, items, verdicts, seed=seed)
            records.append(save_calibration(settings.data, judge, model, items, seed, figures))
    return records


def describe_calibration(record: CalibrationRecord) -> Mapping[str, object]:
    """The record as a JSON document, with its conclusion."""
    return asdict(record) | {"believable": record.figures.believable, "line": record.figures.line}
