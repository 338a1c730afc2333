"""`localmem eval operations`: classifiers of operations against labelled pairs. Knows how the figures look."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.options import config_option, json_option, note, print_json, settings_of

if TYPE_CHECKING:
    from localmem.config import Settings
    from localmem.evaluation.datasets.labelled_pairs import LabelledPair
    from localmem.experiments.operation_evaluation import SessionEnd
    from localmem.reporting.sections import Table
    from localmem.text.base import PairClassifier

Row = dict[str, object]

LLM = "llm"  # the name under which the backbone is one of the classifiers


@click.command()
@click.option(
    "--model",
    "models",
    multiple=True,
    required=True,
    help="Trained classifiers by name or folder, or llm for the backbone; commas between them, or given again.",
    metavar="NAME[,NAME…]",
)
@click.option(
    "--data", type=click.Path(path_type=Path), help="Operation pairs, JSONL; default: the shipped ones.", metavar="FILE"
)
@click.option("--limit", type=click.IntRange(1), help="The first so many pairs only.")
@click.option("--memories", type=click.IntRange(2), default=100, show_default=True, help="Of a session's end to time.")
@click.option("--new", type=click.IntRange(1), default=5, show_default=True, help="New sentences of that end.")
@click.option("--shortlist", type=click.IntRange(1), default=10, show_default=True, help="Memories a new sentence.")
@click.option("--sessions", type=click.IntRange(0), default=2, show_default=True, help="Ends to time; 0: none.")
@click.option("--seed", type=int, default=0, show_default=True, help="Draws the sessions' ends.")
@click.option("--out", type=click.Path(path_type=Path), help="Keep the figures here.", metavar="DIR")
@config_option
@json_option
def operations(
    models: tuple[str, ...],
    data: Path | None,
    limit: int | None,
    memories: int,
    new: int,
    shortlist: int,
    sessions: int,
    seed: int,
    out: Path | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """How well classifiers tell operations: accuracy, F1, confusion, set F1, speed, and what a shortlist costs.

    A model that was trained on these very pairs does too well here: `localmem finetune operations --folds` holds pairs
    out.
    """
    from localmem.evaluation.datasets.labelled_pairs import SHIPPED, read_operations
    from localmem.experiments.operation_evaluation import large_session_ends
    from localmem.reporting.pages import terminal
    from localmem.reporting.provenance import versions
    from localmem.reporting.sections import Section, save_report

    path, settings = data or SHIPPED, settings_of(config)
    pairs = read_operations(path).pairs[:limit]
    timed = large_session_ends(pairs, memories, new, seed)[:sessions] if sessions else []
    with ExitStack() as stack:
        rows = [
            _row(name, _classifier(name, settings, stack), pairs, timed, shortlist, settings)
            for given in models
            for name in given.split(",")
        ]
    report: Row = {"data": path.name, "pairs": len(pairs), "models": rows, "versions": versions()}
    tables = _tables(report, rows)
    if out is not None:
        save_report(
            out, Section(f"Operations {out.name}", (f"{path.name}, {len(pairs)} pairs",), tuple(tables)), report
        )
    if as_json:
        print_json(report)
    else:
        click.echo(terminal(tables))


def _classifier(name: str, settings: "Settings", stack: ExitStack) -> "PairClassifier":
    from localmem import factory
    from localmem.classification.llm_classifier import LLMClassifier
    from localmem.factory.parts import pair_classifier

    if name != LLM:
        return pair_classifier(name, settings.retrieval.device)
    backbone = factory.backbone(settings, note)
    stack.callback(backbone.close)
    return LLMClassifier(backbone.llm)


def _row(
    name: str,
    classifier: "PairClassifier",
    pairs: "tuple[LabelledPair, ...]",
    timed: "list[SessionEnd]",
    shortlist: int,
    settings: "Settings",
) -> Row:
    from localmem.experiments.operation_evaluation import (
        classify_pairs,
        measure_session_end_cost,
        score_operations,
    )
    from localmem.factory.parts import bare_encoder

    note(f"{name}: {len(pairs)} pairs")
    said, speed = classify_pairs(classifier, pairs)
    verdict = score_operations(pairs, said)
    row: Row = {
        "model": name,
        "accuracy": verdict.accuracy,
        "macro_f1": verdict.macro_f1,
        "set_f1": verdict.set_f1,
        "pairs_per_second": speed,
        "f1": verdict.f1,
        "confusion": verdict.confusion,
    }
    if timed:
        note(f"{name}: {len(timed)} sessions' ends of {len(timed[0].pairs())} pairs, together and one by one")
        found = measure_session_end_cost(classifier, bare_encoder(settings), timed, shortlist)
        row["session_end"] = {
            "pairs": found.pairs,
            "shortlisted_pairs": found.short_pairs,
            "together_seconds": found.together_seconds,
            "one_by_one_seconds": found.one_by_one_seconds,
            "shortlist_seconds": found.short_seconds,
            "batch_gain": found.batch_gain,
            "shortlist_gain": found.short_gain,
            "set_f1": found.set_f1,
            "shortlist_set_f1": found.short_set_f1,
            "shortlist_loss_points": found.loss,
        }
    return row


def _tables(report: Row, rows: list[Row]) -> "list[Table]":
    from localmem.reporting.sections import Table
    from localmem.text.base import OPERATIONS

    flat = [{key: value for key, value in row.items() if not isinstance(value, list | dict)} for row in rows]
    tables = [Table.of(f"{report['data']}, {report['pairs']} pairs", flat)]
    ends = [{"model": row["model"], **end} for row in rows if isinstance(end := row.get("session_end"), dict)]
    if ends:
        tables.append(Table.of("A session's end", ends))
    for row in rows:
        f1, confusion = row["f1"], row["confusion"]
        if isinstance(f1, dict) and isinstance(confusion, list):
            lines = [
                {"": name, "F1": f1[name], **dict(zip(OPERATIONS, cells, strict=True))}
                for name, cells in zip(OPERATIONS, confusion, strict=True)
            ]
            tables.append(Table.of(f"{row['model']} (rows are the truth)", lines))
    return tables
