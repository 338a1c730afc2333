"""What the processor of this machine can do. Knows no model."""

import os


def cores() -> int:
    """How many this program may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has_bfloat16() -> bool:
    """Whether it computes in bfloat16; one that does not reads prompts several times faster in float32."""
    import torch

    return bool(torch.cpu.get_capabilities().get("avx512_bf16", False))
