"""Every memory system under `localmem chat`, on the real starter weights."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from localmem import factory
from localmem.cli.chat import chat
from localmem.config import system_names
from localmem.llm.base import LLM
from localmem.llm.transformers import TransformersLLM
from localmem.llm.wrappers import Wrapper
from localmem.store import Store
from localmem.types import Completion, FreeText, Prompt

pytestmark = pytest.mark.slow

WITHOUT_MEMORY = {"none"}
FIRST_DAY = "I'm Nina, and my dog is called Rocky.\nRocky is a greyhound who steals socks.\n/end\n"
SECOND_DAY = "My sister Clara is a vet in Bremen.\n/end\n"
THIRD_DAY = "What is my dog called?\n/why\n/memory\n"


class ShortAnswers(Wrapper):
    """The same weights with short free answers; the content of long ones is not tested here."""

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        return super().generate([self._shorten(prompt) for prompt in prompts])

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        return super().stream(self._shorten(prompt))

    def _shorten(self, prompt: Prompt) -> Prompt:
        free = isinstance(prompt.format, FreeText)
        return replace(prompt, max_tokens=min(prompt.max_tokens, 24)) if free else prompt


@pytest.fixture(scope="module")
def llm(starter_llm_dir: Path, starter_encoder_dir: Path) -> LLM:
    return ShortAnswers(TransformersLLM(starter_llm_dir, name="smollm2-135m-instruct", device="cpu"))


@pytest.mark.parametrize("system", system_names())
def test_a_conversation_of_three_days(
    system: str, llm: LLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(factory, "backbone", lambda *_: factory.Backbone(llm, lambda: None))
    output = ""
    for day, lines in enumerate((FIRST_DAY, SECOND_DAY, THIRD_DAY), start=2):
        arguments = ["--system", system, "--data-dir", str(tmp_path), "--now", f"2026-03-0{day}T18:00:00+00:00"]
        result = CliRunner().invoke(chat, arguments, input=lines, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        output = result.stdout
    assert not [line for line in caplog.messages if " waits: " in line]  # logged for a session that failed
    assert "prompt " in output or "no model was asked" in output
    with Store.open(str(tmp_path)) as store:
        refused = store.bank("me", system).refused  # a small model may write nothing but inventions
    is_empty = "No memories for user" in output
    assert is_empty if system in WITHOUT_MEMORY else refused or not is_empty
