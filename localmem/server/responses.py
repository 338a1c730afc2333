"""What goes back over the wire for a chat request: the completion, or the chunks of a stream. Pure; knows no HTTP."""

import json
from dataclasses import dataclass

from localmem.server.errors import Problem
from localmem.types import Reply, Usage

Json = dict[str, object]

DONE = "data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request; `created` is in unix seconds."""

    id: str
    created: int
    model: str

    def whole(self, reply: Reply, session: str) -> Json:
        """The completion in one piece. The text is the model's: the log may hold the same words already."""
        message = {"role": "assistant", "content": reply.completion.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.completion.finish}
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": usage(reply.completion.usage),
            "localmem": recalled(reply, session),
        }

    def opening(self, *, with_usage: bool) -> str:
        """The first chunk of a stream: who speaks."""
        return self._chunk({"role": "assistant", "content": ""}, None, with_usage)

    def piece(self, text: str, *, with_usage: bool) -> str:
        """Some words."""
        return self._chunk({"content": text}, None, with_usage)

    def ending(self, reply: Reply, session: str, *, with_usage: bool) -> str:
        """The last chunks: why it ended and what was recalled, what it cost if that was asked for, and the end mark."""
        last = self._chunk({}, reply.completion.finish, with_usage, {"localmem": recalled(reply, session)})
        spent = {**self._head("chat.completion.chunk"), "choices": [], "usage": usage(reply.completion.usage)}
        return last + (_event(spent) if with_usage else "") + DONE

    def _chunk(self, delta: Json, finish: str | None, with_usage: bool, more: Json | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        chunk: Json = {**self._head("chat.completion.chunk"), "choices": [choice], **(more or {})}
        return _event({**chunk, "usage": None} if with_usage else chunk)

    def _head(self, kind: str) -> Json:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def failure(problem: Problem) -> str:
    """An error in the middle of a stream, which OpenAI's clients raise; the stream ends behind it."""
    return _event({**problem.body()})


def usage(spent: Usage) -> Json:
    """Tokens as OpenAI counts them."""
    return {
        "prompt_tokens": spent.input,
        "completion_tokens": spent.output,
        "total_tokens": spent.input + spent.output,
        "prompt_tokens_details": {"cached_tokens": spent.cached},
    }


def recalled(reply: Reply, session: str) -> Json:
    """What the reply knew: the units behind it, and the words as the model read them."""
    hits = [{"id": hit.unit.id, "text": hit.unit.text, "score": float(hit.score)} for hit in reply.recall.hits]
    return {"session": session, "recalled": hits, "memory": reply.recall.text}


def _event(body: Json) -> str:
    return f"data: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n"
