"""Response bodies of a chat request: the completion, or the chunks of a stream. Pure functions; no HTTP."""

import json
from dataclasses import dataclass

from localmem.server.errors import ApiError
from localmem.types import Reply, Usage

Json = dict[str, object]

DONE = "data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class ChatResponse:
    """The response to one chat request; `created` is in unix seconds."""

    id: str
    created: int
    model: str

    def completion(self, reply: Reply, session: str) -> Json:
        """The completion as one document. The text is the model's: the log may hold the same words already."""
        message = {"role": "assistant", "content": reply.completion.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.completion.finish}
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": usage_body(reply.completion.usage),
            "localmem": recall_body(reply, session),
        }

    def first_chunk(self, *, with_usage: bool) -> str:
        """The first chunk of a stream: the role."""
        return self._chunk({"role": "assistant", "content": ""}, None, with_usage)

    def text_chunk(self, text: str, *, with_usage: bool) -> str:
        """Some words."""
        return self._chunk({"content": text}, None, with_usage)

    def last_chunks(self, reply: Reply, session: str, *, with_usage: bool) -> str:
        """The last chunks: finish reason and recall, the token usage if the client asked for it, and the end mark."""
        last = self._chunk({}, reply.completion.finish, with_usage, {"localmem": recall_body(reply, session)})
        usage = {**self._head("chat.completion.chunk"), "choices": [], "usage": usage_body(reply.completion.usage)}
        return last + (_event(usage) if with_usage else "") + DONE

    def _chunk(self, delta: Json, finish: str | None, with_usage: bool, extra: Json | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        chunk: Json = {**self._head("chat.completion.chunk"), "choices": [choice], **(extra or {})}
        return _event({**chunk, "usage": None} if with_usage else chunk)

    def _head(self, kind: str) -> Json:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def error_event(error: ApiError) -> str:
    """An error in the middle of a stream, which OpenAI's clients raise; the stream ends after it."""
    return _event({**error.body()})


def usage_body(usage: Usage) -> Json:
    """Tokens as OpenAI counts them."""
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def recall_body(reply: Reply, session: str) -> Json:
    """What the reply was based on: the recalled units, and the memory text as the model read it."""
    hits = [{"id": hit.unit.id, "text": hit.unit.text, "score": float(hit.score)} for hit in reply.recall.hits]
    return {"session": session, "recalled": hits, "memory": reply.recall.text}


def _event(body: Json) -> str:
    return f"data: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n"
