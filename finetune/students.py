"""Students by what they are: the base model, adapters on it, small task models, merged models; opened and graded.

A small task model is an encoder or a T5 that learned a teacher's `operation`, or an encoder that learned its `segment`.
Traces become the formats that their trainers read, and their predictions the answers a chat model would give, so that
all students can be compared. Depends on the inputs that a trace records, not on the text of a prompt.
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import log
from pathlib import Path
from typing import Literal, NamedTuple

from finetune.grading import Answer, Grade, ask_llm, grade, read_segments
from finetune.operation_pairs import Fold
from finetune.traces.trace import Trace, read_traces
from finetune.trainers import operation_classifier, segmenter
from finetune.trainers.pair_trainers import FRESH
from finetune.trainers.training import TrainingJob, TrainingRecipe, TrainingResult, base_folder, update_recipe
from localmem import factory
from localmem.classification import OPERATIONS
from localmem.classification.pair_classifier import config_of, is_t5, labels_of
from localmem.config import Settings
from localmem.errors import BadInput
from localmem.evaluation.datasets.labelled_pairs import read_operations
from localmem.factory import folder_backbone, pair_classifier, pair_model, trained_segmenter
from localmem.files import write_jsonl
from localmem.segmentation.segmenters import segments_json
from localmem.segmentation.texttiling import BOUNDARY
from localmem.segmentation.texttiling import FILE as TILING_FILE
from localmem.types import Completion, Session, Turn

ModelKind = Literal["chat", "encoder", "t5"]
Kind = Literal["base", "adapter", "part", "merged"]

OPERATION, SEGMENT = "operation", "segment"
PROMPTS: Mapping[str, str] = {OPERATION: "carecall/operation", SEGMENT: "secom/segment"}
FOLDER = "parts"

_UNDATED = datetime(1970, 1, 1, tzinfo=UTC)  # a prompt shows no times


@dataclass(frozen=True, slots=True)
class Student:
    """A student with its name in tables; the base model has no folder."""

    name: str
    kind: Kind
    folder: Path = Path()


def find_student(folder: Path) -> Student:
    """The student that `localmem distill train` or `merge` wrote into the folder. Raises BadInput."""
    if (folder / "adapter_config.json").is_file():
        return Student(folder.name, "adapter", folder)
    if not (folder / "config.json").is_file():
        raise BadInput(f"there is no student in {folder}; use the --out of `localmem distill train`")
    return Student(folder.name, "merged" if model_kind(str(folder)) == "chat" else "part", folder)


def grade_student(
    student: Student,
    stage: str,
    traces: Sequence[Trace],
    settings: Settings,
    *,
    notify: Callable[[str], None],
    track: Callable[[int], object],
) -> Grade:
    """Let the student answer these traces and measure the answers."""
    answer, close = _load_student(student, stage, traces, settings, notify)
    try:
        return grade(answer, student.name, stage, traces, track=track)
    finally:
        close()
        del answer
        gc.collect()  # the weights are freed before the next student loads


def with_adapters(settings: Settings, adapters: Mapping[str, Path]) -> Settings:
    """The settings with these adapters, by prompt name, instead of any others and of parts that answer otherwise."""
    llm = settings.llm.model_copy(update={"adapters": dict(adapters)})
    return asks_backbone(settings).model_copy(update={"llm": llm})


def asks_backbone(settings: Settings) -> Settings:
    """The settings without the small trained parts that answer instead of a small backbone."""
    return settings.model_copy(update={"chat": settings.chat.model_copy(update={"reader": "none", "stages": "none"})})


def _load_student(
    student: Student, stage: str, traces: Sequence[Trace], settings: Settings, notify: Callable[[str], None]
) -> tuple[Answer, Callable[[], None]]:
    """A function that answers traces, and one that releases the model."""
    if student.kind == "part":
        return answer_with(student.folder, stage, settings.llm.device), lambda: None
    backbone = open_student(student, traces, settings, notify)
    return ask_llm(backbone.llm), backbone.close


def open_student(
    student: Student, traces: Sequence[Trace], settings: Settings, notify: Callable[[str], None]
) -> factory.Backbone:
    """The backbone of a student that is a chat model, its adapter serving the prompts of these traces."""
    if student.kind == "merged":
        if factory.wants_server(settings):
            raise BadInput(
                f"merged models are compared in process, and the settings ask for vLLM; set llm.backend to "
                f"transformers, or register {student.folder} with `localmem models import` and use it as --student"
            )
        return folder_backbone(student.folder, settings, name=student.name)
    names = {trace.metadata.prompt for trace in traces} if student.kind == "adapter" else set[str]()
    return factory.backbone(with_adapters(settings, dict.fromkeys(names, student.folder)), notify)


class Lesson(NamedTuple):
    """Training files in the trainer's own format, and the number of traces that came from another prompt."""

    train: Path
    valid: Path
    skipped: int


