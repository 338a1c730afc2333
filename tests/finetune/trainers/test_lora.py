"""Students: packed rows teach what rows of their own do, only the assistant's tokens count, and a run can go on."""

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from finetune.merge import merge

from finetune.grading import grade, measure
from finetune.packing import NOT_LEARNED, Row, collate, encode, pack
from finetune.run_folder import About, hashes, register, save
from finetune.traces.trace import Teacher, Trace, trace_of, write_traces
from finetune.trainers.lora import Job, divergence, surprise, train
from finetune.trainers.training import Plan, Trained
from localmem.errors import BadInput
from localmem.evaluation.answers import Work
from localmem.llm.tokenizer import ChatTokenizer
from localmem.llm.transformers import TransformersLLM
from localmem.types import Choice, Completion, Message, Prompt
from tests.finetune.small import WORDS, small_chat


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_chat(tmp_path_factory.mktemp("small-chat"))


def trace(said: str, told: str, choices: dict[str, float] | None = None) -> Trace:
    form = {"format": Choice(("PASS", "APPEND"))} if choices else {}
    prompt = Prompt("carecall/operation", (Message("user", said),), max_tokens=8, **form)  # type: ignore[arg-type]
    return trace_of(prompt, Completion(told, choices=choices), "0" * 64, Teacher("teacher"), Work("s", "d", "e"))


TRACES = [trace(f"{thing} says {colour}", colour) for thing in ("kite", "boat", "moon") for colour in WORDS[:3]]


def job(base: Path, folder: Path, traces: Sequence[Trace] = TRACES, **changed: object) -> Job:
    """An epoch sees everything five times: what is done between epochs takes longer than they do."""
    write_traces(folder / "train" / "respond.jsonl", [*traces] * 5)
    write_traces(folder / "valid" / "respond.jsonl", traces)
    paths = [folder / "train" / "respond.jsonl"], [folder / "valid" / "respond.jsonl"]
    plan = Plan(epochs=8, batch=1, learning_rate=2e-2, patience=8)
    return replace(Job(base, *paths, folder / "out", plan, rank=8, pack=40), **changed)  # type: ignore[arg-type]


def test_only_the_assistant_s_tokens_are_learned(base: Path) -> None:
    chat = ChatTokenizer(base)
    row = encode(TRACES[0], chat)
    learned = [label for label in row.labels if label != NOT_LEARNED]
    assert chat.tokenizer.decode(learned) == "red <end>"
    assert chat.tokenizer.decode(row.ids) == "<user> kite says red <end> <assistant> red <end>"


def test_every_message_of_the_assistant_is_learned_of_a_whole_dialogue(base: Path) -> None:
    chat = ChatTokenizer(base)
    said = (Message("user", "kite says red"), Message("assistant", "red"), Message("user", "what is"))
    one = replace(TRACES[0], messages=(*said, Message("assistant", "kite")))
    learned = {
        whole: chat.tokenizer.decode([label for label in row.labels if label != NOT_LEARNED])
        for whole in (True, False)
        for row in [encode(replace(one, metadata=replace(one.metadata, whole=whole)), chat)]
    }
    assert learned == {True: "red <end> kite <end>", False: "kite <end>"}


def test_surprise_is_the_mean_over_what_is_learned() -> None:
    logits = torch.zeros(1, 3, 4)
    wanted = torch.tensor([[1, NOT_LEARNED, 2]])
    assert float(surprise(logits, wanted)) == pytest.approx(math.log(4))
    assert float(surprise(logits, wanted, 4)) == pytest.approx(math.log(4) / 2)


def test_packed_rows_give_the_loss_of_rows_of_their_own(base: Path) -> None:
    """A trace must not see the one before it in its row, and sees what all begin with as if it were its own."""
    from transformers import AutoModelForCausalLM

    chat = ChatTokenizer(base)
    rows = [encode(one, chat) for one in TRACES]
    packed = pack(rows, 40, seed=0)
    assert 1 < len(packed) < len(rows)
    assert max(len(row.ids) for row in packed) <= 40
    assert all(row.branches[0] == 0 for row in packed)  # they begin alike, and that is held once
    assert sum(len(row.ids) for row in packed) < sum(len(row.ids) for row in rows)
    model = AutoModelForCausalLM.from_pretrained(str(base)).eval()
    asked = ("input_ids", "position_ids", "attention_mask")

    def loss(held: list[Row]) -> float:
        inputs = collate([{"row": row} for row in held])
        with torch.inference_mode():
            logits = model(**{name: inputs[name] for name in asked}, use_cache=False).logits
        told = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), inputs["labels"][:, 1:].flatten(), ignore_index=NOT_LEARNED, reduction="sum"
        )
        return float(told)

    alone = sum(loss([row]) for row in rows)
    assert sum(loss([row]) for row in packed) == pytest.approx(alone, rel=1e-5)
    assert loss(list(packed)) == pytest.approx(alone, rel=1e-5)  # and side by side, padded


