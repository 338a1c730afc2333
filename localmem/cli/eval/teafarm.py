"""`localmem eval teafarm`: counterfactual questions, made of any data set, and asked of any memory system.

Wires settings into `localmem.evaluation.teafarm`, the runner and the judges; measures nothing itself.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localmem.cli.eval.judge import bench_of
from localmem.cli.options import config_option, data_option, json_option, model_option, note, print_json, settings_of
from localmem.cli.progress import step_progress
from localmem.errors import BadInput
from localmem.experiments.runs import ANSWERS, answer_probes, claim_run, describe_run, open_agents, system_settings

if TYPE_CHECKING:
    from localmem.config import Settings
    from localmem.evaluation.episodes import Dataset, Episode
    from localmem.evaluation.judging import Judge
    from localmem.evaluation.runner import NewAgent
    from localmem.evaluation.teafarm import Farm
    from localmem.llm.base import LLM

SHIPPED = "configs/eval/teafarm.json"


@click.group()
def teafarm() -> None:
    """TeaFarm: does a memory notice what was never true? Make questions, or ask them."""


@teafarm.command()
@click.option("--data", "name", required=True, help="The data set to make it of.", metavar="NAME")
@click.option("--path", type=click.Path(path_type=Path), required=True, help="Its file, as published.", metavar="FILE")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Where the set goes.", metavar="FILE")
@click.option("--limit", type=click.IntRange(1), help="The first so many episodes only.")
@click.option("--sessions", type=click.IntRange(1), default=5, show_default=True, help="Sessions of an episode.")
@click.option("--threads", type=click.IntRange(1), default=8, show_default=True, help="Episodes at once.")
@config_option
@model_option
@json_option
def make(
    name: str,
    path: Path,
    out: Path,
    limit: int | None,
    sessions: int,
    threads: int,
    config: Path | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Make a TeaBag-style set: of each speaker a question that takes something untrue for true, and what leads to it.

    The backbone writes everything, so a larger --model makes better questions; read some before you rely on them.
    Episodes that FILE holds are not made again.
    """
    from localmem.evaluation.datasets import read_dataset, teabag
    from localmem.evaluation.teafarm import Farm

    data = read_dataset(name, path)
    done = list(teabag.read(out).episodes) if out.exists() else []
    held = {episode.id for episode in done}
    wanted = [episode for episode in data.episodes[:limit] if episode.id not in held]
    with ExitStack() as stack:
        farm = Farm(_backbone(settings_of(config, model=model), stack), sessions=sessions)
        _grow(farm, wanted, done, partial(teabag.write, out, source=name), threads)
    report: dict[str, object] = {
        "out": str(out),
        "episodes": len(done),
        "held_before": len(held),
        "questions": sum(len(episode.probes) for episode in done),
        "counted": dict(farm.counted),
    }
    if as_json:
        print_json(report)
        return
    click.echo(f"{report['questions']} questions about {len(done)} episodes, {len(held)} of them from before, in {out}")
    for what, count in sorted(farm.counted.items()):
        click.echo(f"{what}: {count}")