def model_kind(base: str) -> ModelKind:
    """What kind of model a folder or name is; `t5:tiny` and the like are new T5s. Raises ModelMissing, BadInput."""
    if base.startswith(FRESH):
        return "t5"
    config = config_of(base_folder(base))
    if is_t5(config):
        return "t5"
    architectures = config.get("architectures")
    causal = isinstance(architectures, list) and any(str(name).endswith("ForCausalLM") for name in architectures)
    return "chat" if causal else "encoder"


def trained_stage(folder: Path) -> str:
    """The stage that the trained model in a folder serves."""
    if (folder / TILING_FILE).is_file() or BOUNDARY in labels_of(config_of(folder)):
        return SEGMENT
    return OPERATION


def single_stage(stages: Sequence[str], kind: ModelKind) -> str:
    """The one stage that such a model can learn. Raises BadInput."""
    allowed = (OPERATION,) if kind == "t5" else (OPERATION, SEGMENT)
    if len(stages) != 1 or stages[0] not in allowed:
        name = "a T5" if kind == "t5" else "an encoder"
        raise BadInput(f"{name} learns one stage, {' or '.join(allowed)}, not {', '.join(stages)}; use a chat model")
    return stages[0]


def write_lesson(folder: Path, stage: str) -> Lesson:
    """Write the collection's train and valid traces in the trainer's format, under `parts/`. Raises BadInput."""
    files: dict[str, Path] = {}
    skipped = 0
    for part in ("train", "valid"):
        traces = read_traces(folder / part / f"{stage}.jsonl")
        lines = [line for trace in traces if (line := _training_line(trace, stage)) is not None]
        if not lines:
            raise BadInput(
                f"none of {len(traces)} traces of {folder / part} comes from the prompt {PROMPTS[stage]}; collect from "
                "more conversations, or use a chat model"
            )
        skipped += len(traces) - len(lines)
        files[part] = folder / FOLDER / f"{stage}-{part}.jsonl"
        write_jsonl(files[part], lines, "choose another folder")
    return Lesson(files["train"], files["valid"], skipped)


def train_small_model(job: TrainingJob[TrainingRecipe], stage: str, lesson: Lesson) -> TrainingResult:
    """Train a small model on a lesson. Where the job's recipe sets nothing, the trainer's own defaults apply."""
    fields = job.recipe.model_dump(exclude_unset=True)
    if stage == OPERATION:
        if "learning_rate" in fields:
            fields["fresh_learning_rate"] = fields["learning_rate"]
        recipe = update_recipe(operation_classifier.OperationRecipe(), **fields, data=(lesson.train, lesson.valid))
        return _train_operations(job.with_recipe(recipe), lesson)
    segments = update_recipe(segmenter.SegmenterRecipe(), **fields, train=(lesson.train,), valid=(lesson.valid,))
    return segmenter.train(job.with_recipe(segments))


