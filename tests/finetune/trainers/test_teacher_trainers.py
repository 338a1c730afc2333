"""TRL's methods on a small model: each moves the student towards the teacher, or towards the chosen answers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from finetune.traces.trace import Trace, write_traces
from finetune.trainers.lora import LoraRecipe, train
from finetune.trainers.training import TrainingJob
from localmem.errors import BadInput
from localmem.llm.tokenizer import ChatTokenizer
from tests.finetune.small import WORDS, small_chat
from tests.finetune.trainers.test_lora import TRACES

pytestmark = pytest.mark.filterwarnings("ignore")  # TRL's own, which change with its versions


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_chat(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def teacher(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base model with other weights in its upper layer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path_factory.mktemp("teacher")
    model = AutoModelForCausalLM.from_pretrained(str(base))
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.model.layers[-1].parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    model.save_pretrained(str(folder))
    AutoTokenizer.from_pretrained(str(base)).save_pretrained(str(folder))
    return folder


def run(base: Path, folder: Path, traces: list[Trace], **fields: Any) -> TrainingJob[LoraRecipe]:  # noqa: ANN401
    write_traces(folder / "train.jsonl", traces * 4)
    write_traces(folder / "valid.jsonl", traces)
    values = {"base": str(base), "train": [folder / "train.jsonl"], "valid": [folder / "valid.jsonl"], "epochs": 4}
    values |= {"learning_rate": 2e-2, "batch_size": 4, "rank": 8, "row_tokens": 64, "answer_tokens": 4, "patience": 9}
    job = TrainingJob(LoraRecipe.model_validate(values | fields), folder / "out", notify=lambda _: None)
    train(job)
    return job


def logits(base: Path, trace: Trace, adapter: Path | None = None) -> torch.Tensor:
    """The log-probabilities of the answer's first token."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(base))
    model = PeftModel.from_pretrained(model, str(adapter)) if adapter else model
    ids = ChatTokenizer(base).encode(trace.context, {})
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0, -1].float().log_softmax(-1)


@pytest.mark.parametrize("method", ["distribution", "on-policy"])
def test_the_student_s_distribution_approaches_the_teacher_s(
    base: Path, teacher: Path, tmp_path: Path, method: str
) -> None:
    job = run(base, tmp_path, TRACES, method=method, teacher=str(teacher), beta=0.0)
    expected = [logits(teacher, trace) for trace in TRACES]

    def distance(adapter: Path | None) -> float:
        own = [logits(base, trace, adapter) for trace in TRACES]
        pairs = zip(own, expected, strict=True)
        return sum(float(torch.nn.functional.kl_div(a, b, log_target=True, reduction="sum")) for a, b in pairs)

    assert distance(job.out) < 0.5 * distance(None)


def test_chosen_answers_gain_over_rejected_ones(base: Path, tmp_path: Path) -> None:
    pairs = [replace(trace, metadata=replace(trace.metadata, rejected="moon")) for trace in TRACES]
    job = run(base, tmp_path, pairs, method="preferences")
    tokenizer = ChatTokenizer(base).tokenizer
    chosen, rejected = (tokenizer.convert_tokens_to_ids(word) for word in (TRACES[0].answer, "moon"))

    def margin(adapter: Path | None) -> float:
        own = logits(base, TRACES[0], adapter)
        return float(own[chosen] - own[rejected])

    assert margin(job.out) > margin(None) + 1


def test_what_a_method_needs_is_said(base: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="name its weights with --set teacher=NAME"):
        run(base, tmp_path / "a", TRACES, method="on-policy")
    with pytest.raises(BadInput, match="has no rejected answer; collect with --set samples=4"):
        run(base, tmp_path / "b", TRACES, method="preferences")
    other = small_chat(tmp_path / "other", [*WORDS, "more"])
    with pytest.raises(BadInput, match=r"vocabulary has 16 tokens and that of the teacher .* 17; use a teacher"):
        run(base, tmp_path / "c", TRACES, method="distribution", teacher=str(other))
