"""The backbone that the settings choose: in this process, on a vLLM of our own, or behind servers that already run.

Heavy libraries load inside the functions that need them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from localmem.config import Settings
from localmem.errors import BadSettings, LocalmemError, MissingExtra
from localmem.llm.adapters import require_proved
from localmem.llm.device import one_at_a_time
from localmem.llm.gpu_installation import require_gpu
from localmem.weights.folder import adapter_folder, model_path
from localmem.weights.manifest import Manifest

if TYPE_CHECKING:
    from localmem.llm.base import LLM
    from localmem.llm.remote.remote_llm import RemoteLLM

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Backbone:
    """The LLM, a function that releases it, and one that checks whether it answers (in process it always does)."""

    llm: "LLM"
    close: Callable[[], None]
    is_healthy: Callable[[], bool] = lambda: True


def backbone(settings: Settings, progress: Progress) -> Backbone:
    """The LLM that the settings name; when this returns, its weights are loaded or its server is running.

    Raises BadSettings on a GPU installation that sees no GPU, unless llm.device is cpu or llm.url a server elsewhere.
    """
    if settings.llm.url is None:
        require_gpu("llm.device", "auto" if settings.llm.backend == "vllm" else settings.llm.device)
    started = _server(settings, progress) if wants_server(settings) else _in_process(settings, progress)
    model = Manifest.load().models.get(settings.model)
    if model is None or not model.after_refusal:
        return started
    from localmem.llm.second_attempt import SecondAttempt

    return replace(started, llm=SecondAttempt(started.llm, model.after_refusal))


def wants_server(settings: Settings) -> bool:
    """Whether a server has the backbone: one at llm.url, or a vLLM of our own."""
    if settings.llm.backend != "auto":
        return settings.llm.backend == "vllm"
    return settings.llm.url is not None or (find_spec("vllm") is not None and _cuda())


def adapters(settings: Settings) -> dict[str, Path]:
    """The folders of the settings' adapters, by prompt or system name."""
    return {name: adapter_folder(folder) for name, folder in settings.llm.adapters.items()}


def _in_process(settings: Settings, progress: Progress) -> Backbone:
    path = _proved_model(settings.model)
    progress(f"loading {settings.model}")
    return folder_backbone(path, settings, name=settings.model, adapters=adapters(settings))


def _proved_model(name: str) -> Path:
    """The model's folder. Raises BadSettings where it is a merged student that failed its proof."""
    path = model_path(name)
    require_proved(path)
    return path


def folder_backbone(
    folder: Path, settings: Settings, *, name: str, adapters: Mapping[str, Path] | None = None
) -> Backbone:
    """The chat model in a folder, in this process; device and number format as the settings have them."""
    require_package("transformers")
    with one_at_a_time():
        from localmem.llm.transformers import TransformersLLM

        llm = TransformersLLM(
            folder,
            name=name,
            context_length=settings.llm.context_length,
            device=settings.llm.device,
            dtype=settings.llm.dtype,
            adapters=adapters or {},
        )
    return Backbone(llm, lambda: None)


def _server(settings: Settings, progress: Progress) -> Backbone:
    if not settings.llm.urls:
        return _own_vllm(settings, progress)
    llm = remote_llm(settings)
    for name, folder in adapters(settings).items():
        llm.load_adapter(name, folder)
    return Backbone(llm, llm.close, llm.is_healthy)


def remote_llm(settings: Settings) -> "RemoteLLM":
    """The model behind llm.url. Opens no connection before it is asked."""
    from localmem.llm.remote.remote_llm import RemoteLLM

    options = settings.llm
    return RemoteLLM(
        options.urls,
        name=options.served_as or settings.model,
        tokenizer=_tokenizer(settings.model),
        context_length=options.context_length,
        api_key=options.api_key,
        priorities=options.priorities,
    )


def _report_stages(progress: Progress) -> Callable[[str, float], None]:
    """Reports each stage of a server's start when it begins, and every ten seconds while it lasts."""
    reported: set[tuple[str, int]] = set()

    def report(stage: str, seconds: float) -> None:
        mark = stage, int(seconds) // 10
        if mark not in reported:
            reported.add(mark)
            progress(f"vLLM: {stage} ({seconds:.0f} s)")

    return report


def _own_vllm(settings: Settings, progress: Progress) -> Backbone:
    """A server that runs as long as this process."""
    if find_spec("vllm") is None:
        raise MissingExtra("the Python package 'vllm' is not installed; run scripts/setup or set llm.url")
    from localmem.llm.remote.remote_llm import RemoteLLM
    from localmem.llm.remote.vllm_protocol import VllmProtocol
    from localmem.llm.vllm.vllm_server import VllmServer, VllmSettings

    path = _proved_model(settings.model)
    longest, limit = Manifest.load().entry(settings.model).context_length, settings.llm.context_length
    if longest and limit and limit > longest:
        raise BadSettings(f"llm.context_length is {limit} and {settings.model} reads {longest} tokens; set it lower")
    settings.data.mkdir(parents=True, exist_ok=True)
    server = VllmServer(
        path,
        name=settings.model,
        log=settings.data / "vllm.log",
        settings=VllmSettings(
            context_length=settings.llm.context_length,
            dtype=settings.llm.dtype,
            lora=bool(adapters(settings)),
            adapter_slots=settings.llm.adapter_slots,
            adapter_rank=settings.llm.adapter_rank,
            gpu_memory=settings.llm.gpu_memory,
            tensor_parallel=settings.llm.tensor_parallel,
            kv_cache=settings.llm.kv_cache,
            arguments=settings.llm.arguments,
        ),
        progress=_report_stages(progress),
    )
    server.start()
    llm = RemoteLLM(
        server.url,
        name=settings.model,
        tokenizer=path,
        api_key=server.api_key,
        server=server,
        new_protocol=lambda client: VllmProtocol(client, settings.model),
    )
    for name, folder in adapters(settings).items():
        llm.load_adapter(name, folder)
    return Backbone(llm, server.stop, llm.is_healthy)


def _tokenizer(name: str) -> Path | None:
    """The model's folder, for counting tokens; None when it is not on this machine: the server counts then."""
    try:
        return model_path(name)
    except LocalmemError:
        return None


def _cuda() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def require_package(module: str) -> None:
    """Raises MissingExtra with the command that installs it."""
    if find_spec(module) is None:
        raise MissingExtra(f"the Python package {module!r} is not installed; run `pip install 'localmem[cpu]'`")
