"""LoRA students: packed rows give the loss of separate ones, only the assistant's tokens count, runs resume."""

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from finetune.grading import grade, score_answer
from finetune.packing import IGNORED, PackedRow, collate, encode, pack
from finetune.run_folder import Card, hash_files, register, save_run
from finetune.traces.trace import Teacher, Trace, make_trace, write_traces
from finetune.trainers.lora import LoraRecipe, describe_too_little, divergence, merge, token_loss, train
from finetune.trainers.training import TrainingJob, TrainingRecipe, TrainingResult
from localmem.errors import BadInput, BadSettings
from localmem.evaluation.answers import Work
from localmem.llm.adapters import read_notes, save_notes
from localmem.llm.tokenizer import ChatTokenizer
from localmem.llm.transformers import TransformersLLM
from localmem.types import Choice, Completion, Message, Prompt
from tests.finetune.small import WORDS, small_chat


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_chat(tmp_path_factory.mktemp("small-chat"))


def trace(text: str, answer: str, choices: dict[str, float] | None = None) -> Trace:
    form = {"format": Choice(("PASS", "APPEND"))} if choices else {}
    prompt = Prompt("carecall/operation", (Message("user", text),), max_tokens=8, **form)  # type: ignore[arg-type]
    return make_trace(prompt, Completion(answer, choices=choices), "0" * 64, Teacher("teacher"), Work("s", "d", "e"))


TRACES = [trace(f"{thing} says {colour}", colour) for thing in ("kite", "boat", "moon") for colour in WORDS[:3]]


def job(
    base: Path, folder: Path, traces: Sequence[Trace] = TRACES, *, resume: bool = False, **fields: object
) -> TrainingJob[LoraRecipe]:
    """An epoch sees everything five times, because the work between epochs takes longer than an epoch."""
    write_traces(folder / "train" / "respond.jsonl", [*traces] * 5)
    write_traces(folder / "valid" / "respond.jsonl", traces)
    settings: dict[str, object] = {
        "base": str(base),
        "train": [folder / "train" / "respond.jsonl"],
        "valid": [folder / "valid" / "respond.jsonl"],
        "epochs": 8,
        "learning_rate": 2e-2,
        "patience": 8,
        "rank": 8,
        "row_tokens": 40,
    }
    recipe = LoraRecipe.model_validate(settings | fields)
    return TrainingJob(recipe, folder / "out", resume=resume, notify=lambda _: None)


def test_only_the_assistant_s_tokens_are_learned(base: Path) -> None:
    chat = ChatTokenizer(base)
    row = encode(TRACES[0], chat)
    learned = [label for label in row.labels if label != IGNORED]
    assert chat.tokenizer.decode(learned) == "red <end>"
    assert chat.tokenizer.decode(row.ids) == "<user> kite says red <end> <assistant> red <end>"


def test_the_loss_is_the_mean_over_the_learned_tokens() -> None:
    logits = torch.zeros(1, 3, 4)
    targets = torch.tensor([[1, IGNORED, 2]])
    assert float(token_loss(logits, targets)) == pytest.approx(math.log(4))
    assert float(token_loss(logits, targets, 4)) == pytest.approx(math.log(4) / 2)


def test_packed_rows_give_the_loss_of_separate_rows(base: Path) -> None:
    """A trace must not attend to others in its row, and attends to the common prefix as if it were its own."""
    from transformers import AutoModelForCausalLM

    chat = ChatTokenizer(base)
    rows = [encode(trace, chat) for trace in TRACES]
    packed = pack(rows, 40, seed=0)
    assert 1 < len(packed) < len(rows)
    assert max(len(row.ids) for row in packed) <= 40
    assert all(row.branches[0] == 0 for row in packed)  # the common prefix is stored once
    assert sum(len(row.ids) for row in packed) < sum(len(row.ids) for row in rows)
    model = AutoModelForCausalLM.from_pretrained(str(base)).eval()
    names = ("input_ids", "position_ids", "attention_mask")

    def loss(batch: list[PackedRow]) -> float:
        inputs = collate([{"row": row} for row in batch])
        with torch.inference_mode():
            logits = model(**{name: inputs[name] for name in names}, use_cache=False).logits
        total = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), inputs["labels"][:, 1:].flatten(), ignore_index=IGNORED, reduction="sum"
        )
        return float(total)

    separate = sum(loss([row]) for row in rows)
    assert sum(loss([row]) for row in packed) == pytest.approx(separate, rel=1e-5)
    assert loss(list(packed)) == pytest.approx(separate, rel=1e-5)  # and as one padded batch


