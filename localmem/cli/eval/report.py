"""`localmem eval report`: what evaluations found, as one page and one text. Measures what needs no model."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localmem.cli.eval.text import AskedModels
from localmem.cli.options import config_option, json_option, model_option, note, print_json, settings_of
from localmem.experiments.runs import ANSWERS, BM25, FULL, RUN
from localmem.files import read_json, write_atomic

if TYPE_CHECKING:
    from localmem.evaluation.file_scoring import MetricName, ScoringModels
    from localmem.evaluation.judgements import Judgement
    from localmem.reporting.sections import Section


@click.command()
@click.argument("folders", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="DIR…")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Where report.html and report.md go; default: the first DIR.",
    metavar="DIR",
)
@click.option(
    "--metrics",
    "more",
    type=click.Choice(["bertscore", "mauve"]),
    multiple=True,
    help="Of a run's answers, beside what needs no model; may be given again.",
)
@click.option("--encoder", help="BERTScore's, by name or folder; default: the settings' encoder.")
@config_option
@model_option
@json_option
def report(
    folders: Sequence[Path],
    out: Path | None,
    more: "Sequence[MetricName]",
    encoder: str | None,
    config: Path | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Gather evaluations into one HTML page and one Markdown text: quality, cost, and every answer.

    Each DIR is the --out of `localmem eval run` or of another evaluation. The page needs nothing but itself.
    """
    from dataclasses import asdict

    from localmem.evaluation.file_scoring import ScoringModels
    from localmem.reporting.sections import markdown, page

    asked = AskedModels(settings_of(config, model=model), encoder)
    models = ScoringModels(asked.encoder, asked.backbone)
    sections = [(folder, _section(folder, more, models)) for folder in folders]
    where = out or folders[0]
    told = markdown(sections, where)
    html, text = where / "report.html", where / "report.md"
    write_atomic(html, page(sections), "choose another --out")
    write_atomic(text, told, "choose another --out")
    if as_json:
        print_json([{**asdict(section), "answers": len(section.answers)} for _, section in sections])
    else:
        click.echo(told)
    note(f"{html} and {text}")


def _section(folder: Path, more: "Sequence[MetricName]", models: "ScoringModels") -> "Section":
    """An evaluation's own section; a run's is made anew, for it may have gone on or been judged."""
    from localmem.reporting.sections import read_section

    return _of_run(folder, more, models) if (folder / ANSWERS).exists() else read_section(folder)


def _of_run(folder: Path, more: "Sequence[MetricName]", models: "ScoringModels") -> "Section":
    from localmem.evaluation import corpus_metrics
    from localmem.evaluation.answers import answers_of, read_answers
    from localmem.evaluation.judgements import read_judgements
    from localmem.evaluation.scores import score_answers
    from localmem.evaluation.summary import section

    lines, judgements = read_answers(folder / ANSWERS), read_judgements(folder)
    scores = score_answers(answers_of(lines), judgements)
    notes = [*_notes(folder), *_judges(judgements)]
    found = section(f"Run {folder.name}", notes, lines, scores, folder, against=(FULL, BM25))
    return replace(found, tables=(*found.tables, *corpus_metrics.tables(lines, more, models)))


def _notes(folder: Path) -> list[str]:
    """What a reader must know of a run, first of all whether it is but a part."""
    from pydantic import TypeAdapter

    about = read_json(folder / RUN, TypeAdapter(dict[str, Any]), "give the folder of a run")
    parts = {
        "limit": "only the first {} probes of each data set",
        "sessions": "only the last {} sessions of each episode",
    }
    partial = [f"A PART: {words.format(about[name])}" for name, words in parts.items() if about.get(name)]
    checksum = (about["checksum"] or "unknown")[:12]
    data = ", ".join(f"{name} (sha256 {held['sha256'][:12]})" for name, held in about["data"].items())
    adapters = [f"{prompt} answered through {adapter}" for prompt, adapter in about.get("adapters", {}).items()]
    return [
        *partial,
        f"backbone {about['model']}, weights {checksum}, prompts {about['prompts'][:12]}, half {about['half']}",
        *adapters,
        f"data: {data}",
        f"git {about['versions'].get('git', 'unknown')}",
        *about["notes"],
    ]


def _judges(judgements: "Sequence[Judgement]") -> list[str]:
    """Each judge once, and how far it is to be believed."""
    from localmem.evaluation.scores import MARK

    found = {(one.judge, one.model): one for one in judgements}
    return [
        f"judge {name} on {model}: {one.calibration or 'NOT CALIBRATED'}" + ("" if one.believable else f" ({MARK})")
        for (name, model), one in found.items()
    ]
