"""A model's own tokenizer and chat template: what a prompt costs, and the text that the model gets.

Shared by the backends. Reads one folder on this machine; loads no weights and opens no connection.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localmem.errors import BadSettings, ModelMissing
from localmem.llm.base import alternate
from localmem.llm.control_tokens import neutralize, own_marks
from localmem.llm.device import one_at_a_time
from localmem.types import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class ChatTokenizer:
    """Counts and encodes messages under the chat template of the model in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with one_at_a_time():
            self.tokenizer = _load(folder)
        if not self.tokenizer.chat_template:
            raise BadSettings(f"the model in {folder} has no chat template; use an instruct model")
        self._marks = own_marks(control_tokens(self.tokenizer))

    @property
    def template_sha256(self) -> str:
        """Equal for two models whose prompts have the same form."""
        return sha256(str(self.tokenizer.chat_template).encode()).hexdigest()

    def encode(
        self,
        messages: Sequence[Message],
        template: Mapping[str, object],
        prefill: str = "",
        *,
        tools: Sequence[object] = (),
    ) -> list[int]:
        """Token ids of the messages and of the start of the answer, which continues with the words of `prefill`.

        `template` holds fields for the chat template. No text makes a control token. Raises what the template does with
        messages that it refuses.
        """
        ids: list[int] = self.tokenizer.apply_chat_template(
            [self._message(message) for message in alternate(messages)],
            tools=list(tools) or None,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
            **template,
        )
        words = neutralize(neutralize(prefill), self._marks)
        return [*ids, *self.tokenizer.encode(words, add_special_tokens=False)] if prefill else ids

    def _message(self, message: Message) -> dict[str, object]:
        """A message as templates take it: what a tool is called with is an object there."""
        fields = {name: value for name, value in message.fields.items() if name != "parts"}
        calls = fields.get("tool_calls")
        if isinstance(calls, Sequence):
            fields["tool_calls"] = [_with_object(call) for call in calls]
        return {"role": message.role, "content": neutralize(message.content, self._marks), **fields}

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        if not texts:
            return []
        encoded = self.tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False)["input_ids"]
        return [len(ids) for ids in encoded]


class Detokenizer:
    """Turns one answer's tokens into text as they come; a character is returned once it is complete."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        from tokenizers.decoders import DecodeStream

        self._backend = tokenizer.backend_tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)

    def add(self, token: int) -> str:
        return self._stream.step(self._backend, token) or ""


def control_tokens(tokenizer: "PreTrainedTokenizerBase") -> set[str]:
    """The added tokens that end a text or belong to the template; others are words and runs of spaces."""
    template = str(tokenizer.chat_template)
    added = tokenizer.added_tokens_decoder.values()
    return {token.content for token in added if token.special or (token.content.strip() and token.content in template)}


def template_fields(extra: Mapping[str, object]) -> dict[str, object]:
    """The fields of `Prompt.extra` for the chat template, under vLLM's name (Qwen3 has enable_thinking)."""
    fields = extra.get("chat_template_kwargs")
    return {str(key): value for key, value in fields.items()} if isinstance(fields, Mapping) else {}


def tool_schemas(extra: Mapping[str, object]) -> Sequence[object]:
    """The tools of `Prompt.extra`, none without them."""
    tools = extra.get("tools")
    return tools if isinstance(tools, Sequence) else ()


def _with_object(call: Mapping[str, Any]) -> dict[str, object]:
    function = call["function"]
    try:
        arguments = json.loads(str(function.get("arguments") or "{}"))
    except ValueError:  # a model wrote it; the template takes the text too, or refuses it
        return dict(call)
    return {**call, "function": {**function, "arguments": arguments}}


def _load(folder: Path) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer

    if not (folder / "tokenizer_config.json").is_file():
        raise ModelMissing(f"no tokenizer in {folder}; get the model with `localmem models pull`")
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError) as error:
        raise ModelMissing(
            f"the tokenizer in {folder} cannot be read ({error}); check it with `localmem models verify`"
        ) from error
    tokenizer.model_max_length = sys.maxsize  # our rule trims long prompts, so its warning would mislead
    return tokenizer