def test_different_prompts_do_not_share_a_row(base: Path) -> None:
    chat = ChatTokenizer(base)
    rows = [encode(trace, chat) for trace in TRACES]
    other = [replace(row, prompt="other", ids=tuple(reversed(row.ids))) for row in rows]
    packed = pack([*rows, *other], 1000, seed=0)
    assert sorted(row.prompt for row in packed) == sorted({"other", rows[0].prompt})


def test_the_divergence_is_that_of_the_options_alone() -> None:
    logits = torch.zeros(1, 2, 5)
    logits[0, 1, 3] = 1.0
    at, ids = torch.tensor([[0, 1]]), torch.tensor([[2, 3, -1]])
    student = torch.tensor([0.0, 1.0]).log_softmax(-1).exp()
    same = divergence(logits, at, ids, torch.tensor([[*student.tolist(), 0.0]]))
    assert float(same) == pytest.approx(0.0, abs=1e-6)
    other = divergence(logits, at, ids, torch.tensor([[1.0, 0.0, 0.0]]))
    assert float(other) == pytest.approx(-float(student[0].log()), rel=1e-5)


def test_a_teacher_s_distribution_is_placed_before_the_answer(base: Path) -> None:
    chat = ChatTokenizer(base)
    rows = [encode(example, chat) for example in (TRACES[0], trace("what is", "PASS", {"PASS": -0.5, "APPEND": -0.93}))]
    (packed,) = pack(rows, 60, seed=0)
    (soft,) = packed.soft
    assert chat.tokenizer.decode([packed.ids[soft.at]]) == "<assistant>"
    assert chat.tokenizer.decode([packed.ids[soft.at + 1]]) == "PASS"
    assert soft.probabilities == pytest.approx((0.6065, 0.3946), abs=1e-3)


