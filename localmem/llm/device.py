"""Device, number format, processor abilities and one load at a time, for every model in this process.

Torch is imported inside the functions, so this module is cheap to import. Does not depend on any model.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Literal

from localmem.errors import BadSettings

if TYPE_CHECKING:
    import torch

Dtype = Literal["auto", "float32", "bfloat16", "float16"]


@cache
def one_at_a_time() -> threading.RLock:
    """The lock that whoever imports a weights library or loads weights holds meanwhile."""
    return threading.RLock()


@contextmanager
def no_progress_bar() -> Iterator[None]:
    """Hides the bars that transformers draws while weights load, whether or not a terminal is attached."""
    from transformers.utils import logging as transformers_logging

    enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            transformers_logging.enable_progress_bar()


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Hides the bars too, and the report of weights that a network has no place for or that it lacks."""
    from transformers.utils import logging as transformers_logging

    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        with no_progress_bar():
            yield
    finally:
        transformers_logging.set_verbosity(level)


def core_count() -> int:
    """Processor cores that this program may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def resolve_device(name: str) -> str:
    """A device for torch: `name` itself, or for "auto" the GPU where there is one and the CPU elsewhere.

    Raises BadSettings for a device that torch does not know or that this machine does not have.
    """
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError as error:
        raise BadSettings(f"unknown device {name!r}; use auto, cpu or cuda") from error
    is_available: Callable[[], bool] = getattr(getattr(torch, kind, None), "is_available", lambda: False)
    if kind != "cpu" and not is_available():
        raise BadSettings(f"device {name!r} is not available on this machine; use cpu or auto")
    return name


def resolve_dtype(name: str, device: str, *, cpu: Dtype = "float32", gpu: Dtype = "float16") -> "torch.dtype":
    """The number format of weights on a device: `name` itself, or for "auto" `cpu` on a CPU and `gpu` elsewhere.

    Raises BadSettings for a format other than those of `Dtype`.
    """
    import torch

    formats = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    resolved = (cpu if device == "cpu" else gpu) if name == "auto" else name
    if resolved not in formats:
        raise BadSettings(f"unknown dtype {name!r}; use auto, {', '.join(formats)}")
    return formats[resolved]


def fastest_cpu_dtype() -> Dtype:
    """bfloat16 where the processor computes in it; other processors read prompts several times faster in float32."""
    import torch

    return "bfloat16" if torch.cpu.get_capabilities().get("avx512_bf16", False) else "float32"


def pad_rows(
    rows: Sequence[Sequence[int]], device: "torch.device", fill: int = 0
) -> "tuple[torch.Tensor, torch.Tensor]":
    """(n, longest) token ids, padded on the right, where a causal model does not look, and their attention mask."""
    import torch

    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[fill] * (longest - len(row))] for row in rows], device=device)
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=device)
    return ids, mask
