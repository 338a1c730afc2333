"""Each client in turn, with a key and so a memory of its own: what it says and asks, and what the store then holds.

Run by scripts/check_clients. A line for each expectation; exits with 1 when any of them does not hold.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx

ROOT = Path(__file__).parent.parent
FACT = "My sister Ines lives in Porto and builds boats."
QUESTION = "Where does my sister Ines live?"
UNKNOWN = "Where does my cousin Teo work?"  # the reply to it is a denial
TITLE = (
    "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\n### Output:\n"
    'JSON format: { "title": "your concise title here" }\n### Chat History:\n'
    "<chat_history>\nUSER: I keep 900 bees.\n</chat_history>"
)
FEW_SHOT = [
    {"role": "system", "content": "Classify the sentiment."},
    {"role": "user", "content": "Review: I hated the film Zardoz.\nSentiment:"},
    {"role": "assistant", "content": "negative"},
    {"role": "user", "content": "Review: I adored the film Brazil.\nSentiment:"},
    {"role": "assistant", "content": "positive"},
    {"role": "user", "content": "Review: I slept through the film Dune.\nSentiment:"},
]
PASTE = "Please read this log.\n" + "\n".join(
    f"2026-03-02 12:{n // 60:02}:{n % 60:02} INFO worker {n % 7} finished job {n * 37 % 1000}" for n in range(60)
)
FOREIGN = ("OPENAI_", "ANTHROPIC_", "LOCALMEM_")  # a developer's own settings
OWN_ENVIRONMENT = ("aider", "mem0", "open-webui")
SINGLE_MESSAGE = ("llm", "aider")  # these send one message of the user, and aider its own around it


class Client(NamedTuple):
    name: str
    talk: Callable[..., dict[str, Any]]
    http: httpx.Client


class Report:
    """Prints what holds, and counts what does not."""

    def __init__(self) -> None:
        self.failures = 0
        self.passes = 0

    def expect(self, client: str, claim: str, holds: bool, value: object = "") -> None:
        self.passes, self.failures = self.passes + holds, self.failures + (not holds)
        print(f"{client:10} {'ok  ' if holds else 'FAIL'} {claim}{'' if holds else f': {value!r}'}", flush=True)


@contextmanager
def serve(clients: list[str]) -> Iterator[str]:
    """A server on the starter, with a key for each client; its address."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        keys: dict[str, object] = {f"secret-of-{name}": name for name in clients}
        for name in {"open-webui", "mem0"}.intersection(clients):
            keys[f"secret-of-{name}"] = {"user": name, "trusted_users": True}
        config = Path(folder, "settings.yaml")
        config.write_text(json.dumps({"data": f"{folder}/data", "server": {"port": port, "keys": keys}}))
        server = subprocess.Popen([ROOT / ".venv/bin/localmem", "serve", "--config", config], cwd=folder)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_ready(url, server)
            yield url
        finally:
            server.terminate()
            with suppress(subprocess.TimeoutExpired):
                server.wait(60)
            server.kill()


def wait_until_ready(url: str, server: "subprocess.Popen[bytes]") -> None:
    for _ in range(600):
        if server.poll() is not None:
            sys.exit("check_clients: the server ended before it was ready")
        try:
            if httpx.get(f"{url}/health/ready", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    sys.exit("check_clients: the server was not ready after 300 s")


@contextmanager
def connect(name: str, python: Path, url: str) -> Iterator[Client]:
    """The client as a process in its own environment, and access to its user's memory."""
    command = [str(python), str(ROOT / "scripts/clients/talk.py"), name, url, f"secret-of-{name}"]
    own = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=own)
    requests, replies = process.stdin, process.stdout
    if requests is None or replies is None:
        raise RuntimeError("the client process has no pipes")

    def talk(messages: str | list[dict[str, str]], **options: object) -> dict[str, Any]:
        sent = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        requests.write(json.dumps({"messages": sent, **options}) + "\n")
        requests.flush()
        line = replies.readline()
        return dict(json.loads(line)) if line else {"error": "the client process ended"}

    with httpx.Client(base_url=url, headers={"authorization": f"Bearer secret-of-{name}"}, timeout=300) as http:
        try:
            yield Client(name, talk, http)
        finally:
            process.terminate()
            process.wait(30)


# -- the store -----------------------------------------------------------------------------------------------------


def units(client: Client) -> list[str]:
    return [unit["text"] for unit in client.http.get("/v1/memories", params={"limit": 1000}).json()["data"]]


def logged_replies(client: Client) -> list[str]:
    lines = map(json.loads, client.http.get("/v1/export").text.splitlines()[1:])
    return [line["text"] for line in lines if line["kind"] == "turn" and line["role"] == "assistant"]


def end_chat(client: Client) -> None:
    client.http.post("/v1/sessions/end", json={}).raise_for_status()