@pytest.fixture(scope="module")
def student(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a student that has learned to say the colour."""
    training = job(base, tmp_path_factory.mktemp("student"))
    assert train(training).measures["loss"] < 0.3
    return training.out


def test_training_can_continue_from_an_adapter(base: Path, student: Path, tmp_path: Path) -> None:
    training = job(base, tmp_path / "first", start=student, epochs=1, learning_rate=1e-6)
    assert train(training).measures["loss"] < 0.3
    with pytest.raises(BadInput, match="no adapter"):
        train(job(base, tmp_path / "second", start=tmp_path))


def test_a_student_learns_and_is_served(base: Path, student: Path) -> None:
    llm = TransformersLLM(base, name="small", context_length=64, device="cpu", dtype="float32")
    prompt = Prompt("x/respond", (Message("user", "boat says green"),), max_tokens=4)
    before = llm.generate([prompt])[0].text
    llm.load_adapter("x/respond", student)
    assert llm.generate([prompt])[0].text == "green" != before
    assert (student / "curves.png").stat().st_size > 1000
    assert "teacher" in (student / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def other(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a student that has learned to say the next colour."""
    following = dict(zip(WORDS[:3], (*WORDS[1:3], WORDS[0]), strict=True))
    traces = [trace(original.context[-1].content, following[original.answer]) for original in TRACES]
    training = job(base, tmp_path_factory.mktemp("other"), traces)
    train(training)
    return training.out


def test_one_process_serves_the_base_model_and_two_students_by_prompt_name(
    base: Path, student: Path, other: Path
) -> None:
    """The setting llm.adapters names a prompt or a system."""
    messages = [Message("user", "boat says green")]
    names = ("theanine/link", "rsum/update", "theanine/refine", "theanine/link")
    prompts = [Prompt(name, tuple(messages), max_tokens=2) for name in names]
    plain = TransformersLLM(base, name="small", context_length=64, device="cpu", dtype="float32")
    (untrained,) = plain.generate(prompts[:1])
    adapters = {"theanine/link": student, "rsum": other}
    llm = TransformersLLM(base, name="small", context_length=64, device="cpu", dtype="float32", adapters=adapters)
    together = [answer.text for answer in llm.generate(prompts)]
    assert together == ["green", "red", untrained.text, "green"]
    assert untrained.text not in ("green", "red")


def test_an_adapter_s_folder_has_no_tokenizer(base: Path, student: Path) -> None:
    names = {path.name for path in student.iterdir()}
    assert names == {
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
        "curves.png",
        "localmem.json",
        "run.json",
    }
    assert "Served with" in (student / "README.md").read_text(encoding="utf-8")


def test_a_merged_student_answers_as_the_adapter_does(base: Path, tmp_path: Path, student: Path) -> None:
    merge(student, base, tmp_path / "merged")
    llm = TransformersLLM(tmp_path / "merged", name="merged", context_length=64, device="cpu", dtype="float32")
    graded = grade(llm, "merged", "respond", TRACES, track=lambda _: None)
    assert graded.row()["score"] == 1.0
    assert (graded.valid, graded.grounded, graded.answers) == (1.0, 1.0, len(TRACES))
    plain = TransformersLLM(base, name="small", context_length=64, device="cpu", dtype="float32")
    before = grade(plain, "small", "respond", TRACES, track=lambda _: None)
    assert before.score is not None
    assert before.score.mean < 0.7
    with pytest.raises(BadInput, match="is not empty"):
        merge(student, base, tmp_path / "merged")
    with pytest.raises(BadInput, match="no adapter in"):
        merge(base, base, tmp_path / "other")


@pytest.mark.parametrize("epochs", [2.0, 2.4])
def test_a_resumed_run_ends_with_the_same_weights(base: Path, tmp_path: Path, epochs: float) -> None:
    """After a checkpoint, and in the middle of an epoch, which is then repeated."""
    complete, resumed = (job(base, tmp_path / name, epochs=4, patience=9) for name in ("complete", "resumed"))
    loss = train(complete).measures["loss"]
    _stop_after(resumed, epochs)
    assert train(replace(resumed, resume=True)).measures["loss"] == pytest.approx(loss, abs=1e-4)
    first, second = _weights(complete.out), _weights(resumed.out)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    for resume in (False, True):
        with pytest.raises(BadInput, match="holds a finished run"):
            train(replace(complete, resume=resume))


@pytest.fixture
def interrupted(base: Path, tmp_path: Path) -> TrainingJob[LoraRecipe]:
    """A run to resume that stopped after two epochs of four."""
    training = job(base, tmp_path / "begun", epochs=4, patience=9)
    _stop_after(training, 2.0)
    return replace(training, resume=True)


def test_a_resumed_run_with_other_settings_is_refused_by_their_names(interrupted: TrainingJob[LoraRecipe]) -> None:
    changed = interrupted.recipe.model_copy(update={"rank": 4, "learning_rate": 1e-3})
    with pytest.raises(
        BadInput, match=r"other settings: learning_rate was 0\.02, now 0\.001; rank was 8, now 4; use the earlier ones"
    ):
        train(interrupted.with_recipe(changed))


def test_a_resumed_run_with_other_data_is_refused(interrupted: TrainingJob[LoraRecipe]) -> None:
    write_traces(interrupted.recipe.train[0], TRACES[:4])
    with pytest.raises(BadInput, match=r"began with other settings: data of train was \w{12}, now \w{12};") as error:
        train(interrupted)
    assert "\n" not in str(error.value)
    assert "rank" not in str(error.value)


def test_a_resumed_run_with_another_base_or_template_is_refused(
    base: Path, interrupted: TrainingJob[LoraRecipe], tmp_path: Path
) -> None:
    other = small_chat(tmp_path / "other", [*WORDS, "more"])
    with pytest.raises(BadInput, match=r"settings: base model was \w{12}, now \w{12}; base was"):
        train(interrupted.with_recipe(interrupted.recipe.model_copy(update={"base": str(other)})))
    original = (base / "chat_template.jinja").read_text(encoding="utf-8")
    try:
        (base / "chat_template.jinja").write_text(original.replace("<end>", "<end>" * 2), encoding="utf-8")
        with pytest.raises(BadInput, match=r"began with other settings: chat template was \w{12}, now \w{12};"):
            train(interrupted)
    finally:
        (base / "chat_template.jinja").write_text(original, encoding="utf-8")


def test_the_time_of_a_resumed_run_is_that_of_all_its_parts(interrupted: TrainingJob[LoraRecipe]) -> None:
    for path in interrupted.out.glob("checkpoints/checkpoint-*/trainer_state.json"):
        state = json.loads(path.read_text(encoding="utf-8"))
        assert state["stateful_callbacks"]["TrainingClock"]["args"]["before"] > 0.0
        state["stateful_callbacks"]["TrainingClock"]["args"]["before"] = 5000.0
        path.write_text(json.dumps(state), encoding="utf-8")
    assert train(interrupted).seconds > 5000.0
    assert json.loads((interrupted.out / "run.json").read_text(encoding="utf-8"))["seconds"] > 5000.0


def test_what_did_not_begin_is_not_resumed(base: Path, tmp_path: Path) -> None:
    training = replace(job(base, tmp_path), resume=True)
    with pytest.raises(
        BadInput, match=r"no training began in .*: it has no checkpoints/begin\.json; leave out --resume"
    ):
        train(training)
    assert not training.out.exists()


def test_a_run_without_a_checkpoint_yet_starts_from_its_beginning(base: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    training = job(base, tmp_path, epochs=1)
    _stop_after(training, 0.5)
    train(replace(training, resume=True, notify=notes.append))
    assert any("holds no checkpoint yet, so the training starts from its beginning" in line for line in notes)


def test_a_student_that_failed_its_proof_is_not_merged(base: Path, tmp_path: Path) -> None:
    training = job(base, tmp_path, epochs=1)
    train(training)
    notes = read_notes(training.out)
    assert notes is not None
    save_notes(training.out, notes.model_copy(update={"failed": ("choose: score",)}))
    with pytest.raises(BadSettings, match=r"failed when it was measured: choose: score; .*--force"):
        merge(training.out, base, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_out_of_memory_is_one_line(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import Trainer

    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has ...")

    monkeypatch.setattr(Trainer, "training_step", fail)
    with pytest.raises(BadInput, match="out of memory at step 0 with batch_size 1; use") as error:
        train(job(base, tmp_path))
    assert "\n" not in str(error.value)


def test_the_rank_of_an_adapter_that_is_continued_stays(base: Path, student: Path, tmp_path: Path) -> None:
    fields: dict[str, Any]
    for field, value in (("rank", 4), ("alpha", 32)):
        fields = {field: value}
        with pytest.raises(BadInput, match=f"{field} {value} is asked for, and the adapter in .* which stays"):
            train(job(base, tmp_path / field, start=student, **fields))


def test_rank_and_alpha_are_those_of_the_recipe(base: Path, tmp_path: Path) -> None:
    training = job(base, tmp_path, rank=4, alpha=32, epochs=1)
    train(training)
    config = json.loads((training.out / "adapter_config.json").read_text(encoding="utf-8"))
    assert (config["r"], config["lora_alpha"]) == (4, 32)


def test_six_steps_on_two_rows_are_said_to_be_nothing(base: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    training = replace(job(base, tmp_path, TRACES[:2], epochs=3, row_tokens=9), notify=notes.append)
    write_traces(training.recipe.train[0], TRACES[:2])
    train(training)
    assert any("6 steps on 2 traces in 2 rows teach nothing" in line for line in notes)
    assert "**Caution:** 6 steps" in (training.out / "README.md").read_text(encoding="utf-8")
    assert not describe_too_little(training.recipe, traces=400, rows=40)


def _stop_after(training: TrainingJob[LoraRecipe], epochs: float) -> None:
    """Train for this many epochs and interrupt after the checkpoint of the last complete one."""
    from transformers import Trainer, TrainerCallback

    class Stop(TrainerCallback):
        def _stop(self, state: object) -> None:
            if getattr(state, "epoch", 0) >= epochs:
                raise KeyboardInterrupt

        def on_save(self, args: object, state: object, control: object, **more: object) -> None:
            self._stop(state)

        def on_step_begin(self, args: object, state: object, control: object, **more: object) -> None:
            if epochs % 1:
                self._stop(state)

    patch = pytest.MonkeyPatch()
    plain = Trainer.__init__

    def stopping(self: Trainer, *arguments: object, **options: object) -> None:
        plain(self, *arguments, **options)
        self.add_callback(Stop())

    patch.setattr(Trainer, "__init__", stopping)
    try:
        with pytest.raises(KeyboardInterrupt):
            train(training)
    finally:
        patch.undo()


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "adapter_model.safetensors")


def test_only_the_first_of_several_processes_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `accelerate launch` numbers them."""
    training = TrainingJob(TrainingRecipe(), tmp_path / "run", name="name")
    monkeypatch.setenv("RANK", "1")
    card = Card("title", "what", "base", [])
    save_run(training, torch.nn.Linear(1, 1), None, card, TrainingResult({}, [], 0.0, 0), {})
    register(training, "classifier")
    assert list(tmp_path.iterdir()) == []


def test_files_of_the_same_name_are_listed_with_their_folders(tmp_path: Path) -> None:
    paths = [tmp_path / folder / name for folder, name in (("train", "x.jsonl"), ("valid", "x.jsonl"), ("gold", "y"))]
    for path in paths:
        path.parent.mkdir()
        path.write_text(path.parent.name, encoding="utf-8")
    assert [name for name, _ in hash_files(paths)] == ["train/x.jsonl", "valid/x.jsonl", "y"]
    assert len({digest for _, digest in hash_files(paths)}) == 3


def test_segments_and_choices_have_their_own_scores() -> None:
    two_segments = '{"ends": "1 3"}'
    segmented = trace("x", two_segments)
    assert score_answer(Completion(two_segments), segmented, "segment").score == 1.0
    single = '{"ends": "3"}'
    assert 0.0 < score_answer(Completion(single), segmented, "segment").score < 1.0
    choice = trace("what is", "PASS", {"PASS": 0.0})
    assert score_answer(Completion("PASS"), choice, "operation")[:3] == (1.0, True, 0.0)
    assert score_answer(Completion("LATER"), choice, "operation").valid is False
    assert score_answer(Completion("kite", finish="length"), trace("kite", "kite"), "respond").score == 0.0


def test_rows_too_short_for_any_trace_and_broken_models_are_errors(base: Path, tmp_path: Path) -> None:
    empty = job(base, tmp_path / "empty")
    write_traces(empty.recipe.valid[0], [])
    with pytest.raises(BadInput, match=r"respond.jsonl: no trace; collect from three users or sessions"):
        train(empty)
    with pytest.raises(BadInput, match="has at most 4 tokens"):
        train(job(base, tmp_path, row_tokens=4))
    shutil.copytree(base, tmp_path / "broken", ignore=shutil.ignore_patterns("*.safetensors"))
    with pytest.raises(BadInput, match="cannot be loaded as a chat model"):
        train(job(tmp_path / "broken", tmp_path))
