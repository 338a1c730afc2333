"""The table of the field: memory systems × backbones × data sets from one plan, wholly local and resumable.

Each backbone has an ordinary run in a folder of its own, with every answer; the judge is a local model too, and is
calibrated before it judges. Prints nothing: notes and progress go to functions that the caller passes.
"""

from collections import defaultdict
from collections.abc import Sequence
from importlib.resources import files as resource_files
from pathlib import Path
from statistics import median

from pydantic import Field

from localmem.config import Settings
from localmem.evaluation.answers import FIRST, Answer, Read, answers_of, read_answers, read_judgements, reads_of
from localmem.evaluation.file_scoring import ScoringModels, TextRecipe
from localmem.evaluation.judging.calibration import find_calibration, model_identity
from localmem.evaluation.judging.judges import get_judge
from localmem.evaluation.summary import Scores, SystemResult, key, score_answers
from localmem.experiments.judging import calibrate_judges, judge_run
from localmem.experiments.run_sections import read_chapters, run_notes
from localmem.experiments.runs import (
    ANSWERS,
    RUN,
    EvaluationRecipe,
    Notify,
    Progress,
    evaluate,
    ignore_progress,
    read_about,
)
from localmem.files import write_atomic
from localmem.reporting.intervals import estimate
from localmem.reporting.sections import Chapter, Report, Table, read_section, write_pages

TITLE = "Memory systems on local backbones"
PROMPTS = "prompts.md"
_CRITERION = "correct"


class TablePlan(EvaluationRecipe):
    """What the table compares. The fields of a run apply to each run."""

    backbones: tuple[str, ...] = Field(min_length=1)
    """Backbone that answers."""
    datasets: dict[str, str] = Field(min_length=1)
    """File of each data set, relative to the folder of data."""
    judge: str
    """Backbone of the judge of right answers."""


def run_table(
    settings: Settings,
    plan: TablePlan,
    data: Path,
    out: Path,
    *,
    notify: Notify = lambda _: None,
    progress: Progress = ignore_progress,
) -> Report:
    """Run the plan over the files in `data` and write table, pages and prompts to `out`. What exists is not done again.

    Raises BadInput and BadSettings.
    """
    judge = settings.model_copy(update={"model": plan.judge, "data": out})
    if find_calibration(out, get_judge(_CRITERION), model_identity(judge, get_judge(_CRITERION))) is None:
        calibrate_judges(judge, criteria=[_CRITERION], notify=notify, progress=progress)
    datasets = {name: data / file for name, file in plan.datasets.items()}
    folders = [out / backbone for backbone in plan.backbones]
    for backbone, folder in zip(plan.backbones, folders, strict=True):
        own = settings.model_copy(update={"model": backbone})
        resume = (folder / RUN).exists()
        evaluate(own, plan, datasets=datasets, out=folder, resume=resume, notify=notify, progress=progress)
    for folder in folders:
        judge_run(folder, judge, criteria=[_CRITERION], notify=notify)
    report = read_table(folders)
    report.save(out, TITLE)
    write_atomic(out / PROMPTS, _prompts(plan.systems), "choose another --out")
    chapters = [Chapter(TITLE, out, (read_section(out),))]
    write_pages(out, TITLE, [*chapters, *read_chapters(folders, (), ScoringModels(settings, TextRecipe()))])
    return report


def read_table(folders: Sequence[Path]) -> Report:
    """The table of finished runs, one for each backbone. Raises BadInput."""
    rows: list[dict[str, object]] = []
    notes: dict[str, None] = {}
    for folder in folders:
        lines, judgements = read_answers(folder / ANSWERS), read_judgements(folder)
        scores = score_answers(answers_of(lines), judgements)
        groups: defaultdict[tuple[str, str], tuple[list[Read], list[Answer]]] = defaultdict(lambda: ([], []))
        for read in reads_of(lines):
            groups[read.work.dataset, read.work.system][0].append(read)
        for answer in answers_of(lines):
            groups[answer.work.dataset, answer.work.system][1].append(answer)
        backbone = str(read_about(folder)["model"])
        for (dataset, system), (reads, answers) in sorted(groups.items()):
            head = {"data": dataset, "backbone": backbone, "system": system}
            rows.append(head | _row(SystemResult(reads, answers), scores))
        notes |= dict.fromkeys(run_notes(folder, lines, judgements))
    return Report({"rows": rows}, (Table.of("Answers, and what they cost", rows),), tuple(notes))


def _prompts(systems: Sequence[str]) -> str:
    """The text of every prompt of the systems, of the question's and of the judge's."""
    folder = resource_files("localmem.prompts")
    groups = [folder.joinpath(name) for name in dict.fromkeys(system.partition("/")[0] for system in systems)]
    files = [folder.joinpath("evaluation/question.md"), folder.joinpath(f"judge/{_CRITERION}.md")]
    files += [
        file for group in groups if group.is_dir() for file in sorted(group.iterdir(), key=lambda file: file.name)
    ]
    return "\n".join(f"# {file.name}\n\n````text\n{file.read_text('utf-8')}````\n" for file in files)


def _row(result: SystemResult, scores: Scores) -> dict[str, object]:
    """Quality with intervals over conversations, then means for each session read and each answer that did not fail."""
    sessions, answers = max(len(result.reads), 1), max(len(result.successes), 1)
    recall, respond, reading = result.usage("recall"), result.usage("respond"), result.reading
    first = [answer.seconds[FIRST] for answer in result.answers if FIRST in answer.seconds]
    return {
        "answers": len(result.answers),
        "failed": sum(bool(answer.error) for answer in result.answers),
        **{name: _mean(result.answers, scores, name) for name in scores if name.startswith((_CRITERION, "F1"))},
        "prompt tokens": f"{respond.input_tokens / answers:.0f}",
        "calls to recall": f"{recall.calls / answers:.1f}",
        "seconds": f"{result.seconds:.1f}",
        "first token, s": f"{median(first):.1f}" if first else "",
        "calls to read a session": f"{reading.calls / sessions:.1f}",
        "tokens to read": f"{(reading.input_tokens + reading.output_tokens) / sessions:.0f}",
        "seconds to read": f"{sum(read.seconds for read in result.reads) / sessions:.1f}",
    }


def _mean(answers: Sequence[Answer], scores: Scores, measure: str) -> str:
    scored = [key(answer) for answer in answers if key(answer) in scores[measure]]
    values = [scores[measure][name] for name in scored]
    return estimate(values, [name[2] for name in scored]).as_text(digits=2) if values else ""
