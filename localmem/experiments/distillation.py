"""Distillation, step by step: collect a teacher's outputs, filter them, and train a student on them.

Prints nothing: notes and progress go to functions that the caller passes.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from finetune import students
from finetune.traces.answer_scores import StoredScores
from finetune.traces.chat_import import import_chats
from finetune.traces.collector import Collector, Samples
from finetune.traces.division import PART_NAMES, PARTS, Part, conversation_of, describe_division, divide
from finetune.traces.filtering import FilteredTraces, filter_traces, pair_samples
from finetune.traces.trace import Teacher, Trace, check_stage, read_traces, write_traces
from finetune.trainers import lora
from finetune.trainers.training import TrainingJob, TrainingResult, update_recipe
from localmem.config import Settings
from localmem.errors import BadInput, LocalmemError
from localmem.evaluation.answers import Work
from localmem.evaluation.episodes import Episode
from localmem.evaluation.judging.calibration import model_identity
from localmem.evaluation.runner import Enter
from localmem.experiments import runs
from localmem.experiments.lesson_sources import read_sources
from localmem.experiments.ray_runs import RayRun
from localmem.experiments.runs import ExperimentRecipe, Notify, Progress, Split, counting, ignore_progress
from localmem.experiments.student_comparison import calibration_line, open_judge
from localmem.llm.tokenizer import ChatTokenizer
from localmem.weights import model_path

TRACES, PAIRS = "traces", "pairs"
ALL_STAGES = "all"
_ADAPTER_FIELDS = {"start", "rank", "dora", "four_bit", "row_tokens", "distribution_weight", "alpha", "method"}


class CollectionRecipe(ExperimentRecipe):
    """What `localmem distill collect` runs and keeps."""

    systems: tuple[str, ...] = Field(min_length=1)
    """Memory system to run, or SYSTEM/VARIANT."""
    stages: tuple[str, ...] = ()
    """Stage to keep; default: all."""
    split: Split | None = "choose"
    """Half of a data set with questions: choose or report; null for both."""
    limit: int | None = Field(default=None, ge=1)
    """Ask and reply only N times per data set."""
    samples: int = Field(default=1, ge=1)
    """Answers to take to each prompt; `distill sift` keeps the best."""
    temperature: float = Field(default=0.8, gt=0, le=2)
    """Temperature of the further answers."""
    sessions: int | None = Field(default=None, ge=1)
    """Use only the last N sessions of each episode."""
    threads: int = Field(default=8, ge=1)
    """Episodes to run in parallel."""
    ray: str | None = None
    """Address of a Ray cluster to run on (host:port, auto, or local); by default threads of this process."""


def collect_traces(
    settings: Settings,
    recipe: CollectionRecipe,
    datasets: Mapping[str, Path],
    out: Path,
    *,
    from_store: bool = False,
    resume: bool = False,
    notify: Notify = lambda _: None,
    progress: Progress = ignore_progress,
) -> dict[str, int]:
    """Run systems on the teacher (`settings.model`) and write everything it is asked and answers into `out`.

    The teacher also replies at every reply of the conversations, which come from `datasets` and, with `from_store`,
    from the memory of the settings. Returns the number of traces by stage. A failure loses nothing that was collected;
    `resume` continues and retries.
    """
    for stage in recipe.stages:
        check_stage(stage)
    selection = recipe.model_dump(include={"split", "limit", "sessions", "samples", "temperature"})
    selection["stages"] = sorted(set(recipe.stages)) or None  # null for all, as where an earlier version recorded none
    sources = read_sources(
        settings, datasets, from_store=from_store, half=recipe.split, sessions=recipe.sessions, limit=recipe.limit,
        notify=notify,
    )  # fmt: skip
    settings = students.asks_backbone(settings)
    systems = {name: runs.system_settings(settings, name) for name in dict.fromkeys(recipe.systems)}
    runs.claim_run(out, runs.describe_run(settings, systems, sources, selection), resume=resume)
    samples = Samples(recipe.samples, recipe.temperature)
    with ExitStack() as stack:
        teacher = describe_teacher(settings)
        collector = stack.enter_context(Collector(out / TRACES, teacher, recipe.stages, samples))
        if recipe.ray:
            open_notes = partial(_TraceNotes, teacher, recipe.stages, samples)
            run = RayRun(recipe.ray, settings, systems, open_notes)
            run.answer(sources, out, retry_failed=True, progress=progress, keep=lambda note: collector.add(*note))
            return dict(collector.counts)
        llm, new_agent = runs.open_agents(settings, systems, stack, notify)
        runs.answer_probes(
            systems, sources, new_agent, llm, out, threads=recipe.threads, retry_failed=True, wrap=collector.wrap,
            enter=_entering(collector), progress=progress,
        )  # fmt: skip
    return dict(collector.counts)


def _entering(collector: Collector) -> Enter:
    """A function that tells the collector where the work is, and the human answers to the questions there."""

    def enter(work: Work, episode: Episode, session: str, time: datetime) -> None:
        answers = {probe.question: probe.answer for probe in episode.probes if probe.kind == "question"}
        collector.enter(work, session, time, answers)

    return enter


class _TraceNotes(Collector):
    """Collects in memory, in a process of a Ray cluster: the traces with their stages."""

    def __init__(self, teacher: Teacher, stages: Sequence[str], samples: Samples) -> None:
        super().__init__(Path(), teacher, stages, samples)
        self._traces: list[tuple[str, Trace]] = []
        self.enter_episode = _entering(self)

    def add(self, stage: str, trace: Trace) -> None:
        self._traces.append((stage, trace))

    def take(self) -> list[tuple[str, Trace]]:
        """The traces since the last call, each with its stage."""
        traces, self._traces = self._traces, []
        return traces


def import_traces(files: Sequence[Path], stage: str, teacher: str | None, out: Path) -> dict[str, int]:
    """Add chats in JSONL to a collection as traces of a stage. Checks every line of every file before writing any."""
    traces = [trace for path in files for trace in import_chats(path, stage, teacher)]
    with Collector(out / TRACES, Teacher(teacher or "")) as collector:
        for trace in traces:
            collector.add(stage, trace)
    return dict(collector.counts)


def describe_teacher(settings: Settings) -> Teacher:
    """The teacher's name and the checksums of its weights and chat template, if they are on this machine."""
    model = model_identity(settings)
    try:
        template = ChatTokenizer(model_path(settings.model)).template_sha256
    except LocalmemError:
        template = ""
    return Teacher(model.name, model.checksum, template, runs.describe_adapters(settings))


