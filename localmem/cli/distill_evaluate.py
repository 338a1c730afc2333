"""`localmem distill evaluate`: students beside their teacher and their base model. Wires up `finetune.grading`."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from localmem.cli.eval_run import progress
from localmem.cli.options import config_option, json_option, note, print_json, settings_of
from localmem.errors import BadInput


@click.command()
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