def answer_with(folder: Path, stage: str, device: str = "auto") -> Callable[[Trace], Completion]:
    """A function that answers traces with a trained model; a trace of another prompt gets an empty, invalid answer."""
    pair_model(str(folder), device).labels  # noqa: B018  # loads the weights now, outside the first answer's time
    if stage == OPERATION:
        classifier = pair_classifier(str(folder), device)

        def operation(trace: Trace) -> Completion:
            inputs = _inputs(trace, OPERATION)
            if inputs is None:
                return Completion("")
            (label,) = classifier.classify([(inputs["memory"], inputs["sentence"])])
            choices: dict[str, float] = {name: log(value) for name, value in label.probabilities.items() if value > 0}
            return Completion(label.operation, choices=choices)

        return operation
    model = trained_segmenter(str(folder), device)

    def segment(trace: Trace) -> Completion:
        inputs = _inputs(trace, SEGMENT)
        return Completion(segments_json(model.segment([_session(_exchanges(inputs))])[0]) if inputs else "")

    return segment


def _train_operations(job: TrainingJob[operation_classifier.OperationRecipe], lesson: Lesson) -> TrainingResult:
    """Unlike the trainer alone, this keeps the division by conversation and allows labels the teacher never gives."""
    job = operation_classifier.use_fresh_rate(job)
    files = [lesson.train, lesson.valid]
    fold = Fold(*(list(read_operations(path).pairs) for path in files))
    if missing := set(OPERATIONS) - {pair.label for pair in fold.train}:
        job.notify(f"no training pair has the label {', '.join(sorted(missing))}: the teacher never answers so")
    pairs = operation_classifier.PairLesson(OPERATIONS, fold, files, "Memory operations, from a teacher")
    return operation_classifier.train_pairs(job, job.recipe.base, pairs)


def _training_line(trace: Trace, stage: str) -> dict[str, str] | None:
    """A trace in the trainer's format, or None for a trace of another prompt."""
    inputs = _inputs(trace, stage)
    if inputs is None:
        return None
    if stage == SEGMENT:
        return {"id": trace.id, "dialogue": _marked_dialogue(_exchanges(inputs), trace.answer)}
    work = trace.metadata.work
    pair = {"memory": inputs["memory"], "summary": inputs["sentence"]}
    return {**pair, "label": trace.answer, "group": f"{work.dataset}/{work.episode}"}


def _inputs(trace: Trace, stage: str) -> Mapping[str, str] | None:
    """What the stage's prompt was rendered with; None for a trace of another prompt, or if an input is blank.

    Raises BadInput for a trace without recorded inputs.
    """
    metadata = trace.metadata
    if metadata.prompt != PROMPTS[stage]:
        return None
    if metadata.inputs is None:
        raise BadInput(
            f"trace {trace.id} records no inputs of the prompt {metadata.prompt}, as traces of earlier versions and "
            "imported chats do not; collect again, or train a chat model"
        )
    required = ("memory", "sentence") if stage == OPERATION else ("dialogue",)
    return metadata.inputs if all(metadata.inputs[name].strip() for name in required) else None


def _exchanges(inputs: Mapping[str, str]) -> list[str]:
    """The texts of a numbered dialogue: the inverse of `numbered_exchanges`. `last` is the number of the last one."""
    texts = []
    remaining = f"\n\n{inputs['dialogue']}".partition("\n\n[Exchange 0]\n")[2]
    for number in range(1, int(inputs["last"]) + 1):
        text, _, remaining = remaining.partition(f"\n\n[Exchange {number}]\n")
        texts.append(text)
    return [*texts, remaining]


def _marked_dialogue(exchanges: Sequence[str], answer: str) -> str:
    """A dialogue in SuperDialSeg's format, with an utterance for each exchange."""
    starts = {segment.start for segment in read_segments(answer) or ()} - {0}
    lines: list[str] = []
    for place, text in enumerate(exchanges):
        plain = text.replace("[NEWLINE]", "[newline]").replace("[BOUNDARY]", "[boundary]")  # no marks within a text
        lines += ["[BOUNDARY]", plain] if place in starts else [plain]
    return "[NEWLINE]".join(lines)


def _session(exchanges: Sequence[str]) -> Session:
    """A session with one turn for each exchange, as labelled dialogues are read."""
    parts = (exchange.partition(": ") for exchange in exchanges)
    turns = (Turn(str(place), "user", name, text, _UNDATED) for place, (name, _, text) in enumerate(parts))
    return Session("segmented", tuple(turns))