def recall_hits(client: Client) -> list[dict[str, Any]]:
    hits: list[dict[str, Any]] = client.http.post("/v1/memories/recall", json={"text": QUESTION}).json()["hits"]
    return hits


# -- what must hold ------------------------------------------------------------------------------------------------


def check_memory(client: Client, report: Report) -> None:
    reply = client.talk(FACT, stream=True)
    text = str(reply.get("text", "")).strip()
    report.expect(client.name, "a streamed reply arrives", bool(text), reply)
    texts = units(client)
    report.expect(client.name, "what is told is a memory at once", any("Porto" in unit for unit in texts), texts)
    stored = "".join(logged_replies(client)[-1:]).strip()
    intact = stored == text or (client.name == "aider" and stored in text)
    report.expect(client.name, "the whole reply is in the log", bool(stored) and intact, (stored, text))
    end_chat(client)
    reply = client.talk(QUESTION)
    report.expect(client.name, "told in chat 1, known in chat 2", "Porto" in str(reply.get("text")), reply)


def check_tasks(client: Client, report: Report) -> None:
    requests: list[str | list[dict[str, str]]] = [TITLE, UNKNOWN]
    if client.name not in SINGLE_MESSAGE:
        requests.append(FEW_SHOT)
    for messages in requests:
        end_chat(client)
        reply = client.talk(messages)
        if "error" in reply:
            report.expect(client.name, f"answers {messages!r}", holds=False, value=reply)
    traces = ("900 bees", "film", "### Task", "Teo")
    junk = [text for text in units(client) if any(trace in text for trace in traces)]
    report.expect(client.name, "no task prompt, example or denial is a memory", not junk, junk)


def check_repetition(client: Client, report: Report) -> None:
    def place() -> int:
        return next((number for number, hit in enumerate(recall_hits(client)) if "Porto" in hit["text"]), 99)

    before, count, answers = place(), len(units(client)), []
    for _ in range(5):
        end_chat(client)
        answers.append(str(client.talk(QUESTION).get("text")))
    right = all("Porto" in text for text in answers)
    report.expect(client.name, "asked five times, answered five times", right, answers)
    report.expect(client.name, "its evidence stays in its place", place() <= before < 99, (before, place()))
    report.expect(client.name, "nothing of it is a memory", len(units(client)) == count, units(client))


