"""An LLM behind a vLLM server, over the OpenAI protocol.

Prompts are trimmed, routed to adapters and sent in parallel here; the other modules of this package hold the format of
requests, their transport, and the process of a server of our own.
"""

import threading
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from localmem.batching import results_or_raise
from localmem.errors import LLMError, LocalmemError
from localmem.llm.adapters import warn_of_changes
from localmem.llm.base import alternate, check, check_json, fit, route
from localmem.llm.tokenizer import ChatTokenizer, template_fields
from localmem.llm.vllm.client import VllmClient
from localmem.llm.vllm.vllm_server import VllmServer
from localmem.llm.vllm.wire import WireUsage, answer_limit, finish, read_choice, request_body
from localmem.types import Choice, Completion, Message, Prompt

# A prompt of n bytes has at most n tokens, plus a few of the template; a prompt below that need not be counted.
_TEMPLATE_TOKENS = 512
_MESSAGE_TOKENS = 32
_BACKGROUND = 1  # the priority of background prompts; vLLM serves lower numbers first, and has 0 as its default


class VllmLLM:
    """The model that the server at `url` serves under `name`.

    `tokenizer` is a folder with the model's tokenizer; without it the server counts tokens. `context_length` None asks
    the server. `adapters` maps a prompt's name, or the part before its slash, to the served name of an adapter. With
    `server`, a server of ours, a request that does not reach it waits for its restart. At most `concurrency` prompts of
    one `generate` run at a time; `timeout` is in seconds, for one answer. A server of ours supports priorities, another
    one if `priorities` is set: without support it may reject a prompt that has one.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        tokenizer: Path | None = None,
        context_length: int | None = None,
        api_key: str | None = None,
        adapters: Mapping[str, str] | None = None,
        server: VllmServer | None = None,
        concurrency: int = 64,
        timeout: float = 600.0,
        priorities: bool = False,
    ) -> None:
        self.name = name
        self._tokenizer = ChatTokenizer(tokenizer) if tokenizer else None
        self._context_length = context_length
        self._concurrency = concurrency
        self._has_priorities = priorities or server is not None
        self._client = VllmClient(url, api_key=api_key, server=server, timeout=timeout)
        self._adapters = dict(adapters or {})
        self._guard = threading.Lock()

    @property
    def context_length(self) -> int:
        if self._context_length is None:
            served = self._client.models()
            if self.name not in served:
                raise LLMError(
                    f"the server at {self._client.url} does not serve {self.name!r}; it serves {', '.join(served)}"
                )
            self._context_length = served[self.name]
        return self._context_length

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        if len(prompts) < 2:
            return results_or_raise([self._attempt(prompt) for prompt in prompts])
        workers = min(self._concurrency, len(prompts))
        pool = ThreadPoolExecutor(workers, thread_name_prefix="vllm")
        try:
            return results_or_raise(list(pool.map(self._attempt, prompts)))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        if isinstance(prompt.format, Choice):  # decided by its first tokens, so there is nothing to stream
            completion = self._complete(prompt)
            yield completion.text
            return completion
        fitted, trimmed = self._fit(prompt)
        pieces: list[str] = []
        reason: str | None = None
        usage = WireUsage()
        with closing(self._client.events(prompt.name, self._body(fitted, stream=True))) as events:
            for event in events:
                usage = event.usage or usage
                for choice in event.choices[:1]:
                    reason = choice.finish_reason or reason
                    if choice.content:
                        pieces.append(choice.content)
                        yield choice.content
        text = "".join(pieces)
        check_json(prompt, text)
        return Completion(text, finish(reason), usage.usage(), None, trimmed)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        if self._tokenizer:
            return self._tokenizer.count_tokens(texts)
        return [
            self._client.tokens({"model": self.name, "prompt": text, "add_special_tokens": False}) for text in texts
        ]

    def load_adapter(self, name: str, path: Path) -> None:
        """Loads a LoRA adapter, in a folder that the server can read, for prompts called `name` or `name/...`."""
        warn_of_changes(path, self._tokenizer.template_sha256 if self._tokenizer else None)
        self._client.load_adapter(name, path)
        with self._guard:
            self._adapters = {**self._adapters, name: name}

    def unload_adapter(self, name: str) -> None:
        with self._guard:
            self._adapters = {key: served for key, served in self._adapters.items() if key != name}
        self._client.unload_adapter(name)

    def is_healthy(self) -> bool:
        """Whether the server answers now; takes at most two seconds and starts nothing."""
        return self._client.healthy(2.0)

    def prefix_cache(self) -> tuple[int, int] | None:
        """Tokens that the server looked up in its prefix cache so far, and hits; None if it has no such counters."""
        return self._client.prefix_cache()

    def close(self) -> None:
        self._client.close()

    def _attempt(self, prompt: Prompt) -> Completion | LocalmemError:
        try:
            return self._complete(prompt)
        except LocalmemError as error:
            return error

    def _complete(self, prompt: Prompt) -> Completion:
        fitted, trimmed = self._fit(prompt)
        response = self._client.chat(prompt.name, self._body(fitted, stream=False))
        answer = response.choices[0]
        usage = response.usage.usage()
        if isinstance(prompt.format, Choice):
            option, choices = read_choice(prompt, prompt.format.options, answer)
            return Completion(option, "stop", usage, choices, trimmed)
        text = answer.content or ""
        check_json(prompt, text)
        return Completion(text, finish(answer.finish_reason), usage, None, trimmed)

    def _body(self, prompt: Prompt, *, stream: bool) -> dict[str, object]:
        model = route(self._adapters, prompt.name) or self.name
        body = request_body(prompt, alternate(prompt.messages), model=model, stream=stream)
        return body | {"priority": _BACKGROUND} if self._has_priorities and prompt.background else body

    def _fit(self, prompt: Prompt) -> tuple[Prompt, int]:
        check(prompt)
        limited = replace(prompt, max_tokens=answer_limit(prompt))
        if self._tokenizer is None and self._surely_fits(limited):
            return limited, 0
        fields = template_fields(prompt.extra)
        return fit(limited, self.context_length, lambda messages: self._count(messages, fields))

    def _surely_fits(self, prompt: Prompt) -> bool:
        most = sum(len(message.content.encode()) + _MESSAGE_TOKENS for message in prompt.messages)
        return _TEMPLATE_TOKENS + most + prompt.max_tokens <= self.context_length

    def _count(self, messages: Sequence[Message], fields: Mapping[str, object]) -> int:
        if self._tokenizer:
            return len(self._tokenizer.encode(messages, fields))
        merged = [{"role": message.role, "content": message.content} for message in alternate(messages)]
        body = {"model": self.name, "messages": merged, "chat_template_kwargs": dict(fields)}
        return self._client.tokens(body)
