"""The proof of a student, stage by stage: beside its teacher, its base and two trivial rules, in one run.

One model is open at a time, so that each has the machine to itself; teacher and base are measured once where they are
one model. Prints nothing: notes and progress go to functions that the caller passes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import Field

from finetune.proof import (
    BATCH,
    FEW,
    Cost,
    Criterion,
    Measured,
    estimate_ratio,
    estimate_score,
    list_criteria,
    measure_answers,
    measure_llm,
    measure_rule,
)
from finetune.students import Student, answer_with, find_student, open_student, with_adapters
from finetune.traces.division import conversation_of
from finetune.traces.trace import Trace, read_stage
from finetune.trivial_rules import trivial_rules
from localmem.config import Settings
from localmem.errors import BadInput
from localmem.evaluation.runner import Track
from localmem.experiments import runs
from localmem.experiments.runs import ExperimentRecipe, Notify, Progress, ignore_progress
from localmem.experiments.scenarios import ScenarioRecipe, measure_scenarios
from localmem.llm.adapters import AdapterNotes, read_notes, save_notes
from localmem.reporting.bootstrap import Ratio
from localmem.reporting.provenance import machine, versions
from localmem.reporting.sections import Chapter, Report, Table, read_section, write_pages

Row = dict[str, Any]

TITLE = "Proof of a student"
_EFFECTS = ("right", "false denial", "shown@600")
_EFFECT_HEADS: Mapping[str, str] = {
    "right": "right answers",
    "false denial": "false denials",
    "shown@600": "evidence shown in 600 tokens",
}
_NO_GOLD = "without human answers the score is the agreement with the teacher's answers: imitation, not correctness"


class ProofRecipe(ExperimentRecipe):
    """The options of a proof."""

    limit: int | None = Field(default=None, ge=1)
    """Use only the first N traces of a stage."""
    people: Path | None = None
    """Folder of scenarios; whole systems answer their questions with the base and with the student."""
    people_limit: int | None = Field(default=None, ge=1)
    """Use only the first N people."""


def prove_student(
    collection: Path,
    stages: Sequence[str],
    settings: Settings,
    teacher: str,
    folder: Path,
    recipe: ProofRecipe = ProofRecipe(),  # noqa: B008  # immutable
    *,
    out: Path,
    force: bool = False,
    command: str = "",
    notify: Notify = lambda _: None,
    progress: Progress = ignore_progress,
) -> Report:
    """Measure the student in `folder`, its base (`settings.model`) and its teacher on a collection's test traces.

    Writes report.html, report.md and report.json into `out`. A student that fails is refused wherever it is named,
    unless `force`; `figures["passed"]` says whether it passed. On fewer traces than show anything it is None, and an
    earlier verdict stays. Raises BadInput, and BadSettings where whole systems are to be measured on an unknown prompt.
    """
    student = find_student(folder)
    traces = [trace for stage in stages for trace in read_stage(collection, "test", stage)[: recipe.limit]]
    prompts = {trace.metadata.prompt for trace in traces}
    if recipe.people and student.kind == "adapter":  # checked here, before hours of measuring
        runs.system_settings(with_adapters(settings, dict.fromkeys(prompts, student.folder)), settings.system)
    notes = read_notes(folder) or AdapterNotes(base=settings.model)
    if notes.failed:
        save_notes(folder, notes.model_copy(update={"failed": ()}))  # an earlier verdict would keep it from loading
    try:
        proofs = [
            _prove_stage(collection, stage, settings, teacher, student, recipe.limit, notify, progress)
            for stage in stages
        ]
        effects = _measure_effect(settings, student, prompts, recipe, notify, progress) if recipe.people else []
    except BaseException:
        if notes.failed:
            save_notes(folder, notes)
        raise
    failed = (
        *(f"{proof.stage}: {criterion.line()}" for proof in proofs for criterion in proof.failures),
        *find_harm(effects),
    )
    few = list_too_few(proofs, effects)
    verdict = () if force else notes.failed if few else failed
    save_notes(folder, notes.model_copy(update={"failed": verdict}))
    report = _report(student, proofs, effects, failed, few, command, collection)
    report.save(out, TITLE)
    write_pages(out, f"{TITLE}: {student.name}", [Chapter(TITLE, out, (read_section(out),))])
    return report


class StageProof:
    """What was measured on one stage."""

    def __init__(self, stage: str, traces: Sequence[Trace], models: Mapping[str, Measured], rules: Sequence[Measured]):
        self.stage, self.traces, self.models, self.rules = stage, traces, models, rules
        self.criteria = list_criteria(models, rules, traces)

    @property
    def failures(self) -> list[Criterion]:
        """The criteria that the student does not reach."""
        return [criterion for criterion in self.criteria if not criterion.holds]

    @property
    def has_gold(self) -> bool:
        """Whether human answers are compared with."""
        return any(trace.metadata.gold is not None for trace in self.traces)

    @property
    def ratio(self) -> Ratio | None:
        """The student's score over the teacher's, with its interval."""
        return estimate_ratio(self.models["student"], self.models["teacher"], self.traces)

    def rows(self) -> list[Row]:
        """A row for each model and rule."""
        rows = []
        for measured in (*self.models.values(), *self.rules):
            row: Row = {"role": measured.kind, "model or rule": measured.name}
            row["score [95 % interval]"] = estimate_score(measured, self.traces).as_text()
            if measured.kind == "student":
                row["divided by the teacher's"] = _ratio_text(self.ratio)
            row["valid answers"] = measured.valid
            if measured.free is not None:
                row["valid without grammar"] = measured.free
            rows.append(row)
        return rows

    def speed_rows(self) -> list[Row]:
        """The speed and memory of each model that was timed."""
        return [
            {"role": measured.kind, "model": measured.name, **_cost_cells(measured.cost)}
            for measured in self.models.values()
            if measured.cost
        ]


def _cost_cells(cost: Cost) -> Row:
    cells = {
        "answers/s": f"{cost.single:.2f}",
        f"answers/s, {BATCH} at once": f"{cost.batched:.2f}",
        "tokens/s": f"{cost.single_tokens:.1f}",
        f"tokens/s, {BATCH} at once": f"{cost.batched_tokens:.1f}",
        "time to first token, ms": "" if cost.first_token_ms is None else f"{cost.first_token_ms:.0f}",
        "peak memory, MiB": f"{cost.memory_mib:.0f}",
    }
    return {**cells, "peak GPU memory, MiB": f"{cost.gpu_mib:.0f}"} if cost.gpu_mib else cells


def _ratio_text(ratio: Ratio | None) -> str:
    if ratio is None:
        return "unknown: the teacher's is 0"
    if ratio.low is None and ratio.high is None:
        return f"{ratio.ratio:.3f}"
    low, high = ("unbounded" if end is None else f"{end:.3f}" for end in (ratio.low, ratio.high))
    return f"{ratio.ratio:.3f} [{low}, {high}]"


def _prove_stage(
    collection: Path,
    stage: str,
    settings: Settings,
    teacher: str,
    student: Student,
    limit: int | None,
    notify: Notify,
    progress: Progress,
) -> StageProof:
    traces = read_stage(collection, "test", stage)[:limit]
    lessons = read_stage(collection, "train", stage)
    if not (traces and lessons):
        raise BadInput(f"{collection} holds no test or no train trace of {stage!r}; collect from more conversations")
    same = teacher == settings.model
    track = runs.counting(progress, f"proving {stage}", 3 * len(traces) * (2 if same else 3))
    models: dict[str, Measured] = {}
    for kind, own, model in (
        ("student", settings, student),
        ("teacher", settings.model_copy(update={"model": teacher}), Student(teacher, "base")),
        ("base", settings, Student(settings.model, "base")),
    ):
        if kind == "base" and same:
            base = models["teacher"]
            models["base"] = Measured("base", base.name, base.scores, base.valid, base.free, base.cost)
            continue
        notify(f"{stage}: measuring the {kind}, {model.name}")
        models[kind] = _measure(kind, model, stage, traces, own, notify, track)
    rules = [measure_rule(name, rule, stage, traces) for name, rule in trivial_rules(stage, lessons).items()]
    return StageProof(stage, traces, models, rules)


def _measure(
    kind: str,
    model: Student,
    stage: str,
    traces: Sequence[Trace],
    settings: Settings,
    notify: Notify,
    track: Track,
) -> Measured:
    if model.kind == "part":
        answer = answer_with(model.folder, stage, settings.llm.device)
        return measure_answers(kind, model.name, answer, stage, traces, track)
    backbone = open_student(model, traces, settings, notify)
    try:
        return measure_llm(kind, model.name, backbone.llm, stage, traces, track)
    finally:
        backbone.close()


def _measure_effect(
    settings: Settings,
    student: Student,
    prompts: Collection[str],
    recipe: ProofRecipe,
    notify: Notify,
    progress: Progress,
) -> list[Row]:
    """What the systems whose prompts were learned answer to people's questions, with the base and with the student."""
    systems = tuple(sorted({name.partition("/")[0] for name in prompts if "/" in name} - {"agent"})) or (
        settings.system,
    )
    if student.kind != "adapter" or recipe.people is None:
        notify("the effect end to end is that of adapters; use `localmem distill end-to-end` for other students")
        return []
    rows = []
    for name, adapters in (("base", {}), ("student", dict.fromkeys(prompts, student.folder))):
        own = ScenarioRecipe(systems=systems, answers=True, limit=recipe.people_limit)
        report = measure_scenarios(
            with_adapters(settings, adapters), own, recipe.people, notify=notify, progress=progress
        )
        for run in (run for run in report.figures["runs"] if run["wording"] == "question"):
            figures = {key: run["measures"][key]["mean"] for key in _EFFECTS if key in run["measures"]}
            rows.append({"system": run["system"], "with": name, "questions": run["questions"], **figures})
    return rows