def test_prompts_that_begin_otherwise_do_not_share_a_row(base: Path) -> None:
    chat = ChatTokenizer(base)
    rows = [encode(one, chat) for one in TRACES]
    other = [replace(row, prompt="other", ids=tuple(reversed(row.ids))) for row in rows]
    packed = pack([*rows, *other], 1000, seed=0)
    assert sorted(row.prompt for row in packed) == sorted({"other", rows[0].prompt})


def test_the_divergence_is_that_of_the_options_alone() -> None:
    logits = torch.zeros(1, 2, 5)
    logits[0, 1, 3] = 1.0
    at, ids = torch.tensor([[0, 1]]), torch.tensor([[2, 3, -1]])
    ours = torch.tensor([0.0, 1.0]).log_softmax(-1).exp()
    same = divergence(logits, at, ids, torch.tensor([[*ours.tolist(), 0.0]]))
    assert float(same) == pytest.approx(0.0, abs=1e-6)
    other = divergence(logits, at, ids, torch.tensor([[1.0, 0.0, 0.0]]))
    assert float(other) == pytest.approx(-float(ours[0].log()), rel=1e-5)


def test_a_teacher_s_distribution_is_placed_before_the_answer(base: Path) -> None:
    chat = ChatTokenizer(base)
    rows = [encode(one, chat) for one in (TRACES[0], trace("what is", "PASS", {"PASS": -0.5, "APPEND": -0.93}))]
    (packed,) = pack(rows, 60, seed=0)
    (soft,) = packed.soft
    assert chat.tokenizer.decode([packed.ids[soft.at]]) == "<assistant>"
    assert chat.tokenizer.decode([packed.ids[soft.at + 1]]) == "PASS"
    assert soft.probabilities == pytest.approx((0.6065, 0.3946), abs=1e-3)


