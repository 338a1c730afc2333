"""OpenAI's routes for models and embeddings, and localmem's own route that ends a session.

Anthropic's clients list models at the same address: the answer has the fields of both, and pages as Anthropic has them.
"""

import base64
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal, Protocol, runtime_checkable

import numpy as np
from fastapi import APIRouter, Query
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from localmem.retrieval.base import Encoder
from localmem.retrieval.encoder import CachedEncoder
from localmem.server.chat_service import ALIAS
from localmem.server.dependencies import KeyOnly, Services, SharedServices, User
from localmem.server.documents import EndedSessions, describe_response
from localmem.server.errors import ApiError
from localmem.server.reply_documents import Beta, Embeddings, ModelList, ModelObject

Json = dict[str, object]

router = APIRouter(prefix="/v1")


class EmbeddingsRequest(BaseModel):
    """POST /v1/embeddings. `input_type` distinguishes questions from searched texts, for encoders that do."""

    model_config = ConfigDict(extra="ignore")

    model: str
    input: str | Annotated[list[str], Field(min_length=1, max_length=2048)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    input_type: Literal["query", "passage"] = "passage"

    @field_validator("input", mode="before")
    @classmethod
    def _check_texts(cls, texts: object) -> object:
        if isinstance(texts, list) and texts and isinstance(texts[0], int | list):
            raise PydanticCustomError(
                "token_ids", "send texts, not token ids (LangChain: check_embedding_ctx_length=False)"
            )
        return texts


class EndRequest(BaseModel):
    """POST /v1/sessions/end: one session, or all open ones."""

    model_config = ConfigDict(extra="forbid")

    session: str | None = None


@runtime_checkable
class CountsTokens(Protocol):
    """An encoder with a tokenizer."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text."""
        ...


@router.head("/models", dependencies=[KeyOnly], include_in_schema=False)
@router.get("/models", dependencies=[KeyOnly], **describe_response(ModelList))
def models(
    services: SharedServices,
    limit: Annotated[int, Query(ge=1, le=1000)] = 20,
    after_id: str | None = None,
    before_id: str | None = None,
    _beta: Beta = None,
) -> Json:
    """What can be chatted with: the backbone, also by the name `localmem`; and the encoder. Raises ApiError."""
    names = _served_names(services)
    for param, name in (("after_id", after_id), ("before_id", before_id)):
        if name is not None and name not in names:
            raise ApiError(400, f"{param} is {name!r}; use {' or '.join(map(repr, names))}", param=param)
    start = 0 if after_id is None else names.index(after_id) + 1
    chosen = names[start : None if before_id is None else names.index(before_id)]
    page = chosen[:limit] if before_id is None else chosen[-limit:]
    ends = {"first_id": page[0] if page else None, "last_id": page[-1] if page else None}
    data = [_model(services, name) for name in page]
    return {"object": "list", "data": data, **ends, "has_more": len(page) < len(chosen)}


@router.get("/models/{name}", dependencies=[KeyOnly], **describe_response(ModelObject))
def model(name: str, services: SharedServices, _beta: Beta = None) -> Json:
    """One model. Raises ApiError for an unknown name."""
    if name not in _served_names(services):
        raise _unknown_model(services, name)
    return _model(services, name)


@router.post("/embeddings", dependencies=[KeyOnly], **describe_response(Embeddings))
def embeddings(body: EmbeddingsRequest, services: SharedServices) -> Json:
    """Unit vectors of the texts; nothing is stored."""
    if body.model not in (services.settings.retrieval.encoder, ALIAS):
        raise _unknown_model(services, body.model)
    texts = [body.input] if isinstance(body.input, str) else body.input
    if not all(text.strip() for text in texts):
        raise ApiError(400, "input contains an empty text; remove it", param="input")
    encoder = services.runtime.encoder()
    if isinstance(encoder, CachedEncoder):  # texts that a client embeds are not written to the store
        encoder = encoder.inner
    if body.dimensions not in (None, encoder.dimension):
        raise ApiError(400, f"this encoder has {encoder.dimension} dimensions; omit dimensions", param="dimensions")
    rows = encoder.encode(texts, body.input_type)
    data = [
        {"object": "embedding", "index": index, "embedding": _encode_vector(row, body.encoding_format)}
        for index, row in enumerate(rows)
    ]
    return {
        "object": "list",
        "model": services.settings.retrieval.encoder,
        "data": data,
        "usage": _usage(encoder, texts),
    }


@router.post("/sessions/end", **describe_response(EndedSessions))
def end(services: SharedServices, user: User, body: EndRequest | None = None) -> Json:
    """Close one session, or all of the user's; they are remembered in the background."""
    return {"object": "list", "ended": services.sessions.end(user, body.session if body else None)}


def _usage(encoder: Encoder, texts: list[str]) -> Json | None:
    """Tokens by the encoder's tokenizer; None for an encoder without one."""
    if not isinstance(encoder, CountsTokens):
        return None
    tokens = sum(encoder.count_tokens(texts))
    return {"prompt_tokens": tokens, "total_tokens": tokens}


def _encode_vector(row: NDArray[np.float32], encoding: str | None) -> str | list[float]:
    if encoding == "base64":
        return base64.b64encode(row.astype("<f4").tobytes()).decode()
    floats: list[float] = row.tolist()
    return floats


def _served_names(services: Services) -> tuple[str, ...]:
    return services.settings.model, ALIAS, services.settings.retrieval.encoder


def _model(services: Services, name: str) -> Json:
    started = datetime.fromtimestamp(services.started, UTC).isoformat().replace("+00:00", "Z")
    own = {"id": name, "object": "model", "created": services.started, "owned_by": "localmem"}
    return {**own, "type": "model", "display_name": name, "created_at": started, "lifecycle": "active"}


def _unknown_model(services: Services, name: str) -> ApiError:
    names = " or ".join(map(repr, _served_names(services)))
    return ApiError(404, f"the model {name!r} is not served here; use {names}", param="model", code="model_not_found")