def filter_collection(
    folder: Path,
    settings: Settings,
    *,
    seed: int = 0,
    criterion: str | None = None,
    minimum: float = 0.0,
    notify: Notify = lambda _: None,
    progress: Progress = ignore_progress,
) -> list[dict[str, Any]]:
    """Filter every stage of a collection and divide it into train, valid and test; return a row for each stage.

    With a `criterion`, a judge on `settings.model` scores the traces that pass all other checks, each once, and those
    below `minimum` are dropped. Raises BadInput if no trace of any stage remains; the files are then as before.
    """
    files = sorted((folder / TRACES).glob("*.jsonl"))
    if not files:
        raise BadInput(f"{folder} holds no traces; run `localmem distill collect` first")
    collected = {path.stem: read_traces(path) for path in files}
    every = [trace for traces in collected.values() for trace in traces]
    for line in describe_division(_count_sessions(every)):
        notify(line)
    part_of = divide(every, seed)
    stages: dict[str, tuple[FilteredTraces, list[Trace]]] = {}
    with ExitStack() as stack:
        judge = open_judge(settings, criterion, stack, notify) if criterion else None
        scores = StoredScores(judge, folder, minimum) if judge else None
        for stage, traces in collected.items():
            track = counting(progress, f"judging {stage}", len(traces))
            reject = scores.rejection(traces, stage, track) if scores else lambda _: None
            score = scores.score if scores else lambda _: None
            result = filter_traces(traces, stage, part_of=part_of, reject=reject, score=score)
            stages[stage] = result, pair_samples(traces, stage, reject, score)
    if not any(part for result, _ in stages.values() for part in result.parts.values()):
        counts = sum((Counter(result.dropped) for result, _ in stages.values()), Counter[str]())
        reasons = ", ".join(f"{reason}: {count}" for reason, count in counts.items())
        raise BadInput(f"none of {len(every)} traces can be learned from ({reasons}); collect more")
    rows = []
    for stage, (result, pairs) in stages.items():
        _write_stage(folder, stage, result, {part: [pair for pair in pairs if part_of(pair) == part] for part in PARTS})
        rows.append(_describe_stage(stage, result, notify))
    if not judge or not scores:
        return rows
    about = {"judge": judge.judge.name, "model": judge.model, "minimum": minimum, "answers": scores.judged}
    return [{**row, "judge": {**about, "calibration": calibration_line(judge)}} for row in rows]


