"""`localmem distill`: a teacher's work on memory, collected and learned by small students. Wires up `finetune`."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.eval_run import (
    ANSWERS,
    about_run,
    agents_of,
    claim,
    narrowed,
    progress,
    settings_for,
    sources_option,
)
from localmem.cli.options import config_option, json_option, note, print_json, settings_of
from localmem.cli.training import base_folder, command_line, out_option, plan_options, resume_option, tell
from localmem.errors import BadInput

if TYPE_CHECKING:
    from finetune.traces import Teacher
    from finetune.training import Plan
    from localmem.agent import ChatAgent
    from localmem.config import Settings
    from localmem.evaluation.runner import Seat

TRACES = "traces"


@click.group()
def distill() -> None:
    """Let small students learn a teacher's work, stage by stage."""


@distill.command()
@click.option("--system", "systems", multiple=True, required=True, help="May be given again.", metavar="S")
@sources_option
@click.option("--teacher", "model", required=True, help="The backbone whose work is collected.", metavar="M")
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
    model: str,
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
    loses nothing that was collected. `localmem distill sift` then says what can be learned from.
    """
    from finetune.collect import Collector
    from localmem.evaluation.answers import answers_in
    from localmem.evaluation.datasets import read_data
    from localmem.evaluation.runner import probes_of, run

    settings = settings_of(config, model=model)
    chosen = {name: settings_for(config, model, name) for name in systems}
    data = [narrowed(read_data(name, path), half, limit, sessions) for name, path in sources]
    claim(out, about_run(settings, chosen, data, {"half": half, "limit": limit, "sessions": sessions}), resume=resume)
    with ExitStack() as stack:
        answers = stack.enter_context(answers_in(out / ANSWERS))
        collector = stack.enter_context(Collector(out / TRACES, _teacher(settings), stages))
        llm, plain = agents_of(settings, chosen, stack)

        def new_agent(seat: "Seat") -> "ChatAgent":
            return plain(replace(seat, llm=collector.around(seat.llm, seat.work)))

        bar = progress(stack, probes_of(data) * len(systems))
        run(systems, data, new_agent, llm, answers, threads=threads, track=bar, again=True)
    if as_json:
        print_json({"out": str(out / TRACES), "collected": dict(collector.counted)})
        return
    for stage, count in sorted(collector.counted.items()):
        click.echo(f"{stage}: {count}")
    note(f"traces are in {out / TRACES}; `localmem distill sift {out}` says what can be learned from")


@distill.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the division by conversation.")
@json_option
def sift(folder: Path, seed: int, as_json: bool) -> None:
    """Drop what a student should not learn, divide the rest by conversation, and say how much is left of each stage.

    Writes DIR/train, DIR/valid and DIR/test, a file for each stage; the traces themselves stay as they are.
    """
    from tabulate import tabulate

    from finetune.sift import sift as sifted
    from finetune.traces import read_traces, write_traces

    files = sorted((folder / TRACES).glob("*.jsonl"))
    if not files:
        raise BadInput(f"{folder} holds no traces; run `localmem distill collect` first")
    rows: list[dict[str, object]] = []
    for path in files:
        found = sifted(read_traces(path), path.stem, seed=seed)
        for part, traces in found.parts.items():
            write_traces(folder / part / path.name, traces)
        counts: dict[str, object] = {part: len(traces) for part, traces in found.parts.items()}
        rows.append({"stage": path.stem, **counts, "dropped": sum(found.dropped.values()), "why": dict(found.dropped)})
    if as_json:
        print_json(rows)
        return
    told = [{**row, "why": ", ".join(f"{why}: {count}" for why, count in dict(row["why"]).items())} for row in rows]  # type: ignore[call-overload]  # a mapping
    click.echo(tabulate(told, headers="keys"))


@distill.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--stage", "stages", multiple=True, required=True, help="Several share one adapter.", metavar="X")
@click.option("--student", required=True, help="The chat model to start from: a name or a folder.", metavar="M")
@click.option("--rank", type=click.IntRange(1), default=16, show_default=True, help="Of the adapter.")
@click.option("--dora", is_flag=True, help="Learn direction and length of the weights apart.")
@click.option("--pack", type=click.IntRange(64), default=2048, show_default=True, help="Tokens of a row.")
@click.option(
    "--soft",
    type=click.FloatRange(0),
    default=0.5,
    show_default=True,
    help="Weight of the teacher's distribution over choices.",
)
@plan_options(epochs=3.0, batch=1, patience=2, rate=2e-4)
@out_option
@resume_option
@json_option
def train(
    folder: Path,
    stages: Sequence[str],
    student: str,
    rank: int,
    dora: bool,
    pack: int,
    soft: float,
    plan: "Plan",
    out: Path,
    resume: bool,
    as_json: bool,
) -> None:
    """Teach a student what a teacher did in these stages: a LoRA adapter, with its card and curves.

    DIR is a collection that was sifted. Serve the adapter with the setting llm.adapters, under the stage's prompt name.
    """
    from finetune.lora import Job
    from finetune.lora import train as run

    train_files, valid_files = ([folder / part / f"{stage}.jsonl" for stage in stages] for part in ("train", "valid"))
    job = Job(
        base_folder(student),
        train_files,
        valid_files,
        out,
        plan,
        rank=rank,
        dora=dora,
        pack=pack,
        soft=soft,
        command=command_line(),
    )
    tell(run(job, resume=resume, note=note), out, None, as_json=as_json)


@distill.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--stage", required=True, metavar="X")
@click.option("--student", required=True, help="The student's base model, by its name.", metavar="M")
@click.option(
    "--adapter", "adapters", type=click.Path(path_type=Path), multiple=True, help="May be given again.", metavar="RUN"
)
@click.option("--limit", type=click.IntRange(1), help="The first so many traces only.")
@click.option("--out", type=click.Path(path_type=Path), help="Keep the figures here.", metavar="DIR")
@config_option
@json_option
def evaluate(
    folder: Path,
    stage: str,
    student: str,
    adapters: Sequence[Path],
    limit: int | None,
    out: Path | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """Compare a student with its base model on held-out conversations, by what the teacher did there.

    Score: agreement for choices, SeCom's Score for segments, ROUGE-L for texts; with the share of answers of their
    format, how much of an answer stands in what was asked, and time.
    """
    from dataclasses import asdict

    from finetune.grading import grade, prompt_of
    from finetune.traces import read_traces
    from localmem import build
    from localmem.benchmark.machine import versions
    from localmem.evaluation.sections import Section, Table, keep, terminal

    settings = settings_of(config, model=student)
    traces = read_traces(folder / "test" / f"{stage}.jsonl")[:limit]
    if not traces:
        raise BadInput(f"{folder / 'test'} holds no trace of {stage!r}; collect from more conversations")
    rows: list[dict[str, object]] = []
    with ExitStack() as stack:
        bar = progress(stack, len(traces) * (1 + len(adapters)))
        for adapter in (None, *adapters):
            prompts = {prompt_of(trace).name: adapter for trace in traces} if adapter else {}
            held = settings.model_copy(update={"llm": settings.llm.model_copy(update={"adapters": prompts})})
            backbone = build.backbone(held, note)
            try:
                found = grade(backbone.llm, adapter.name if adapter else student, stage, traces, track=bar)
            finally:
                backbone.close()
            rows.append({**asdict(found), "score": found.score.mean, "low": found.score.low, "high": found.score.high})
    report = {"stage": stage, "teacher": traces[0].metadata.teacher, "students": rows, "versions": versions()}
    table = Table.of(f"{stage}: students beside {traces[0].metadata.teacher}", rows)
    if out:
        keep(out, Section(f"Students for {stage}", (f"{len(traces)} held-out traces",), (table,)), report)
    if as_json:
        print_json(report)
    else:
        click.echo(terminal([table]))


@distill.command()
@click.argument("adapter", type=click.Path(path_type=Path), metavar="RUN")
@click.option("--student", required=True, help="The student's base model: a name or a folder.", metavar="M")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The merged model.", metavar="DIR")
def merge(adapter: Path, student: str, out: Path) -> None:
    """Base model and adapter as one folder, which vLLM and transformers load; `localmem models import` registers it."""
    from finetune.merge import merge as merged

    merged(adapter, base_folder(student), out)
    note(f"the merged model is in {out}")


def _teacher(settings: "Settings") -> "Teacher":
    """The teacher by its name, its weights and its chat template, as far as they are on this machine."""
    from finetune.traces import Teacher
    from localmem.errors import LocalmemError
    from localmem.evaluation.judging import model_of
    from localmem.llm.tokenizer import ChatTokenizer
    from localmem.weights import model_path

    model = model_of(settings)
    try:
        template = ChatTokenizer(model_path(settings.model)).template_sha256
    except LocalmemError:
        template = ""
    return Teacher(model.name, model.checksum, template)
