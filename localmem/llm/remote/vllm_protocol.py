"""vLLM's extensions of the OpenAI protocol: options to choose from, a tokenizer, adapters at run time, priorities."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from localmem.errors import BadSettings
from localmem.llm.base import ABILITIES
from localmem.llm.remote.openai_protocol import Capabilities, OpenAIProtocol
from localmem.llm.remote.openai_wire import TokenCount, logprob_fields, parse, template_body
from localmem.llm.remote.server_client import ServerClient
from localmem.types import Choice, Message, Prompt

_LOAD = "/v1/load_lora_adapter"
_BACKGROUND = 1  # the priority of background prompts; vLLM serves lower numbers first, and has 0 as its default


class VllmProtocol(OpenAIProtocol):
    """A vLLM server.

    A server of ours supports `priorities`, another one if they are set: without support it may reject a prompt that has
    one. The adapters of a server of ours are loaded again after its restart.
    """

    engine = "vLLM"
    health_path = "/health"

    def __init__(self, client: ServerClient, model: str, *, priorities: bool = False) -> None:
        super().__init__(client, model)
        self._has_priorities = priorities or client.server is not None
        self._adapters: dict[str, Path] = {}
        self._adapters_at = client.server.starts if client.server else 0
        self._guard = threading.RLock()
        client.prepare = self._keep_adapters

    def ask(self, context_length: int | None) -> Capabilities:
        is_known = context_length and self.client.server  # a server of ours was started with that context
        stated = None if is_known else self.stated_context(self.require_model())
        return Capabilities(
            engine=self.engine,
            model=self.model,
            context_length=min(filter(None, (stated, context_length)), default=None),
            tokenizer=True,
            choices="options",
            logprobs=True,
            adapters=True,
            prefix_cache="counted",
            abilities=ABILITIES,
        )

    def body(self, prompt: Prompt, messages: Sequence[Message], *, model: str, stream: bool) -> dict[str, object]:
        body = super().body(prompt, messages, model=model, stream=stream)
        if isinstance(prompt.format, Choice):
            body |= {"structured_outputs": {"choice": list(prompt.format.options)}, **logprob_fields()}
        if prompt.prefill:
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        return body | {"priority": _BACKGROUND} if self._has_priorities and prompt.background else body

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        return [self._count({"model": self.model, "prompt": text, "add_special_tokens": False}) for text in texts]

    def count_messages(
        self, messages: Sequence[Mapping[str, object]], template: Mapping[str, object], tools: Sequence[object]
    ) -> int:
        body = {"model": self.model, **template_body(messages, template, tools)}
        return self._count(body)

    def load_adapter(self, name: str, path: Path) -> str:
        """Loads the adapter in `path` as `name`, replacing one of that name; repeated after a restart of the server.

        Returns the name that it is served under: a folder takes one slot, however many prompts it answers.
        """
        if serving := next((other for other, folder in self._adapters.items() if folder == path and other != name), ""):
            return serving
        slots = self.client.server.adapter_slots if self.client.server else None
        # Only the limit of a server of ours is known; above it, vLLM would drop adapters without an error
        if slots is not None and len({*self._adapters, name}) > slots:
            raise BadSettings(f"adapter {name!r} exceeds the server's {slots} slots; raise llm.adapter_slots")
        if name in self.models():
            self.client.post("/v1/unload_lora_adapter", {"lora_name": name}, f"adapter {name!r}")
        self.client.post(_LOAD, _adapter(name, path), f"adapter {name!r} in {path}")
        with self._guard:
            self._adapters[name] = path
        return name

    def prefix_cache(self) -> tuple[int, int] | None:
        text = self.client.get("/metrics", "a request for its metrics").text
        queries, hits = (_counter(text, f"vllm:prefix_cache_{name}_total") for name in ("queries", "hits"))
        return None if queries is None or hits is None else (queries, hits)

    def _count(self, body: Mapping[str, object]) -> int:
        return parse(TokenCount, self.client.post("/tokenize", body, "a request to count tokens").content).count

    def _keep_adapters(self) -> None:
        """Loads the adapters again after a restart, which lost them."""
        server = self.client.server
        if server is None or server.starts == self._adapters_at:
            return
        with self._guard:
            starts = server.starts
            if starts == self._adapters_at:
                return
            server.ensure_ready()
            for name, path in self._adapters.items():
                self.client.post_once(_LOAD, _adapter(name, path), f"adapter {name!r} in {path}")
            self._adapters_at = starts


def _adapter(name: str, path: Path) -> dict[str, str]:
    return {"lora_name": name, "lora_path": str(path)}


def _counter(metrics: str, name: str) -> int | None:
    """A counter of a Prometheus text, summed over its labels; None where the text does not contain it."""
    lines = [line for line in metrics.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
    return sum(int(float(line.rpartition(" ")[2])) for line in lines) if lines else None