def list_too_few(proofs: Sequence[StageProof], effects: Sequence[Row]) -> list[str]:
    """What was measured on so little that it shows nothing: a run of a few traces tries the command out."""
    lines = [f"{proof.stage}: {len(proof.traces)} traces" for proof in proofs if len(proof.traces) < FEW]
    few = {row["system"]: row["questions"] for row in effects if row["questions"] < FEW}
    return lines + [f"end to end with {system}: {questions} questions" for system, questions in few.items()]


def _effect_cells(row: Row) -> Row:
    return {_EFFECT_HEADS.get(name, name): value for name, value in row.items()}


def find_harm(effects: Sequence[Row]) -> list[str]:
    """What whole systems do worse with the student than with its base: right answers, and false denials.

    A student may do well on its own lessons and deny everything else.
    """
    by_system = {row["system"]: row for row in effects if row["with"] == "base"}
    lines = []
    for row in (row for row in effects if row["with"] == "student"):
        base = by_system[row["system"]]
        for name, worse in (("right", row["right"] < base["right"]), ("false denial", _more_denials(row, base))):
            if worse:
                lines.append(f"end to end with {row['system']}: {name} {row[name]:.3g} (base {base[name]:.3g})")
    return lines


def _more_denials(row: Row, base: Row) -> bool:
    return bool(row.get("false denial", 0) > base.get("false denial", 0))