def check_paste(client: Client, report: Report) -> None:
    """By the next prompt's length, which decides how long a turn takes; times depend on what else the machine does."""

    def prompt_tokens() -> int:
        end_chat(client)
        body = {"model": "localmem", "messages": [{"role": "user", "content": "Tell me a joke."}], "max_tokens": 1}
        reply = client.http.post("/v1/chat/completions", json=body, headers={"x-localmem": "read"})
        return int(reply.json()["usage"]["prompt_tokens"])

    before = prompt_tokens()
    end_chat(client)
    reply = client.talk(PASTE)
    report.expect(client.name, "a paste is answered", "error" not in reply, reply)
    after = prompt_tokens()
    claim = f"the next prompt is short: {before} tokens, after a paste {after}"
    report.expect(client.name, claim, after < before + len(PASTE) // 8, (before, after))


def check_tools(client: Client, report: Report) -> None:
    end_chat(client)
    reply = client.talk("What is the weather in Oslo?", tools=True)
    right = "value" in reply or "tools" in str(reply.get("error"))
    report.expect(client.name, "tools reach the engine, or are refused by name", right, reply)
    reply = client.talk("In which city is the Eiffel tower?", schema=True)
    report.expect(client.name, "structured output is in its form", isinstance(reply.get("value"), dict), reply)
    junk = [text for text in units(client) if "weather(" in text or "properties" in text]
    report.expect(client.name, "no schema is a memory", not junk, junk)


def check_people(client: Client, report: Report) -> None:
    """Two people behind Open WebUI's one key, and what its page asks for on its own account; ana is its own from here.

    The memories are read as the server keeps them: under the id that Open WebUI gave each person.
    """
    ids = {}
    for person, words in (("ana", "Hello there!"), ("ben", FACT.replace("Ines", "Ute").replace("Porto", "Graz"))):
        reply = client.talk(words, person=person, stream=True)
        ids[person] = str(reply.get("id"))
        report.expect(client.name, f"{person} gets a reply", bool(str(reply.get("text", "")).strip()), reply)
    client.http.headers["X-OpenWebUI-User-Id"] = ids["ben"]
    texts = units(client)
    report.expect(client.name, "what ben tells is in ben's memory", any("Graz" in text for text in texts), texts)
    client.http.headers["X-OpenWebUI-User-Id"] = ids["ana"]
    report.expect(client.name, "and not in ana's", not units(client), units(client))
    reply = client.talk("Where does my sister Ute live?", person="ben")
    report.expect(client.name, "ben is answered from it in a new chat", "Graz" in str(reply.get("text")), reply)
    reply = client.talk("Where does my sister Ute live?", person="ana")
    report.expect(client.name, "ana is not", "Graz" not in str(reply.get("text")), reply)
    dialogue = [{"role": "user", "content": FACT.replace("Porto", "Lagos")}, {"role": "assistant", "content": "Nice."}]
    for task in ("title", "tags", "follow_up"):
        reply = client.talk(dialogue, task=task)
        report.expect(client.name, f"its task {task} is answered", "value" in reply, reply)
    texts = units(client)
    report.expect(client.name, "no task of its is a memory", not any("Lagos" in text for text in texts), texts)


def check_mem0(client: Client, report: Report) -> None:
    """mem0's own Python client, with its host set to this server, and what the store then holds."""

    def call(name: str, *arguments: object, **named: object) -> Any:  # noqa: ANN401  # whatever mem0 answers
        reply = client.talk([], calls=[[name, arguments, named]])
        report.expect(client.name, f"{name} works", "value" in reply, reply)
        return reply.get("value", [{}])[0]

    def texts(answer: dict[str, Any]) -> str:
        return str([memory["memory"] for memory in answer.get("results", [])])

    ines, teo = {"filters": {"user_id": "ines"}}, {"filters": {"user_id": "teo"}}
    dialogue = [{"role": "user", "content": FACT}, {"role": "assistant", "content": "How nice."}]
    added = call("add", dialogue, user_id="ines")
    report.expect(client.name, "the answer names the memory", "Porto" in texts(added), added)
    report.expect(client.name, "a search finds it", "Porto" in texts(call("search", QUESTION, **ines)))
    report.expect(client.name, "another user's does not", "Porto" not in texts(call("search", QUESTION, **teo)))
    client.http.headers["X-OpenWebUI-User-Id"] = "ines"
    report.expect(client.name, "it is in the store", any("Porto" in text for text in units(client)), units(client))
    memory = call("get_all", **ines)["results"][0]["id"]
    changed = call("update", memory, text=FACT.replace("Porto", "Braga"))
    report.expect(client.name, "an update replaces it", "Braga" in texts(call("get_all", **ines)), changed)
    events = [event["event"] for event in call("history", memory)]
    report.expect(client.name, "its history is told", events == ["ADD", "UPDATE"], events)
    call("delete", changed["id"])
    report.expect(client.name, "a deleted one is gone", not units(client), units(client))
    call("delete_all", user_id="ines")
    report.expect(client.name, "nobody is left", call("users").get("count") == 0)


def check_inspector(report: Report) -> None:
    """The MCP inspector's command line, with `localmem mcp` on a store of its own."""
    name = "mcp-inspector"
    with tempfile.TemporaryDirectory() as folder:
        own = {**os.environ, "XDG_DATA_HOME": folder}

        def call(method: str, *arguments: str) -> str:
            command = ["npx", "-y", "@modelcontextprotocol/inspector", "--cli", "-e", f"XDG_DATA_HOME={folder}"]
            command += [str(ROOT / ".venv/bin/localmem"), "mcp", "--method", method, *arguments]
            return subprocess.run(command, env=own, capture_output=True, text=True, timeout=300, check=False).stdout

        tools = call("tools/list")
        report.expect(name, "the tools are listed", all(f'"{tool}"' in tools for tool in ("remember", "recall")), tools)
        call("tools/call", "--tool-name", "remember", "--tool-arg", f"text={FACT}")
        show = [str(ROOT / ".venv/bin/localmem"), "show"]
        memory = subprocess.run(show, env=own, capture_output=True, text=True, check=False).stdout
        report.expect(name, "what it remembers is in the store", "Porto" in memory, memory)
        recall = call("tools/call", "--tool-name", "recall", "--tool-arg", f"message={QUESTION}")
        report.expect(name, "and is recalled in another process", "Porto" in recall, recall)


def main() -> None:
    cache, clients = Path(sys.argv[1]), sys.argv[2:]
    report = Report()
    if "mcp-inspector" in clients:
        clients.remove("mcp-inspector")
        check_inspector(report)
    with serve(clients) if clients else nullcontext("") as url:
        for name in clients:
            folder = {"litellm": "all"}.get(name, name if name in OWN_ENVIRONMENT else "light")
            with connect(name, cache / folder / "bin/python", url) as client:
                if name == "mem0":
                    check_mem0(client, report)
                    continue
                if name == "open-webui":
                    check_people(client, report)
                check_memory(client, report)
                check_tasks(client, report)
                check_repetition(client, report)
                if name == "openai":  # once: a long prompt takes a CPU long
                    check_paste(client, report)
                if name == "langchain":
                    check_tools(client, report)
    print(f"{report.passes} passed, {report.failures} failed")
    sys.exit(1 if report.failures else 0)


if __name__ == "__main__":
    main()
