"""The benchmark of a server: starts `localmem serve` in a process of its own and lets users talk to it over HTTP."""

import json
import secrets
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from localmem.benchmark.latency.result import Sample
from localmem.benchmark.recipes import ServeRecipe
from localmem.benchmark.serving import Service, UserCount, judge, largest, most_users, talk, to_aiperf, unix_ns
from localmem.config import Settings, load_settings
from localmem.errors import BadSettings
from localmem.files import write_atomic
from localmem.llm.vllm.server_process import ServerCommand, ServerProcess
from localmem.reporting.provenance import machine, versions

_START_SECONDS = 900.0


def measure_serving(
    recipe: ServeRecipe, *, config: Path | None = None, export: Path | None = None, notify: Callable[[str], None]
) -> dict[str, object]:
    """The report: a row for each number of users. `export` gets every request in AIPerf's format.

    Raises LLMUnavailable when the server does not start, BadInput where `export` cannot be written, and BadSettings
    where the bare backbone is to be measured and has no URL.
    """
    settings = load_settings(config, dict(recipe.settings))
    before, records = machine(Path.cwd()), list[bytes]()
    counts = recipe.users if recipe.most is None else (recipe.most,)
    backbone = _backbone(settings, max(counts)) if recipe.bare else None
    with _server(settings, max(counts), notify) as server:

        def measure(users: int) -> UserCount:
            bare = None
            if backbone:
                bare = judge(*talk(backbone, recipe, users, f"bare-{users}-users"), users, recipe).figures
            start_ns = unix_ns()
            samples, seconds = talk(server, recipe, users, f"{users}-users")
            records.extend(json.dumps(record).encode() + b"\n" for record in to_aiperf(samples, start_ns))
            result = replace(judge(samples, seconds, users, recipe), bare=bare)
            notify(_line(result, samples))
            return result

        rows = [measure(users) for users in counts] if recipe.most is None else most_users(measure, recipe.most)
    if export:
        write_atomic(export, records, "choose another --export")
    return {
        "most_users": largest(rows),
        "rows": [asdict(row) for row in rows],
        "recipe": recipe.model_dump(mode="json"),
        "model": settings.model,
        "system": settings.system,
        "machine": before,
        "versions": versions(),
    }


def _line(result: UserCount, samples: list[Sample]) -> str:
    first = result.figures.get("p95_ttft_ms")
    failed = sum(sample.error is not None for sample in samples)
    alone = result.bare and result.bare.get("p95_ttft_ms")
    return (
        f"{result.users} users: first token p95 {'–' if first is None else f'{first:.0f} ms'}, "
        f"{f'of the backbone alone {alone:.0f} ms, ' if alone else ''}"
        f"{result.within:.1%} within the limits, {failed} failed"
    )


def _backbone(settings: Settings, users: int) -> Service:
    """The first backbone that the server asks, for clients of its own."""
    if not settings.llm.urls:
        raise BadSettings("bare measures the backbone alone, which has no URL here; start it and set llm.url")
    url = settings.llm.urls[0].rstrip("/").removesuffix("/v1")
    return Service(url, [settings.llm.api_key or "none"] * users, settings.llm.served_as or settings.model)


@contextmanager
def _server(settings: Settings, users: int, notify: Callable[[str], None]) -> Iterator[Service]:
    """A server with a new store and a key for each user, for as long as the `with` block lasts."""
    keys = {secrets.token_urlsafe(16): f"user{number:03d}" for number in range(users)}
    with tempfile.TemporaryDirectory(prefix="localmem-serve-") as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
        probe.close()
        document = settings.model_dump(mode="json", exclude_defaults=True)
        document |= {"data": folder, "database": None}
        document["server"] = {**document.get("server", {}), "host": "127.0.0.1", "port": port, "keys": keys}
        file = Path(folder) / "settings.json"  # JSON is YAML
        file.write_text(json.dumps(document), encoding="utf-8")
        file.chmod(0o600)
        process = ServerProcess(
            ServerCommand(
                name="localmem",
                command=[sys.executable, "-m", "localmem", "serve", "--config", str(file)],
                health=f"http://127.0.0.1:{port}/health/ready",
                log=Path(folder) / "serve.log",
                start_seconds=_START_SECONDS,
            )
        )
        notify(f"starting localmem serve with {settings.model} and {settings.system}")
        process.start()
        try:
            yield Service(f"http://127.0.0.1:{port}", list(keys))
        finally:
            process.stop()
