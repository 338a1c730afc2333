"""The responses of the protocols of others, for readers of the OpenAPI description: the fields that always come.

Their own documents have every field; a generated test (`tests/drills/fuzz.py`) checks what the routes write.
"""

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict

Fields = dict[str, Any]
Beta = Annotated[bool | None, Query(alias="beta")]  # Anthropic's clients send it for what is new; nothing depends on it


class _Reply(BaseModel):
    model_config = ConfigDict(extra="allow")


class ChatCompletion(_Reply):
    """OpenAI's chat completion; `localmem` says what was recalled."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Fields]
    usage: Fields
    localmem: Fields


class TextCompletion(_Reply):
    """OpenAI's completion of a text."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[Fields]


class ResponseObject(_Reply):
    """OpenAI's response."""

    id: str
    object: Literal["response"]
    created_at: int
    model: str
    status: Literal["completed", "incomplete", "in_progress"]
    output: list[Fields]
    usage: Fields | None


class AnthropicReply(_Reply):
    """Anthropic's message."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Fields]
    stop_reason: str | None
    usage: Fields


class TokenCount(_Reply):
    """Anthropic's count of tokens."""

    input_tokens: int


class OllamaReply(_Reply):
    """Ollama's reply: `message` of a chat, `response` to a prompt."""

    model: str
    created_at: str
    done: bool
    message: Fields = {}
    response: str = ""


class OllamaModels(_Reply):
    """Ollama's list of models."""

    models: list[Fields]


class OllamaModel(_Reply):
    """Ollama's description of a model."""

    capabilities: list[str]
    model_info: Fields


class ModelObject(_Reply):
    """OpenAI's description of a model, and Anthropic's."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    type: Literal["model"]
    display_name: str
    created_at: str


class ModelList(_Reply):
    """OpenAI's list of models, and Anthropic's."""

    object: Literal["list"]
    data: list[ModelObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Embeddings(_Reply):
    """OpenAI's embeddings; without a tokenizer there is no usage."""

    object: Literal["list"]
    model: str
    data: list[Fields]
    usage: Fields | None


class AnthropicError(_Reply):
    """An error as Anthropic writes it."""

    type: Literal["error"]
    error: Fields


class OllamaError(_Reply):
    """An error as Ollama writes it."""

    error: str


def errors_as(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """The errors of a router in the form of its protocol."""
    return {"4XX": {"model": model}, "5XX": {"model": model}}


def stream_document(model: type[BaseModel], media_type: str = "text/event-stream") -> dict[str, Any]:
    """The arguments of a route that answers with a document, or with a stream if the client wants one."""
    return {"response_model": None, "responses": {200: {"model": model, "content": {media_type: {}}}}}
