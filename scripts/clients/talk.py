# mypy: ignore-errors
# The libraries are not in the environment in which types are checked.
"""Speaks through one client library: `talk.py CLIENT URL KEY`, a JSON request a line in, a JSON reply a line out.

Runs in the clients' own environment and imports nothing of localmem. A request is {"messages": [...]}, with "stream",
or with "tools" or "schema" for what LangChain does with them, "person" or "task" for Open WebUI, "calls" for mem0. A
reply has a "text", a "value" or an "error", and the "id" of a person.
"""

import atexit
import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Messages = list[dict[str, str]]
MODEL = "localmem"
TOKENS = 60


def openai_text(url: str, key: str, messages: Messages, stream: bool) -> str:
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key=key, timeout=300, max_retries=0)
    reply: Any = client.chat.completions.create(model=MODEL, messages=messages, stream=stream, max_tokens=TOKENS)
    if stream:
        return "".join(chunk.choices[0].delta.content or "" for chunk in reply if chunk.choices)
    return str(reply.choices[0].message.content)


def langchain_model(url: str, key: str) -> Any:  # noqa: ANN401  # of a library that is not installed here
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=MODEL, base_url=f"{url}/v1", api_key=key, timeout=300, max_retries=0, max_tokens=TOKENS)


def langchain_text(url: str, key: str, messages: Messages, stream: bool) -> str:
    model = langchain_model(url, key)
    return (
        "".join(str(part.content) for part in model.stream(messages)) if stream else str(model.invoke(messages).content)
    )


def langchain_tool_call(url: str, key: str, messages: Messages) -> object:
    def weather(city: str) -> str:
        """The weather in a city."""
        return f"sunny in {city}"

    return langchain_model(url, key).bind_tools([weather]).invoke(messages).tool_calls


def langchain_structure(url: str, key: str, messages: Messages) -> object:
    schema = {
        "title": "place",
        "description": "A place.",
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    }
    return langchain_model(url, key).with_structured_output(schema, method="json_schema").invoke(messages)


def litellm_text(url: str, key: str, messages: Messages, stream: bool) -> str:
    import litellm

    reply = litellm.completion(
        f"openai/{MODEL}", messages, api_base=f"{url}/v1", api_key=key, stream=stream, max_tokens=TOKENS, timeout=300
    )
    if stream:
        return "".join(chunk.choices[0].delta.content or "" for chunk in reply)
    return str(reply.choices[0].message.content)


def anthropic_text(url: str, key: str, messages: Messages, stream: bool) -> str:
    from anthropic import Anthropic

    client = Anthropic(base_url=url, api_key=key, timeout=300, max_retries=0)
    if stream:
        with client.messages.stream(model=MODEL, messages=messages, max_tokens=TOKENS) as events:
            return "".join(events.text_stream)
    return str(client.messages.create(model=MODEL, messages=messages, max_tokens=TOKENS).content[0].text)


def ollama_text(url: str, key: str, messages: Messages, stream: bool) -> str:
    from ollama import Client

    client = Client(host=url, headers={"authorization": f"Bearer {key}"}, timeout=300)
    reply = client.chat(MODEL, messages, stream=stream, options={"num_predict": TOKENS})
    return "".join(part.message.content for part in reply) if stream else str(reply.message.content)


def llm_text(url: str, key: str, messages: Messages, stream: bool) -> str:
    with tempfile.TemporaryDirectory() as folder:
        entry = f"- model_id: {MODEL}\n  model_name: {MODEL}\n  api_base: {url}/v1\n  api_key_name: localmem\n"
        Path(folder, "extra-openai-models.yaml").write_text(entry)
        Path(folder, "keys.json").write_text(json.dumps({"localmem": key}))
        flags = [] if stream else ["--no-stream"]
        program = [str(Path(sys.executable).with_name("llm")), "-m", MODEL, "-o", "max_tokens", str(TOKENS), *flags]
        return _run([*program, messages[-1]["content"]], {"LLM_USER_PATH": folder}, folder).removesuffix("\n")


def aider_text(url: str, key: str, messages: Messages, stream: bool) -> str:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "greet.py").write_text("def greet():\n    return 'hello'\n")
        program = [
            str(Path(sys.executable).with_name("aider")),
            "--model",
            f"openai/{MODEL}",
            "--no-git",
            "--yes-always",
        ]
        flags = [
            "--no-show-model-warnings",
            "--no-check-update",
            "--analytics-disable",
            "--no-pretty",
            "--no-auto-lint",
        ]
        flags += ["--edit-format", "ask", "--stream" if stream else "--no-stream", "--map-tokens", "0"]
        access = {"OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": key, "HOME": folder}
        return _run([*program, *flags, "--message", messages[-1]["content"], "greet.py"], access, folder)


def mem0_calls(url: str, key: str, calls: list[list[Any]]) -> list[object]:
    """The answers to calls of methods of mem0's client, each a name, its arguments and those by name."""
    os.environ["MEM0_TELEMETRY"] = "False"
    from mem0 import MemoryClient

    client = MemoryClient(api_key=key, host=f"{url}/mem0")
    return [getattr(client, name)(*arguments, **named) for name, arguments, named in calls]


