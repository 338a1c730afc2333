"""`localmem distill`: a teacher's work on memory is collected, sifted, and learned by small students.

Wires up `finetune`. Training and evaluation stand in files of their own beside this one.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.distill.evaluate import evaluate
from localmem.cli.distill.judge_options import Opinions, judge_options
from localmem.cli.distill.train import train
from localmem.cli.finetune.training_options import base_folder
from localmem.cli.options import DatasetFile, config_option, data_option, json_option, note, print_json, settings_of
from localmem.cli.progress import step_progress
from localmem.errors import BadInput

if TYPE_CHECKING:
    from finetune.traces.collect import Collector
    from finetune.traces.trace import Teacher
    from localmem.config import Settings

TRACES = "traces"


@click.group()
def distill() -> None:
    """Let small students learn a teacher's work, stage by stage."""


@distill.command()
@click.option("--system", "systems", multiple=True, help="May be given again.", metavar="S")
@click.option(
    "--data",
    "sources",
    type=DatasetFile(),
    multiple=True,
    help="A data set and its file; may be given again.",
    metavar="NAME=FILE",
)
@click.option("--teacher", "model", help="The backbone whose work is collected; with --from its name.", metavar="M")
@click.option(
    "--from",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="In place of --system and --data: JSONL of outputs that you have already, of one --stage. May be given again.",
    metavar="FILE",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The collection's folder.", metavar="DIR")
@click.option("--stage", "stages", multiple=True, help="Only these stages; may be given again.", metavar="X")
@click.option("--limit", type=click.IntRange(1), help="The first so many probes of each data set only.")
@click.option("--sessions", type=click.IntRange(1), help="Read the last so many sessions of each episode only.")
@click.option("--half", type=click.Choice(["all", "choose", "report"]), default="choose", show_default=True)
@click.option("--threads", type=click.IntRange(1), default=8, show_default=True, help="Episodes at once.")
@click.option("--resume", is_flag=True, help="Go on with the collection that --out holds; what failed is done again.")
@config_option
@json_option
def collect(
    systems: Sequence[str],
    sources: Sequence[tuple[str, Path]],
    model: str | None,
    files: Sequence[Path],
    out: Path,
    stages: Sequence[str],
    limit: int | None,
    sessions: int | None,
    half: str,
    threads: int,
    resume: bool,
    config: Path | None,
    as_json: bool,
) -> None:
    """Run systems over conversations and keep everything the teacher is asked and answers, a file for each stage.

    The teacher is whatever the settings make of M: in process, a vLLM of its own, or a server at llm.url. What fails
    loses nothing that was collected. With --from nothing is run: chats that you have already, as files for fine-tuning
    hold them, join the collection. `localmem distill sift` then says what can be learned from.
    """
    from finetune.traces.collect import Collector

    if files:
        _take_in(files, systems, sources, stages, model, out, as_json=as_json)
        return
    if not (systems and sources and model):
        raise click.UsageError("give --system, --data and --teacher, or --from FILE with outputs that you have already")
    from localmem.experiments.runs import evaluate as run_systems

    settings = settings_of(config, model=model)
    with Collector(out / TRACES, _teacher(settings), stages) as collector, step_progress() as show:
        run_systems(
            settings, systems=systems, baselines=(), datasets=dict(sources), out=out,
            limit=limit, sessions=sessions, split=None if half == "all" else half,  # type: ignore[arg-type]  # checked by click
            threads=threads, resume=resume, retry_failed=True, wrap=collector.around, notify=note, progress=show,
        )  # fmt: skip
    _tell_collected(collector, out, as_json=as_json)


def _take_in(
    files: Sequence[Path],
    systems: Sequence[str],
    sources: Sequence[tuple[str, Path]],
    stages: Sequence[str],
    teacher: str | None,
    out: Path,
    *,
    as_json: bool,
) -> None:
    """Every line of every file is checked before the first is kept."""
    from finetune.traces.collect import Collector
    from finetune.traces.import_chats import read_given
    from finetune.traces.trace import Teacher

    if systems or sources:
        raise click.UsageError("with --from nothing is run: leave --system and --data away")
    if len(stages) != 1:
        raise click.UsageError(f"the lines of --from are of one stage, and {len(stages)} are given; give one --stage")
    traces = [trace for path in files for trace in read_given(path, stages[0], teacher)]
    with Collector(out / TRACES, Teacher(teacher or "")) as collector:
        for trace in traces:
            collector.add(stages[0], trace)
    _tell_collected(collector, out, as_json=as_json)


def _tell_collected(collector: "Collector", out: Path, *, as_json: bool) -> None:
    if as_json:
        print_json({"out": str(out / TRACES), "collected": dict(collector.counted)})
        return
    for stage, count in sorted(collector.counted.items()):
        click.echo(f"{stage}: {count}")
    note(f"traces are in {out / TRACES}; `localmem distill sift {out}` says what can be learned from")


@distill.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the division by conversation.")
@judge_options
@click.option("--least", type=float, help="With --judge: the score from which an answer is kept.", metavar="N")
@config_option
@data_option
@json_option
def sift(
    folder: Path,
    seed: int,
    judge: str | None,
    by: str,
    least: float | None,
    config: Path | None,
    data: Path | None,
    as_json: bool,
) -> None:
    """Drop what a student should not learn, divide the rest by conversation, and say how much is left of each stage.

    Writes DIR/train, DIR/valid and DIR/test, a file for each stage; the traces themselves stay as they are. A judge is
    asked only about what nothing else speaks against, and never twice about the same.
    """
    from tabulate import tabulate

    from finetune.traces.filtering import sift as sifted
    from finetune.traces.trace import read_traces, write_traces

    if (judge is None) != (least is None):
        raise click.UsageError("--judge and --least go together: who judges, and from which score on an answer is kept")
    files = sorted((folder / TRACES).glob("*.jsonl"))
    if not files:
        raise BadInput(f"{folder} holds no traces; run `localmem distill collect` first")
    rows: list[dict[str, object]] = []
    with ExitStack() as stack:
        opinions = Opinions(settings_of(config, data, model=judge), by, folder, stack) if judge else None
        for path in files:
            traces = read_traces(path)
            against = opinions.against(traces, path.stem, least or 0.0) if opinions else lambda _: None
            found = sifted(traces, path.stem, seed=seed, more=against)
            for part, held in found.parts.items():
                write_traces(folder / part / path.name, held)
            counts: dict[str, object] = {part: len(held) for part, held in found.parts.items()}
            dropped = dict(found.dropped)
            rows.append({"stage": path.stem, **counts, "dropped": sum(dropped.values()), "why": dropped})
        told_by = {"judge": opinions.told(least)} if opinions else {}
    if as_json:
        print_json([{**row, **told_by} for row in rows])
        return
    told = [{**row, "why": ", ".join(f"{why}: {count}" for why, count in dict(row["why"]).items())} for row in rows]  # type: ignore[call-overload]  # a mapping
    click.echo(tabulate(told, headers="keys"))


@distill.command()
@click.argument("adapter", type=click.Path(path_type=Path), metavar="RUN")
@click.option("--student", required=True, help="The student's base model: a name or a folder.", metavar="M")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The merged model.", metavar="DIR")
def merge(adapter: Path, student: str, out: Path) -> None:
    """Base model and adapter as one folder, which vLLM and transformers load; `localmem models import` registers it."""
    from finetune.merge import merge as merged

    merged(adapter, base_folder(student), out)
    note(f"the merged model is in {out}")


distill.add_command(train)
distill.add_command(evaluate)


def _teacher(settings: "Settings") -> "Teacher":
    """The teacher by its name, its weights and its chat template, as far as they are on this machine."""
    from finetune.traces.trace import Teacher
    from localmem.errors import LocalmemError
    from localmem.evaluation.judging import model_identity
    from localmem.llm.tokenizer import ChatTokenizer
    from localmem.weights import model_path

    model = model_identity(settings)
    try:
        template = ChatTokenizer(model_path(settings.model)).template_sha256
    except LocalmemError:
        template = ""
    return Teacher(model.name, model.checksum, template)