@pytest.fixture(scope="module")
def student(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one that has learned to say the colour."""
    wanted = job(base, tmp_path_factory.mktemp("student"))
    assert train(wanted, note=lambda _: None).measures["loss"] < 0.3
    return wanted.out


def test_a_student_goes_on_from_an_adapter(base: Path, student: Path, tmp_path: Path) -> None:
    wanted = job(base, tmp_path, start=student, plan=Plan(epochs=1, batch=1, learning_rate=1e-6))
    assert train(wanted, note=lambda _: None).measures["loss"] < 0.3
    with pytest.raises(BadInput, match="no adapter"):
        train(replace(wanted, start=tmp_path, out=tmp_path / "other"), note=lambda _: None)


def test_a_student_learns_and_is_served(base: Path, student: Path) -> None:
    llm = TransformersLLM(base, name="small", context_length=64, device="cpu", dtype="float32")
    asked = Prompt("x/respond", (Message("user", "boat says green"),), max_tokens=4)
    before = llm.generate([asked])[0].text
    llm.load_adapter("x/respond", student)
    assert llm.generate([asked])[0].text == "green" != before
    assert (student / "curves.png").stat().st_size > 1000
    assert "teacher" in (student / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def other(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one that has learned to say the next colour."""
    following = dict(zip(WORDS[:3], (*WORDS[1:3], WORDS[0]), strict=True))
    taught = [trace(one.asked[-1].content, following[one.answer]) for one in TRACES]
    wanted = job(base, tmp_path_factory.mktemp("other"), taught)
    train(wanted, note=lambda _: None)
    return wanted.out


def test_one_process_serves_the_base_model_and_two_students_by_prompt_name(
    base: Path, student: Path, other: Path
) -> None:
    """As the setting llm.adapters has it: a prompt's whole name, or its system's."""
    asked = [Message("user", "boat says green")]
    names = ("theanine/link", "rsum/update", "theanine/refine", "theanine/link")
    prompts = [Prompt(name, tuple(asked), max_tokens=2) for name in names]
    plain = TransformersLLM(base, name="small", context_length=64, device="cpu", dtype="float32")
    (untaught,) = plain.generate(prompts[:1])
    adapters = {"theanine/link": student, "rsum": other}
    llm = TransformersLLM(base, name="small", context_length=64, device="cpu", dtype="float32", adapters=adapters)
    together = [answer.text for answer in llm.generate(prompts)]
    assert together == ["green", "red", untaught.text, "green"]
    assert untaught.text not in ("green", "red")


def test_what_is_served_with_an_adapter_comes_without_a_tokenizer(base: Path, student: Path) -> None:
    held = {path.name for path in student.iterdir()}
    assert held == {
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
        "curves.png",
        "localmem.json",
        "run.json",
    }
    assert "Served with" in (student / "README.md").read_text(encoding="utf-8")


def test_a_merged_student_answers_as_with_its_adapter(base: Path, tmp_path: Path, student: Path) -> None:
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
def test_an_interrupted_run_goes_on_to_the_same_weights(base: Path, tmp_path: Path, epochs: float) -> None:
    """Right after a checkpoint, and in the middle of an epoch, which is then begun again."""
    plan = Plan(epochs=4, batch=1, learning_rate=2e-2, patience=9)
    whole, cut = job(base, tmp_path / "whole", plan=plan), job(base, tmp_path / "cut", plan=plan)
    final = train(whole, note=lambda _: None).measures["loss"]

    _stopped_after(cut, epochs)
    assert train(cut, resume=True, note=lambda _: None).measures["loss"] == pytest.approx(final, abs=1e-4)
    ours, theirs = (_weights(one.out) for one in (whole, cut))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    for resume in (False, True):
        with pytest.raises(BadInput, match="holds a run that is done"):
            train(whole, resume=resume, note=lambda _: None)


def _stopped_after(wanted: Job, epochs: float) -> None:
    """Trains until so many epochs are done and a checkpoint of the whole ones is written, then breaks off."""
    from transformers import Trainer, TrainerCallback

    class Stop(TrainerCallback):
        def _look(self, state: object) -> None:
            if getattr(state, "epoch", 0) >= epochs:
                raise KeyboardInterrupt

        def on_save(self, args: object, state: object, control: object, **more: object) -> None:
            self._look(state)

        def on_step_begin(self, args: object, state: object, control: object, **more: object) -> None:
            if epochs % 1:
                self._look(state)

    patch = pytest.MonkeyPatch()
    plain = Trainer.__init__

    def stopping(self: Trainer, *given: object, **named: object) -> None:
        plain(self, *given, **named)
        self.add_callback(Stop())

    patch.setattr(Trainer, "__init__", stopping)
    try:
        with pytest.raises(KeyboardInterrupt):
            train(wanted, note=lambda _: None)
    finally:
        patch.undo()


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "adapter_model.safetensors")


def test_of_several_processes_the_first_alone_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `accelerate launch` numbers them."""
    about = About("title", "what", "command", "base", [], "licence", {})
    monkeypatch.setenv("RANK", "1")
    save(tmp_path / "run", torch.nn.Linear(1, 1), None, about, Plan(), Trained({}, [], 0.0, 0), {})
    assert register(tmp_path / "run", "name", "licence") is None
    assert list(tmp_path.iterdir()) == []


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    paths = [tmp_path / folder / name for folder, name in (("train", "x.jsonl"), ("valid", "x.jsonl"), ("gold", "y"))]
    for path in paths:
        path.parent.mkdir()
        path.write_text(path.parent.name, encoding="utf-8")
    assert [name for name, _ in hashes(paths)] == ["train/x.jsonl", "valid/x.jsonl", "y"]
    assert len({found for _, found in hashes(paths)}) == 3


def test_segments_and_choices_have_scores_of_their_own() -> None:
    told = '{"segments": [{"first": 0, "last": 1}, {"first": 2, "last": 3}]}'
    held = trace("x", told)
    assert measure(Completion(told), held, "segment").score == 1.0
    one = '{"segments": [{"first": 0, "last": 3}]}'
    assert 0.0 < measure(Completion(one), held, "segment").score < 1.0
    choice = trace("what is", "PASS", {"PASS": 0.0})
    assert measure(Completion("PASS"), choice, "operation")[:3] == (1.0, True, 0.0)
    assert measure(Completion("LATER"), choice, "operation").valid is False
    assert measure(Completion("kite", finish="length"), trace("kite", "kite"), "respond").score == 0.0


def test_traces_longer_than_a_row_are_left_out_and_none_left_is_an_error(base: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="none of at most 4 tokens"):
        train(job(base, tmp_path, pack=4), note=lambda _: None)
    shutil.copytree(base, tmp_path / "broken", ignore=shutil.ignore_patterns("*.safetensors"))
    with pytest.raises(BadInput, match="is no chat model"):
        train(job(tmp_path / "broken", tmp_path), note=lambda _: None)