@teafarm.command(name="run")
@click.option("--systems", required=True, help="Separated by commas; a variant is SYSTEM/VARIANT.", metavar="S,S")
@click.option(
    "--path", type=click.Path(path_type=Path), help="A TeaBag file; default: the shipped set.", metavar="FILE"
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The run's folder.", metavar="DIR")
@click.option("--judge", "judge_name", default="correct", show_default=True, help="Who says what is right.")
@click.option("--judge-model", help="The judge's backbone; default: the one that answers.", metavar="M")
@click.option("--samples", type=click.IntRange(1), help="Answers a verdict; default: the judge's own.", metavar="N")
@click.option("--limit", type=click.IntRange(1), help="The first so many questions only.")
@click.option("--threads", type=click.IntRange(1), default=8, show_default=True, help="Questions at once.")
@config_option
@data_option
@model_option
@json_option
def run_teafarm(
    systems: str,
    path: Path | None,
    out: Path,
    judge_name: str,
    judge_model: str | None,
    samples: int | None,
    limit: int | None,
    threads: int,
    config: Path | None,
    data: Path | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Let systems read five sessions and answer what the sixth leads up to; a judge says who was not fooled.

    The agent speaks for the one who is asked, so each question has a memory of its own. What DIR holds is not done
    again. The success rate is the share of questions that were answered rightly (Theanine, Table 4).
    """
    from localmem.evaluation.datasets import teabag
    from localmem.evaluation.teafarm import sided
    from localmem.resources import resource

    judge = _judge(judge_name, samples)
    settings = settings_of(config, data, model=model)
    chosen = {name: system_settings(settings, name) for name in _names(systems)}
    asked = sided(teabag.read(path or resource(SHIPPED)).select(None, limit))
    asked = replace(asked, episodes=tuple(episode for episode in asked.episodes if episode.probes))
    narrowed = {"split": None, "limit": limit, "sessions": None, "teafarm": True}
    claim_run(out, describe_run(settings, chosen, [asked], narrowed), resume=True)
    with ExitStack() as stack:
        llm, new_agent = open_agents(settings, chosen, stack, note)
        _answer(out, list(chosen), asked, new_agent, llm, threads)
        judging = settings_of(config, data, model=judge_model) if judge_model else settings
        judging_llm = _backbone(judging, stack) if judge_model and judge_model != settings.model else llm
        report = _report(out, list(chosen), asked, judge, judging, judging_llm)
    if as_json:
        print_json(report)
    else:
        _print(report, out)


def _names(systems: str) -> list[str]:
    names = list(dict.fromkeys(filter(None, (name.strip() for name in systems.split(",")))))
    if not names:
        raise BadInput(f"--systems names none ({systems!r}); `localmem systems` lists them")
    return names


def _judge(name: str, samples: int | None) -> "Judge":
    """A judge that tells right from wrong. Raises BadInput."""
    from localmem.evaluation.judging import JUDGES, get_judge
    from localmem.evaluation.judging.judges import RIGHT

    judge = get_judge(name)
    if RIGHT not in judge.scales:
        fitting = [one.name for one in JUDGES.values() if RIGHT in one.scales]
        raise BadInput(f"the judge {name!r} does not say what is right; give {' or '.join(fitting)}")
    return judge.sampled(samples) if samples else judge


def _backbone(settings: "Settings", stack: ExitStack) -> "LLM":
    from localmem import factory

    backbone = factory.backbone(settings, note)
    stack.callback(backbone.close)
    return backbone.llm


def _grow(
    farm: "Farm",
    wanted: "Sequence[Episode]",
    done: "list[Episode]",
    write: "Callable[[list[Episode]], None]",
    threads: int,
) -> None:
    """Makes what is wanted and writes all that is done after each; a bar on a terminal."""
    from concurrent.futures import ThreadPoolExecutor

    from tqdm import tqdm

    with ThreadPoolExecutor(threads) as pool:  # the backbone makes one batch of them
        for made in tqdm(pool.map(farm.make, wanted), total=len(wanted), desc="making", unit="episode", disable=None):
            if made is not None:
                done.append(made)
                write(done)


def _answer(
    out: Path, systems: Sequence[str], asked: "Dataset", new_agent: "NewAgent", llm: "LLM", threads: int
) -> None:
    """Every system answers every question that DIR does not hold yet."""
    with step_progress() as show:
        answer_probes(systems, [asked], new_agent, llm, out, threads=threads, progress=show)


def _report(
    out: Path, systems: Sequence[str], asked: "Dataset", judge: "Judge", judging: "Settings", llm: "LLM"
) -> dict[str, object]:
    """What is not judged yet is; then the success of each system."""
    from localmem.evaluation.answers import Answer, answers_of, read_answers
    from localmem.evaluation.judgements import judge_all, open_judgements, read_judgements
    from localmem.evaluation.teafarm import successes

    bench = bench_of(judge, judging, llm)
    known = bench.calibration
    lines = list(read_answers(out / ANSWERS))
    # A question that ends a chat is none to the agent, but it is to the judge.
    shown = [replace(line, kind="question") if isinstance(line, Answer) else line for line in lines]
    with open_judgements(out) as kept:
        judge_all(bench, shown, "", kept)
    verdicts = [one for one in read_judgements(out) if (one.judge, one.model) == (judge.name, bench.model)]
    return {
        "data": {"sha256": asked.sha256, "questions": sum(len(episode.probes) for episode in asked.episodes)},
        "judge": {
            "name": judge.name,
            "model": bench.model,
            "samples": judge.samples,
            "calibration": known.line if known else None,
            "believable": known.believable if known else False,
        },
        "systems": [
            {**asdict(one), "rate": one.rate._asdict()} for one in successes(systems, answers_of(lines), verdicts)
        ],
    }


def _print(report: "Mapping[str, Any]", out: Path) -> None:
    from tabulate import tabulate

    rows = [
        [
            one["system"],
            f"{one['rate']['mean']:.2f} [{one['rate']['low']:.2f}, {one['rate']['high']:.2f}]",
            *(one[name] for name in ("questions", "abstained", "failed", "unjudged")),
        ]
        for one in report["systems"]
    ]
    click.echo(tabulate(rows, ["system", "success rate", "questions", "abstained", "failed", "unjudged"]))
    judge = report["judge"]
    told = judge["calibration"] or "uncalibrated: run `localmem eval calibrate` for this judge and model"
    click.echo(f"judge {judge['name']} on {judge['model']}: {told}")
    note(f"every answer is in {out / ANSWERS}; look at them with `localmem eval report {out}`")
