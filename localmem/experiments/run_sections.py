"""The sections of evaluations for a report: the one that each saved, or the current one of a run."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from localmem.evaluation.answers import Judgement, Line, answers_of, read_answers, read_judgements
from localmem.evaluation.corpus_tables import corpus_tables, graded_memory_tables
from localmem.evaluation.file_scoring import RunMetric, ScoringModels
from localmem.evaluation.summary import UNCALIBRATED, score_answers, section
from localmem.experiments.runs import ANSWERS, BASELINES, read_about
from localmem.reporting.sections import Chapter, Section, read_section

_PARTIAL = {
    "limit": "only the first {} questions of each data set",
    "sessions": "only the last {} sessions of each episode",
}


def read_chapters(folders: Sequence[Path], metrics: Sequence[RunMetric], models: ScoringModels) -> list[Chapter]:
    """A chapter for each output folder of an evaluation. Raises BadInput.

    The section of a run is computed again, because it may have been continued or judged; `metrics` are measured in
    addition to those that need no model.
    """
    chapters = []
    for folder in folders:
        is_run = (folder / ANSWERS).exists()
        part = run_section(folder, metrics, models) if is_run else read_section(folder)
        chapters.append(Chapter(part.title, folder, (part,)))
    return chapters


def run_section(folder: Path, metrics: Sequence[RunMetric], models: ScoringModels) -> Section:
    """Quality, differences from the baselines, costs and answers of a run; plots go into its folder."""
    lines, judgements = read_answers(folder / ANSWERS), read_judgements(folder)
    scores = score_answers(answers_of(lines), judgements)
    notes = run_notes(folder, lines, judgements)
    summary = section(f"Run {folder.name}", notes, lines, scores, folder, against=BASELINES)
    corpora = corpus_tables(lines, metrics, models)
    return replace(summary, tables=(*summary.tables, *corpora, *graded_memory_tables(judgements)))


def run_notes(folder: Path, lines: Sequence[Line], judgements: Sequence[Judgement]) -> list[str]:
    """What a reader must know of a run, first whether it is unfinished or partial, and of its judges."""
    about = read_about(folder)
    answers = len(answers_of(lines))
    expected = len(about["systems"]) * sum(entry["probes"] for entry in about["data"].values())
    unfinished = f"UNFINISHED: {answers} of {expected} answers; run its command again, `eval run` with --resume"
    datasets = ", ".join(f"{name} (sha256 {entry['sha256'][:12]})" for name, entry in about["data"].items())
    checksum, split = (about["checksum"] or "unknown")[:12], about.get("split") or "all"
    return [
        *([unfinished] if answers < expected else []),
        *(f"PARTIAL: {text.format(about[name])}" for name, text in _PARTIAL.items() if about.get(name)),
        f"backbone {about['model']}, weights {checksum}, prompts {about['prompts'][:12]}, split {split}",
        *(f"adapter for {prompt}: {adapter}" for prompt, adapter in about.get("adapters", {}).items()),
        f"data: {datasets}",
        f"git {about['versions'].get('git', 'unknown')}",
        *about["notes"],
        *_judge_notes(judgements),
    ]


def _judge_notes(judgements: Sequence[Judgement]) -> list[str]:
    """Each judge once, with its calibration and the number of its verdicts that are not usable."""
    judges = {(judgement.judge, judgement.model): judgement for judgement in judgements}
    unusable = Counter((judgement.judge, judgement.model) for judgement in judgements if not judgement.scores)
    return [
        f"judge {name} on {model}: {judgement.calibration or 'NOT CALIBRATED'}"
        + ("" if judgement.believable else f" ({UNCALIBRATED})")
        + (f"; {unusable[name, model]} verdicts are not usable" if unusable[name, model] else "")
        for (name, model), judgement in judges.items()
    ]
