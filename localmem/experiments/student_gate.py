"""The gate before a student that replies: it is compared with its base model, and refused where it is worse.

Both answer the questions and ordinary requests of people's conversations; with a file of free chat their perplexity is
compared, too. The verdict is written into the student's folder, where the loading of adapters reads it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from finetune.proof import FEW
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
    """The measures of base and student by name, the names of those that are worse, and the number of questions."""

    base: Mapping[str, float]
    student: Mapping[str, float]
    worse: tuple[str, ...]
    questions: int

    @property
    def shows_nothing(self) -> bool:
        """Whether so few questions were put that nothing follows from their answers."""
        return self.questions < FEW

    def line(self, student: str, base: str) -> str:
        """The verdict in one line."""
        if self.shows_nothing:
            return f"{student}: {self.questions} questions show nothing ({FEW} are needed); nothing is recorded"
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
    With `force` it may be loaded whatever was found; without it an earlier verdict stays where too few questions were
    put. Raises BadInput for a folder without an adapter of `distill train`, BadSettings for one of an unknown prompt.
    """
    notes = read_notes(folder) if find_student(folder).kind == "adapter" else None
    if notes is None or not notes.prompts:
        raise BadInput(f"{folder} holds no adapter with notes; give the --out of `localmem distill train`")
    with_student = system_settings(with_adapters(settings, dict.fromkeys(notes.prompts, folder)), settings.system)
    save_notes(folder, notes.model_copy(update={"worse": ()}))  # an earlier verdict would keep it from loading
    measured: list[dict[str, float]] = []
    questions = 0
    try:
        for own in (with_adapters(settings, {}), with_student):
            recipe = ScenarioRecipe(answers=True, limit=limit)
            report = measure_scenarios(own, recipe, people, notify=notify, progress=progress)
            run = report.figures["runs"][0]  # of the questions and requests; paraphrases come second
            figures, questions = run["measures"], run["questions"]
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
    verdict = GateReport(base, student, find_worse(base, student), questions)
    worse = () if force else notes.worse if verdict.shows_nothing else verdict.worse
    save_notes(folder, notes.model_copy(update={"worse": worse}))
    return verdict


def find_worse(base: Mapping[str, float], student: Mapping[str, float]) -> tuple[str, ...]:
    """The measures at which the student is worse: fewer right answers, or more of anything else."""
    return tuple(
        name for name, value in student.items() if (value < base[name] if name == _ANSWERED else value > base[name])
    )
