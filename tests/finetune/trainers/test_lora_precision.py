"""The base in bfloat16 and in 4 bits; on a GPU with the starter's weights, as a student is trained."""

from pathlib import Path

import pytest
import torch

from finetune.trainers import lora, training
from finetune.trainers.lora import LoraRecipe, train
from tests.finetune.small import small_chat
from tests.finetune.trainers.test_lora import job


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return small_chat(tmp_path / "chat")


def as_gpu(monkeypatch: pytest.MonkeyPatch, bfloat16: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: bfloat16)


@pytest.mark.parametrize(
    ("precision", "able", "narrow"),
    [("auto", True, True), ("auto", False, False), ("float32", True, False), ("bfloat16", False, True)],
)
def test_the_base_is_as_wide_as_the_device_computes(
    precision: str, able: bool, narrow: bool, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_gpu(monkeypatch, able)
    recipe = LoraRecipe.model_validate({"precision": precision})
    assert training.in_bfloat16(recipe) is narrow
    model = lora._load_base(base, recipe)
    assert model.dtype is (torch.bfloat16 if narrow else torch.float32)


def test_the_adapter_on_a_narrow_base_is_trained_in_single_precision(base: Path, tmp_path: Path) -> None:
    model = lora._make_student(base, LoraRecipe(precision="bfloat16", rank=4))
    trained = [weight.dtype for weight in model.parameters() if weight.requires_grad]
    assert set(trained) == {torch.float32}
    result = train(job(base, tmp_path, precision="bfloat16", epochs=2))
    losses = [line["eval_loss"] for line in result.log if "eval_loss" in line]
    assert losses[-1] < losses[0]


@pytest.mark.gpu
@pytest.mark.parametrize("four_bit", [False, True], ids=["bf16", "4-bit"])
def test_a_student_learns_on_a_real_gpu(four_bit: bool, starter_llm_dir: Path, tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU that computes in bfloat16, and for 4 bits bitsandbytes (the gpu extra)")
    result = train(job(starter_llm_dir, tmp_path, row_tokens=256, epochs=2, learning_rate=2e-4, four_bit=four_bit))
    losses = [line["eval_loss"] for line in result.log if "eval_loss" in line]
    assert losses[-1] < losses[0]
    assert torch.cuda.max_memory_allocated() < 8e9
