"""The gate before a student that replies: it is compared with its base model, and refused where it is worse.

Both answer the questions and ordinary requests of people's conversations; with a file of free chat their perplexity is
compared, too. The verdict is written into the student's folder, where the loading of adapters reads it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from finetune.students import find_student, with_adapters
from localmem.config import Settings
from localmem.errors import BadInput
from localmem.evaluation.file_scoring import MetricName, ScoringModels, TextRecipe, read_replies, score_replies
from localmem.experiments.runs import Notify, Progress, ignore_progress, system_settings
from localmem.experiments.scenarios import ScenarioRecipe, measure_scenarios
from localmem.llm.adapters import read_notes, save_notes

_ANSWERED = "right"
_MEASURES = (_ANSWERED, "false denial", "ordinary refused")
_PERPLEXITY: MetricName = "perplexity"


@dataclass(frozen=True, slots=True)
class GateReport:
    """The measures of the base and of the student by name, and the names of those that are worse."""

    base: Mapping[str, float]
    student: Mapping[str, float]
    worse: tuple[str, ...]

    def line(self, student: str, base: str) -> str:
        """The verdict in one line."""
        if not self.worse:
            return f"{student} is nowhere worse than {base}"
        parts = ", ".join(f"{name} {self.student[name]:.3g} (base {self.base[name]:.3g})" for name in self.worse)
        return f"{student} is worse than {base} at {parts}"


def check_student(
    settings: Settings,
    folder: Path,
    people: Path,
    *,
    free_chat: Path | None = None,
    limit: int | None = None,
    force: bool = False,
    notify: Notify = lambda _: None,
    progress: Progress = ignore_progress,
) -> GateReport:
    """Compare the adapter in `folder` with the model of the settings, and write there whether it may be loaded.

    `people` is a folder of scenarios that the student did not learn from, `free_chat` a file of `distill free-chat`.
    With `force` it may be loaded whatever was found. Raises BadInput for a folder without an adapter of `distill
    train`, BadSettings for one that learned no prompt of ours.
    """
    notes = read_notes(folder) if find_student(folder).kind == "adapter" else None
    if notes is None:
        raise BadInput(f"{folder} holds no adapter with notes; give the --out of `localmem distill train`")
    with_student = system_settings(with_adapters(settings, dict.fromkeys(notes.prompts, folder)), settings.system)
    save_notes(folder, notes.model_copy(update={"worse": ()}))  # an earlier verdict would keep it from loading
    measured: list[dict[str, float]] = []
    try:
        for own in (with_adapters(settings, {}), with_student):
            recipe = ScenarioRecipe(answers=True, limit=limit)
            report = measure_scenarios(own, recipe, people, notify=notify, progress=progress)
            figures = report.figures["runs"][0]["measures"]  # of the questions and requests; paraphrases come second
            values = {name: float(figures[name]["mean"]) for name in _MEASURES if name in figures}
            if free_chat:
                adapter = folder if own is with_student else None
                scorers = ScoringModels(own, TextRecipe(adapter=adapter, device=settings.llm.device))
                values |= score_replies(read_replies(free_chat), [_PERPLEXITY], models=scorers).overall
            measured.append(values)
    except BaseException:
        save_notes(folder, notes)
        raise
    base, student = measured
    verdict = GateReport(base, student, find_worse(base, student))
    save_notes(folder, notes.model_copy(update={"worse": () if force else verdict.worse}))
    return verdict


def find_worse(base: Mapping[str, float], student: Mapping[str, float]) -> tuple[str, ...]:
    """The measures at which the student is worse: fewer right answers, or more of anything else."""
    return tuple(
        name for name, value in student.items() if (value < base[name] if name == _ANSWERED else value > base[name])
    )