def _report(
    student: Student,
    proofs: Sequence[StageProof],
    effects: Sequence[Row],
    failed: Sequence[str],
    few: Sequence[str],
    command: str,
    collection: Path,
) -> Report:
    verdict = f"SHOWS NOTHING ({'; '.join(few)}; {FEW} are needed)" if few else "FAILED" if failed else "PASSED"
    tables, notes = [], [f"{student.name}: {verdict}", *(f"not reached: {line}" for line in failed)]
    for proof in proofs:
        criteria = [
            {
                "criterion": criterion.name,
                "needed": criterion.requirement,
                "measured": "unknown" if criterion.value is None else criterion.value,
                "reached": "yes" if criterion.holds else "no",
            }
            for criterion in proof.criteria
        ]
        conversations = len({conversation_of(trace) for trace in proof.traces})
        tables += [
            Table.of(f"{proof.stage}: {len(proof.traces)} test traces (conversations: {conversations})", proof.rows()),
            Table.of(f"{proof.stage}: speed and memory", proof.speed_rows()),
            Table.of(f"{proof.stage}: what the student must reach", criteria),
        ]
        notes += [] if proof.has_gold else [f"{proof.stage}: {_NO_GOLD}"]
    if effects:
        tables.append(Table.of("whole systems with the base and with the student", list(map(_effect_cells, effects))))
    notes += ["95 % intervals, bootstrapped over conversations", f"command: {command}"]
    figures = {
        "student": student.name,
        "passed": None if few else not failed,
        "too few": list(few),
        "failed": list(failed),
        "stages": {
            proof.stage: {
                "ratio": (ratio := proof.ratio) and ratio._asdict(),
                "models": [asdict(measured) for measured in (*proof.models.values(), *proof.rules)],
                "criteria": [{**asdict(criterion), "passed": criterion.holds} for criterion in proof.criteria],
            }
            for proof in proofs
        },
        "end to end": list(effects),
        "machine": machine(collection),
        "versions": versions(),
    }
    return Report(figures, tuple(tables), tuple(notes))