def _write_stage(folder: Path, stage: str, result: FilteredTraces, pairs: Mapping[Part, Sequence[Trace]]) -> None:
    """Replace the files of a stage; one without a trace has none, so that nothing of a laxer filter is learned."""
    is_empty = not any(result.parts.values())
    for part in PARTS:
        for parent, traces, absent in (
            (folder, result.parts[part], is_empty),
            (folder / PAIRS, pairs[part], not pairs[part]),
        ):
            path = parent / part / f"{stage}.jsonl"
            if absent:
                path.unlink(missing_ok=True)
            else:
                write_traces(path, traces)


def _describe_stage(stage: str, result: FilteredTraces, notify: Notify) -> dict[str, Any]:
    """The row of a stage; what it lacks goes to `notify`."""
    counts: dict[str, int] = {part: len(result.parts[part]) for part in PARTS}
    empty = [part for part in PARTS if not counts[part]]
    reasons = dict(result.dropped)
    if len(empty) == len(PARTS):
        dropped = ", ".join(f"{reason}: {count}" for reason, count in reasons.items())
        notify(f"{stage}: no trace can be learned from ({dropped}); collect more")
    elif empty:
        missing = " and no ".join(PART_NAMES[part] for part in empty)
        notify(f"{stage}: no {missing} traces; collect from more users or sessions, or use another --seed")
    return {"stage": stage, **counts, "dropped": sum(reasons.values()), "reasons": reasons}


def _count_sessions(traces: Sequence[Trace]) -> dict[tuple[str, str], int]:
    sessions: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for trace in traces:
        sessions[conversation_of(trace)].add(trace.metadata.session)
    return {name: len(own) for name, own in sessions.items()}


def train_student(collection: Path, stages: Sequence[str], job: TrainingJob[lora.LoraRecipe]) -> TrainingResult:
    """Train the job's base model on stages of a filtered collection and write the run's folder.

    A chat model gets a LoRA adapter for any stages. An encoder or a T5 learns the stage operation (an encoder also
    segment) as `localmem finetune` trains it, with that trainer's defaults. Raises BadInput.
    """
    selected = select_stages(collection, stages)
    kind = students.model_kind(job.recipe.base)
    if kind == "chat":
        folder = collection / PAIRS if job.recipe.method == "preferences" else collection
        files = {part: tuple(folder / part / f"{stage}.jsonl" for stage in selected) for part in ("train", "valid")}
        return lora.train(job.with_recipe(update_recipe(job.recipe, **files)))
    unsuitable = job.recipe.model_fields_set & _ADAPTER_FIELDS
    if unsuitable:
        raise BadInput(f"an encoder or a T5 has no adapter; omit {', '.join(sorted(unsuitable))}")
    stage = students.single_stage(selected, kind)
    lesson = students.write_lesson(collection, stage)
    if lesson.skipped:
        job.notify(f"{lesson.skipped} traces come from another prompt and are left out")
    return students.train_small_model(job, stage, lesson)


def select_stages(collection: Path, stages: Sequence[str]) -> list[str]:
    """The stages as named, or every stage of the collection for `all`. Raises BadInput."""
    available = sorted(path.stem for path in (collection / "train").glob("*.jsonl"))
    if not available:
        raise BadInput(f"{collection} holds nothing to learn from; run `localmem distill sift {collection}` first")
    selected = available if ALL_STAGES in stages else list(dict.fromkeys(stages))
    if unknown := [stage for stage in selected if stage not in available]:
        raise BadInput(f"{collection / 'train'} has no stage {', '.join(unknown)}; use one of {', '.join(available)}")
    return selected
