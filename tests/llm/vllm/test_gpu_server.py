"""A vLLM server on a real GPU: six adapters answer together as they do in this process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from localmem.llm.remote.remote_llm import RemoteLLM
from localmem.llm.transformers import TransformersLLM
from localmem.llm.vllm.vllm_server import VllmServer, VllmSettings
from localmem.types import Choice, Message, Prompt

ADAPTERS = 6
OPTIONS = ("yes", "no", "maybe")
QUESTIONS = ("Is the sky green?", "Do cats bark?", "Will it rain?", "Is tea hot?")

pytestmark = pytest.mark.gpu  # and not vllm, which would start the server of the other tests beside it


@pytest.fixture(scope="module")
def adapters(starter_llm_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Six LoRA adapters with random weights, large enough to be heard."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    if not torch.cuda.is_available():
        pytest.skip("needs a GPU and vLLM built for it (the gpu extra)")
    folders = {}
    for number in range(ADAPTERS):
        base = AutoModelForCausalLM.from_pretrained(str(starter_llm_dir), dtype=torch.float32)
        config = LoraConfig(r=8, lora_alpha=64, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        adapted = get_peft_model(base, config)
        torch.manual_seed(number)
        for name, weights in adapted.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weights, std=0.06)
        folders[f"stage{number}"] = tmp_path_factory.mktemp("adapter")
        adapted.save_pretrained(str(folders[f"stage{number}"]))
    return folders


@pytest.fixture(scope="module")
def served(
    adapters: dict[str, Path], starter_llm_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RemoteLLM]:
    settings = VllmSettings(lora=True, adapter_slots=ADAPTERS, gpu_memory=0.4)
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    with VllmServer(starter_llm_dir, name="starter", log=log, settings=settings) as server:
        llm = RemoteLLM(server.url, name="starter", tokenizer=starter_llm_dir, api_key=server.api_key, server=server)
        for name, folder in adapters.items():
            llm.load_adapter(name, folder)
        yield llm
        llm.close()


def prompts(adapters: dict[str, Path]) -> list[Prompt]:
    return [
        Prompt(f"{name}/ask", (Message("user", text),), max_tokens=4, format=Choice(OPTIONS))
        for text in QUESTIONS
        for name in (*adapters, "plain")
    ]


def test_six_adapters_and_the_base_answer_in_one_batch(
    served: RemoteLLM, adapters: dict[str, Path], starter_llm_dir: Path
) -> None:
    own = TransformersLLM(starter_llm_dir, name="starter", device="cuda", dtype="bfloat16", adapters=adapters)
    requests = prompts(adapters)
    spread = set()
    for prompt, theirs, ours in zip(requests, served.generate(requests), own.generate(requests), strict=True):
        assert theirs.choices is not None
        assert ours.choices is not None
        for option in OPTIONS:
            assert theirs.choices[option] == pytest.approx(ours.choices[option], abs=0.1), prompt.name
        spread.add(round(ours.choices["yes"], 2))
    assert len(spread) > ADAPTERS, "the adapters do not change the answers"


def test_the_context_is_what_fits(served: RemoteLLM) -> None:
    """The whole of a small model's on any GPU, although no length was asked for."""
    assert served.context_length == 8192
