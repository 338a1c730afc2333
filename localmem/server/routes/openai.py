"""OpenAI's other routes, models and embeddings, and localmem's own end of a session. Knows the wire and the desk."""

import base64
from collections.abc import Sequence
from typing import Annotated, Literal, Protocol, runtime_checkable

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from localmem.retrieval.base import Encoder
from localmem.retrieval.encoder import CachedEncoder
from localmem.server.dependencies import Services, Shared, User
from localmem.server.errors import Problem
from localmem.server.routes.completions import ALIAS

Json = dict[str, object]

router = APIRouter(prefix="/v1")


class EmbeddingsRequest(BaseModel):
    """POST /v1/embeddings. `input_type` tells a question from a text that is searched, for encoders that differ."""

    model_config = ConfigDict(extra="ignore")

    model: str
    input: str | Annotated[list[str], Field(min_length=1, max_length=2048)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    input_type: Literal["query", "passage"] = "passage"


class EndRequest(BaseModel):
    """POST /v1/sessions/end: one session, or all that go on."""

    model_config = ConfigDict(extra="forbid")

    session: str | None = None


@runtime_checkable
class Tokenizing(Protocol):
    """An encoder that can say how long a text is."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        ...


@router.get("/models")
def models(shared: Shared, _user: User) -> Json:
    """The backbone and the encoder."""
    return {"object": "list", "data": [_model(shared, name) for name in _served(shared)]}


@router.get("/models/{name}")
def model(name: str, shared: Shared, _user: User) -> Json:
    """One of them. Raises Problem."""
    if name not in (*_served(shared), ALIAS):
        raise _unknown(shared, name)
    return _model(shared, name)


@router.post("/embeddings")
def embeddings(body: EmbeddingsRequest, shared: Shared, _user: User) -> Json:
    """Unit vectors of the texts; nothing of them is kept."""
    if body.model not in (shared.settings.retrieval.encoder, ALIAS):
        raise _unknown(shared, body.model)
    texts = [body.input] if isinstance(body.input, str) else body.input
    if not all(text.strip() for text in texts):
        raise Problem(400, "input holds an empty text; leave it out", param="input")
    encoder = _uncached(shared.runtime.encoder())
    if body.dimensions not in (None, encoder.dimension):
        raise Problem(400, f"this encoder gives {encoder.dimension} dimensions", param="dimensions")
    rows = encoder.encode(texts, body.input_type)
    data = [
        {"object": "embedding", "index": index, "embedding": _written(row, body.encoding_format)}
        for index, row in enumerate(rows)
    ]
    return {"object": "list", "model": shared.settings.retrieval.encoder, "data": data, "usage": _usage(encoder, texts)}


@router.post("/sessions/end")
def end(shared: Shared, user: User, body: EndRequest | None = None) -> Json:
    """Closes the session, or all of the user's; they are remembered in the background."""
    return {"object": "list", "ended": shared.desk.end(user, body.session if body else None)}


def _uncached(encoder: Encoder) -> Encoder:
    """Vectors of what a client only asks about are not written to the store."""
    return encoder.inner if isinstance(encoder, CachedEncoder) else encoder


def _usage(encoder: Encoder, texts: list[str]) -> Json | None:
    """Tokens under the encoder's tokenizer; None for one that has none."""
    if not isinstance(encoder, Tokenizing):
        return None
    tokens = sum(encoder.count_tokens(texts))
    return {"prompt_tokens": tokens, "total_tokens": tokens}


def _written(row: NDArray[np.float32], encoding: str | None) -> str | list[float]:
    if encoding == "base64":
        return base64.b64encode(row.astype("<f4").tobytes()).decode()
    floats: list[float] = row.tolist()
    return floats


def _served(shared: Services) -> tuple[str, str]:
    return shared.settings.model, shared.settings.retrieval.encoder


def _model(shared: Services, name: str) -> Json:
    return {"id": name, "object": "model", "created": shared.started, "owned_by": "localmem"}


def _unknown(shared: Services, name: str) -> Problem:
    served = " or ".join(map(repr, (*_served(shared), ALIAS)))
    return Problem(
        404, f"the model {name!r} is not served here; ask for {served}", param="model", code="model_not_found"
    )
