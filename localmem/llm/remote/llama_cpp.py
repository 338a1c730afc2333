"""llama.cpp's server: the OpenAI protocol, with a grammar for choices and a tokenizer for others.

Its log-probabilities are those before the grammar, so the likeliest tokens include many that the grammar forbids; more
of them are asked for than of others.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from localmem.errors import LLMError
from localmem.llm.base import ABILITIES
from localmem.llm.remote.openai_protocol import Capabilities, OpenAIProtocol, first_number
from localmem.llm.remote.openai_wire import DecodedToken, Response, logprob_fields, template_body
from localmem.types import Choice, Message, Prompt

_TOP_LOGPROBS = 1000
_ESCAPES = str.maketrans({'"': r"\"", "\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t"})
END = b"\0"  # stands for the end of an answer, which has no bytes: no option continues with it
_NAMES = {"repetition_penalty": "repeat_penalty"}  # sampling fields that it calls otherwise


class LlamaCppProtocol(OpenAIProtocol):
    """A llama.cpp server, which serves one model under any name."""

    engine = "llama.cpp"
    health_path = "/health"
    end: ClassVar[bytes | None] = END

    def ask(self, context_length: int | None) -> Capabilities:
        properties = self.client.probe("/props") or {}
        settings = properties.get("default_generation_settings")
        stated = first_number(settings, "n_ctx") if isinstance(settings, Mapping) else None
        kinds = properties.get("modalities")
        is_blind = isinstance(kinds, Mapping) and not kinds.get("vision")
        return Capabilities(
            engine=self.engine,
            model=self.model,
            version=str(properties.get("build_info") or ""),
            context_length=min(filter(None, (stated, context_length)), default=None),
            tokenizer=True,
            choices="grammar",
            logprobs=True,
            prefix_cache="used",
            abilities=ABILITIES - {"images"} if is_blind else ABILITIES,
        )

    def body(self, prompt: Prompt, messages: Sequence[Message], *, model: str, stream: bool) -> dict[str, object]:
        body = super().body(prompt, messages, model=model, stream=stream)
        body = {_NAMES.get(name, name): value for name, value in body.items()}
        if isinstance(prompt.format, Choice):
            body |= {"grammar": options_grammar(prompt.format.options), **logprob_fields(_TOP_LOGPROBS)}
        return body

    def read(self, content: bytes) -> Response:
        response = super().read(content)
        for choice in response.choices:
            choice.tokens = [_with_end(token) for token in choice.tokens or ()]
        return response

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        return [self._count({"content": text}) for text in texts]

    def count_messages(
        self, messages: Sequence[Mapping[str, object]], template: Mapping[str, object], tools: Sequence[object]
    ) -> int:
        body = template_body(messages, template, tools)
        prompt = self.client.post("/apply-template", body, "a request to apply its chat template").json().get("prompt")
        return self._count({"content": prompt, "add_special": True, "parse_special": True})

    def _count(self, body: Mapping[str, object]) -> int:
        tokens = self.client.post("/tokenize", body, "a request to count tokens").json().get("tokens")
        if not isinstance(tokens, list):
            raise LLMError(f"the server at {self.client.url} does not count tokens; update llama.cpp")
        return len(tokens)


def options_grammar(options: Sequence[str]) -> str:
    """The grammar, in GBNF, of an answer that is one of the options."""
    return "root ::= " + " | ".join(f'"{option.translate(_ESCAPES)}"' for option in options)


def _with_end(token: DecodedToken) -> DecodedToken:
    for each in (token, *token.top_logprobs):
        if not each.token and not each.values:
            each.values = list(END)
    return token
