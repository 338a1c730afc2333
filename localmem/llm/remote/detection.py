"""Which engine answers at an address, by what its servers say of themselves."""

from collections.abc import Mapping

from localmem.llm.remote.llama_cpp import LlamaCppProtocol
from localmem.llm.remote.ollama import OllamaProtocol
from localmem.llm.remote.openai_protocol import LMStudioProtocol, OpenAIProtocol, SGLangProtocol, TGIProtocol
from localmem.llm.remote.server_client import ServerClient
from localmem.llm.remote.vllm_protocol import VllmProtocol

# The owner in a server's list of models.
_OWNERS: Mapping[str, type[OpenAIProtocol]] = {
    "vllm": VllmProtocol,
    "llamacpp": LlamaCppProtocol,
    "sglang": SGLangProtocol,
}
# An address that only this engine has, with a field of its answer.
_ADDRESSES: tuple[tuple[str, str, type[OpenAIProtocol]], ...] = (
    ("/api/ps", "models", OllamaProtocol),
    ("/api/v0/models", "data", LMStudioProtocol),
    ("/info", "max_total_tokens", TGIProtocol),
    ("/props", "default_generation_settings", LlamaCppProtocol),
)


def detect(client: ServerClient) -> type[OpenAIProtocol]:
    """The protocol of the server; that of OpenAI where it is none that is known. Raises LLMUnavailable."""
    listed = (client.probe("/v1/models") or {}).get("data")
    owners = {str(model.get("owned_by")) for model in listed or () if isinstance(model, Mapping)} if listed else set()  # type: ignore[attr-defined]  # a list, or empty
    for owner, protocol in _OWNERS.items():
        if owner in owners:
            return protocol
    for path, field, protocol in _ADDRESSES:
        if field in (client.probe(path) or {}):
            return protocol
    return OpenAIProtocol