def open_webui_text(url: str, key: str, messages: Messages, stream: bool, person: str = "ana") -> str:
    import httpx

    site = _open_webui(url, key)
    body = {"model": MODEL, "messages": messages, "stream": stream, "max_tokens": TOKENS}
    reply = httpx.post(f"{site}/api/chat/completions", json=body, headers=_sign_in(site, person)[1], timeout=300)
    reply.raise_for_status()
    if not stream:
        return str(reply.json()["choices"][0]["message"]["content"])
    events = (line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: {"))
    choices = (choice for event in events for choice in json.loads(event).get("choices", []))
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def open_webui_task(url: str, key: str, messages: Messages, task: str) -> object:
    """A task that its page sets after a reply: `title`, `tags`, `follow_up`."""
    import httpx

    site = _open_webui(url, key)
    body = {"model": MODEL, "messages": messages, "chat_id": "1"}
    access = _sign_in(site, "ana")[1]
    reply = httpx.post(f"{site}/api/v1/tasks/{task}/completions", json=body, headers=access, timeout=300)
    return reply.raise_for_status().json()["choices"][0]["message"]["content"]


@functools.cache
def _open_webui(url: str, key: str) -> str:
    """The address of an Open WebUI before the server, which ends with this process."""
    import httpx

    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    settings = {"DATA_DIR": folder, "WEBUI_SECRET_KEY": "local", "OFFLINE_MODE": "true", "HF_HUB_OFFLINE": "1"}
    settings |= {"RAG_EMBEDDING_ENGINE": "openai", "ENABLE_OLLAMA_API": "false", "HOME": folder}
    settings |= {"ENABLE_FORWARD_USER_INFO_HEADERS": "true", "BYPASS_MODEL_ACCESS_CONTROL": "true"}
    settings |= {"OPENAI_API_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": key}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = [str(Path(sys.executable).with_name("open-webui")), "serve", "--host", "127.0.0.1", "--port", str(port)]
    own = {**os.environ, **settings}
    with Path(folder, "log").open("wb") as log:
        server = subprocess.Popen(program, env=own, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    atexit.register(server.terminate)
    site = f"http://127.0.0.1:{port}"
    for _ in range(600):
        if server.poll() is not None:
            raise RuntimeError(Path(folder, "log").read_text()[-600:])
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{site}/health").status_code == 200:
                return site
        time.sleep(1)
    raise RuntimeError("Open WebUI did not start within 600 s")


@functools.cache
def _sign_in(site: str, person: str) -> tuple[str, dict[str, str]]:
    """The person's id and access. The first to sign up is the administrator, who adds the others."""
    import httpx

    form = {"name": person.title(), "email": f"{person}@example.org", "password": "a-long-password-1"}
    if person == "ana":
        answer = httpx.post(f"{site}/api/v1/auths/signup", json=form, timeout=120)
    else:
        admin = _sign_in(site, "ana")[1]
        added = httpx.post(f"{site}/api/v1/auths/add", json={**form, "role": "user"}, headers=admin, timeout=120)
        added.raise_for_status()
        answer = httpx.post(f"{site}/api/v1/auths/signin", json=form, timeout=120)
    account = answer.raise_for_status().json()
    access = {"authorization": f"Bearer {account['token']}"}
    httpx.get(f"{site}/api/models", headers=access, timeout=120).raise_for_status()
    return account["id"], access


def _run(command: list[str], environment: dict[str, str], folder: str) -> str:
    process = subprocess.run(
        command,
        env={**os.environ, **environment},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if process.returncode:
        raise RuntimeError(process.stderr[-300:])
    return process.stdout


CLIENTS: dict[str, Callable[[str, str, Messages, bool], str]] = {
    "openai": openai_text,
    "langchain": langchain_text,
    "litellm": litellm_text,
    "anthropic": anthropic_text,
    "ollama": ollama_text,
    "llm": llm_text,
    "aider": aider_text,
    "open-webui": open_webui_text,
}


def answer(client: str, url: str, key: str, request: dict[str, Any]) -> dict[str, object]:
    messages = request["messages"]
    try:
        if request.get("tools"):
            return {"value": langchain_tool_call(url, key, messages)}
        if request.get("schema"):
            return {"value": langchain_structure(url, key, messages)}
        if calls := request.get("calls"):
            return {"value": mem0_calls(url, key, calls)}
        if request.get("task"):
            return {"value": open_webui_task(url, key, messages, request["task"])}
        if person := request.get("person"):
            text = open_webui_text(url, key, messages, bool(request.get("stream")), person)
            return {"text": text, "id": _sign_in(_open_webui(url, key), person)[0]}
        return {"text": CLIENTS[client](url, key, messages, bool(request.get("stream")))}
    except Exception as error:  # noqa: BLE001  # the caller decides which errors are right
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    client, url, key = sys.argv[1:]
    for line in sys.stdin:
        print(json.dumps(answer(client, url, key, json.loads(line)), default=str), flush=True)


if __name__ == "__main__":
    # A terminated process still ends the server that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    main()
