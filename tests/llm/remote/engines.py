"""The wires of the engines, as their makers publish them: what a server of each answers, with a fixed small model.

Each is a function from (path, body) to (status, content) for the loopback server. The model answers a schema with its
first allowed value, options with the first, and else "fine".
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.llm.remote.conftest import CHAT, Json, Reply, answer, stream_events

Wire = Callable[[str, Json], Reply]

MODEL = "small"
NOT_FOUND: Reply = (404, {"error": {"message": "not found"}})


def instance(schema: Mapping[str, Any]) -> object:
    """A value that follows the schema."""
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: instance(item) for name, item in schema.get("properties", {}).items()}
        case "array":
            return [instance(schema["items"])] * schema.get("minItems", 1)
        case "integer":
            return schema.get("minimum", 1)
        case "boolean":
            return True
    return "text"


def _served(owner: str, **fields: object) -> Json:
    return {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": owner, **fields}]}


def _chat(body: Json, text: str, logprobs: object = None) -> Reply:
    return (200, stream_events(*text.split(" "))) if body.get("stream") else (200, answer(text, logprobs=logprobs))


def _schema_of(body: Json) -> Mapping[str, Any] | None:
    form: Any = body.get("response_format")
    return form["json_schema"]["schema"] if form else None


def _letters(text: str) -> Json:
    """Log-probabilities of a text whose tokens are its characters; a rival of each is `x`."""
    rival = {"token": "x", "logprob": math.log(0.1), "bytes": [120]}
    tokens = [{"token": letter, "logprob": math.log(0.9), "bytes": list(letter.encode())} for letter in text]
    return {"content": [{**token, "top_logprobs": [token, rival]} for token in tokens]}


def vllm(path: str, body: Json) -> Reply:
    """VLLM 0.26."""
    options: Any = body.get("structured_outputs")
    if path == CHAT:
        schema = _schema_of(body)
        text = options["choice"][0] if options else json.dumps(instance(schema)) if schema is not None else "fine"
        return _chat(body, text, _letters(text) if body.get("logprobs") else None)
    if path == "/v1/models":
        return 200, _served("vllm", max_model_len=2000)
    if path == "/tokenize":
        return 200, {"count": len(str(body.get("prompt") or body.get("messages")).split())}
    return (200, {}) if path == "/health" else NOT_FOUND


def llama_cpp(path: str, body: Json) -> Reply:
    """llama.cpp b11549."""
    if path == CHAT:
        schema, grammar = _schema_of(body), re.findall(r'"(\w+)"', str(body.get("grammar", "")))
        text = grammar[0] if grammar else json.dumps(instance(schema)) if schema is not None else "fine"
        return _chat(body, text, _letters(text) if body.get("logprobs") else None)
    if path == "/v1/models":
        return 200, _served("llamacpp", meta={"n_ctx_train": 8192})
    if path == "/props":
        kinds = {"vision": False, "audio": False}
        return 200, {"default_generation_settings": {"n_ctx": 2048}, "build_info": "b11549", "modalities": kinds}
    if path == "/apply-template":
        messages: Any = body["messages"]
        return 200, {"prompt": " ".join(str(message["content"]) for message in messages)}
    if path == "/tokenize":
        return 200, {"tokens": list(range(len(str(body["content"]).split())))}
    return (200, {"status": "ok"}) if path == "/health" else NOT_FOUND


def ollama(path: str, body: Json) -> Reply:
    """Ollama 0.12.11, after the examples of its published API."""
    if path == "/api/chat":
        return _ollama_chat(body)
    if path == "/api/show":
        info = {"general.architecture": "llama", "llama.context_length": 8192}
        return 200, {"parameters": "num_keep 24", "model_info": info, "capabilities": ["completion", "tools"]}
    replies: Mapping[str, Json] = {
        "/v1/models": _served("library"),
        "/api/version": {"version": "0.12.11"},
        "/api/ps": {"models": [{"name": f"{MODEL}:latest", "context_length": 4096}]},
        "/api/tags": {"models": [{"name": f"{MODEL}:latest"}]},
    }
    return (200, replies[path]) if path in replies else NOT_FOUND


def _ollama_chat(body: Json) -> Reply:
    schema: Any = body.get("format")
    text = json.dumps(instance(schema)) if schema is not None else "fine"
    head: Json = {"model": MODEL, "created_at": "2025-11-20T10:00:00.000000Z"}
    counts = {"total_duration": 1, "prompt_eval_count": 26, "eval_count": 2}
    if not body["messages"]:
        return 200, {**head, "message": {"role": "assistant", "content": ""}, "done_reason": "load", "done": True}
    end = {"done": True, "done_reason": "stop", **counts}
    if body["stream"]:
        pieces = [{**head, "message": {"role": "assistant", "content": piece}, "done": False} for piece in text]
        lines = [*pieces, {**head, "message": {"role": "assistant", "content": ""}, **end}]
        return 200, "\n".join(map(json.dumps, lines)).encode()
    logprobs: Json = {"logprobs": _letters(text)["content"]} if body.get("logprobs") else {}
    return 200, {**head, "message": {"role": "assistant", "content": text}, **end, **logprobs}


def lm_studio(path: str, body: Json) -> Reply:
    """LM Studio 0.3: schemas are enforced, log-probabilities are not reported."""
    if path == CHAT:
        schema = _schema_of(body)
        return _chat(body, "fine" if schema is None else json.dumps(instance(schema)))
    if path.startswith("/api/v0/models"):
        model = {"id": MODEL, "loaded_context_length": 3000, "max_context_length": 8192}
        return 200, model if path.endswith(MODEL) else {"data": [model]}
    return (200, _served("organization_owner")) if path == "/v1/models" else NOT_FOUND


def tgi(path: str, body: Json) -> Reply:
    """text-generation-inference 3, which reports log-probabilities."""
    if path == CHAT:
        schema = _schema_of(body)
        text = "fine" if schema is None else json.dumps(instance(schema))
        return _chat(body, text, _letters(text) if body.get("logprobs") else None)
    if path == "/info":
        return 200, {"model_id": "org/small", "max_total_tokens": 2500}
    return (200, _served("org/small")) if path == "/v1/models" else NOT_FOUND


def sglang(path: str, body: Json) -> Reply:
    """SGLang 0.5."""
    return (200, _served("sglang", max_model_len=2200)) if path == "/v1/models" else tgi(path, body)


def plain(path: str, body: Json) -> Reply:
    """A server that knows nothing but messages: fields that it does not know are ignored."""
    messages: Any = body.get("messages")
    if path != CHAT:
        return (200, _served("someone")) if path == "/v1/models" else NOT_FOUND
    _, asks, schema = str(messages[-1]["content"]).partition("follows this JSON schema:\n")
    if not asks and "corrected JSON" not in str(messages[-1]["content"]):
        return _chat(body, "fine")
    if asks:  # the first attempt has a fence, and a field too many
        return _chat(body, "```json\n" + json.dumps({**_object(instance(json.loads(schema))), "more": 1}) + "\n```")
    first = str(messages[-3]["content"]).partition("follows this JSON schema:\n")[2]
    return _chat(body, json.dumps(instance(json.loads(first))))


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


WIRES: Mapping[str, Wire] = {
    "vLLM": vllm,
    "llama.cpp": llama_cpp,
    "Ollama": ollama,
    "LM Studio": lm_studio,
    "text-generation-inference": tgi,
    "SGLang": sglang,
    "OpenAI-compatible server": plain,
}
