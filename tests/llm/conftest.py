"""The three LLMs under test: scripted, in process on the starter weights, and one vLLM server for the whole run.

The server is started by the first test here and warms up while others run; tests that need it run last.
"""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from localmem.llm.remote.remote_llm import RemoteLLM
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.transformers import TransformersLLM
from localmem.llm.vllm.vllm_server import VllmServer, VllmSettings
from localmem.types import Choice, JsonSchema, Prompt

CONTEXT = 1024


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path.is_relative_to(here) and item.get_closest_marker("vllm") is not None)


@pytest.fixture
def unused_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def scripted_llm() -> ScriptedLLM:
    return ScriptedLLM(_script, context_length=CONTEXT)


def _script(prompt: Prompt) -> str:
    match prompt.format:
        case Choice(options=options):
            return options[0]
        case JsonSchema(schema=schema):
            return json.dumps(schema.get("const", {}))
    seed = f" {prompt.seed}" if prompt.temperature else ""
    return f"So it was{seed}, and " + " ".join(str(number) for number in range(prompt.max_tokens + 1))


@pytest.fixture(scope="session")
def transformers_llm(starter_llm_dir: Path) -> TransformersLLM:
    return TransformersLLM(starter_llm_dir, name="starter", context_length=CONTEXT, device="cpu", dtype="float32")


@pytest.fixture(scope="session", autouse=True)
def vllm_server(
    request: pytest.FixtureRequest, starter_llm_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VllmServer | None]:
    if not any(item.get_closest_marker("vllm") for item in request.session.items):
        yield None
        return
    # So few tokens a step that long prompts do not fit into one together.
    arguments = ("--max-num-seqs", "32", "--max-num-batched-tokens", str(CONTEXT))
    settings = VllmSettings(context_length=CONTEXT, dtype="float32", lora=True, arguments=arguments)
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    server = VllmServer(starter_llm_dir, name="starter", log=log, settings=settings)
    server.start(wait=False)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def vllm_llm(vllm_server: VllmServer | None, starter_llm_dir: Path) -> Iterator[RemoteLLM]:
    assert vllm_server is not None
    vllm_server.ensure_ready()
    llm = RemoteLLM(
        vllm_server.url,
        name="starter",
        tokenizer=starter_llm_dir,
        api_key=vllm_server.api_key,
        server=vllm_server,
    )
    yield llm
    llm.close()
