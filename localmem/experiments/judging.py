"""Judging the answers of a run, calibrating judges on labelled verdicts, and TeaFarm.

Judges run on a backbone or a trained NLI model. For TeaFarm, counterfactual questions are made from a data set, or put
to memory systems and judged. Prints nothing: notes and progress go to functions that the caller passes.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from localmem.config import Settings
from localmem.errors import BadInput
from localmem.evaluation import DATA
from localmem.evaluation.answers import (
    Answer,
    Ask,
    JudgeSetup,
    answers_of,
    judge_all,
    open_judgements,
    read_answers,
    read_judgements,
)
from localmem.evaluation.datasets import read_dataset, teabag
from localmem.evaluation.episodes import Dataset
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
from localmem.evaluation.judging.judges import JUDGES, RIGHT, Judge, get_judge
from localmem.evaluation.judging.verdicts import ask_judge, infer_verdicts
from localmem.evaluation.teafarm import Farm, split_by_replier, success_rates
from localmem.experiments.runs import (
    ANSWERS,
    FULL_HISTORY,
    RUN,
    ExperimentRecipe,
    Notify,
    Progress,
    answer_probes,
    claim_run,
    counting,
    describe_run,
    ignore_progress,
    open_agents,
    open_backbone,
    system_settings,
)
from localmem.llm.base import LLM


def judge_on_backbone(judge: Judge, settings: Settings, llm: LLM, seed: int = 0) -> JudgeSetup:
    """A judge on the settings' backbone, with its calibration if there is one."""
    setup = _setup(judge, settings, model_identity(settings, judge), partial(ask_judge, llm, judge, seed=seed))
    return replace(setup, seed=seed)


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
    """Judge the answers of the run in `folder` and return the number of new usable verdicts by judge. Raises BadInput.

    Judges that compare two compare each system with `baseline`. Verdicts are stored in the run's folder; those that are
    not usable are asked for again only with another `seed` or number of `samples`.
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
            judgements = judge_all(setup, lines, baseline, log)
            counts[judge.name] = sum(bool(judgement.scores) for judgement in judgements)
            own = [each for each in read_judgements(folder) if (each.judge, each.model) == (judge.name, setup.model)]
            if unusable := sum(not each.scores for each in own):
                again = "ask for those with another --seed, --samples or judge model"
                notify(f"{judge.name}: {unusable} verdicts are not usable; {again}")
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


class TeafarmRecipe(ExperimentRecipe):
    """The options of a TeaFarm run."""

    systems: tuple[str, ...] = Field(min_length=1)
    """Memory system, or SYSTEM/VARIANT."""
    questions: Path | None = None
    """TeaBag file; by default the shipped questions."""
    criterion: str = "correct"
    """Judge question that decides what is right."""
    judge_model: str | None = None
    """Backbone of the judge; by default the one that answers."""
    samples: int | None = Field(default=None, ge=1)
    """Samples per verdict; by default the judge's own number."""
    limit: int | None = Field(default=None, ge=1)
    """Use only the first N questions."""
    threads: int = Field(default=8, ge=1)
    """Questions to answer in parallel."""


def make_questions(
    settings: Settings,
    dataset: tuple[str, Path],
    out: Path,
    *,
    limit: int | None = None,
    sessions: int = 5,
    threads: int = 8,
    notify: Notify = lambda _: None,
    progress: Progress = ignore_progress,
) -> dict[str, Any]:
    """Make a TeaBag file from the first `limit` episodes of a data set (name and file) and return what was made.

    Episodes that `out` already contains are skipped, and the file is written after each one.
    """
    name, path = dataset
    source = read_dataset(name, path)
    episodes = list(teabag.read(out).episodes) if out.exists() else []
    existing = {episode.id for episode in episodes}
    remaining = [episode for episode in source.episodes[:limit] if episode.id not in existing]
    with ExitStack() as stack:
        farm = Farm(open_backbone(settings, stack, notify), sessions=sessions)
        pool = stack.enter_context(ThreadPoolExecutor(threads))  # the backbone batches their requests
        for completed, episode in enumerate(pool.map(farm.make, remaining), start=1):
            if episode is not None:
                episodes.append(episode)
                teabag.write(out, episodes, source=name)
            progress("making", completed, len(remaining))
    return {
        "out": str(out),
        "episodes": len(episodes),
        "existing": len(existing),
        "questions": sum(len(episode.probes) for episode in episodes),
        "counts": dict(farm.counts),
    }


def run_teafarm(
    settings: Settings,
    recipe: TeafarmRecipe,
    out: Path,
    *,
    notify: Notify = lambda _: None,
    progress: Progress = ignore_progress,
) -> dict[str, object]:
    """Put counterfactual questions to memory systems, judge the answers, and return the success rates.

    The agent speaks for the replier, so each question has a memory of its own. What `out` already contains is not done
    again. The success rate is the share of questions that were answered correctly (Theanine, Table 4).
    """
    judge = _correctness_judge(recipe.criterion, recipe.samples)
    by_system = {name: system_settings(settings, name) for name in recipe.systems}
    questions = teabag.read(recipe.questions or DATA / "teafarm.json").select(None, recipe.limit)
    dataset = split_by_replier(questions)
    dataset = replace(dataset, episodes=tuple(episode for episode in dataset.episodes if episode.probes))
    selection = {"split": None, "limit": recipe.limit, "sessions": None, "teafarm": True}
    claim_run(out, describe_run(settings, by_system, [dataset], selection), resume=(out / RUN).exists())
    with ExitStack() as stack:
        llm, new_agent = open_agents(settings, by_system, stack, notify)
        answer_probes(by_system, [dataset], new_agent, llm, out, threads=recipe.threads, progress=progress)
        if recipe.judge_model and recipe.judge_model != settings.model:
            settings = settings.model_copy(update={"model": recipe.judge_model})
            llm = open_backbone(settings, stack, notify)
        return _judge_answers(out, list(by_system), dataset, judge, settings, llm)


def _correctness_judge(name: str, samples: int | None) -> Judge:
    """A judge that distinguishes right from wrong. Raises BadInput."""
    judge = get_judge(name)
    if RIGHT not in judge.scales:
        suitable = [judge.name for judge in JUDGES.values() if RIGHT in judge.scales]
        raise BadInput(f"the judge {name!r} does not decide what is right; use {' or '.join(suitable)}")
    return judge.with_samples(samples) if samples else judge


def _judge_answers(
    out: Path, systems: Sequence[str], dataset: Dataset, judge: Judge, settings: Settings, llm: LLM
) -> dict[str, object]:
    """Judge the answers that have no verdict yet; then the success rate of each system."""
    setup = judge_on_backbone(judge, settings, llm)
    calibration = setup.calibration
    lines = read_answers(out / ANSWERS)
    # A question that ends a chat is "next" for the agent, but a question for the judge.
    judged = [replace(line, kind="question") if isinstance(line, Answer) else line for line in lines]
    with open_judgements(out) as log:
        judge_all(setup, judged, "", log)
    verdicts = [entry for entry in read_judgements(out) if (entry.judge, entry.model) == (judge.name, setup.model)]
    rates = success_rates(systems, answers_of(lines), verdicts)
    return {
        "data": {"sha256": dataset.sha256, "questions": sum(len(episode.probes) for episode in dataset.episodes)},
        "judge": {
            "name": judge.name,
            "model": setup.model,
            "samples": judge.samples,
            "calibration": calibration.line if calibration else None,
            "believable": calibration.believable if calibration else False,
        },
        "systems": [{**asdict(row), "rate": row.rate._asdict()} for row in rates],
    }
