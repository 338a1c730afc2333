"""Threads that compute by torch on one core each, instead of sharing every operation among the cores.

The operations of a small model take tens of microseconds, and OpenMP's threads wait for each other after every one of
them: where other work wants the cores too, that wait takes longer than the operation. Work that has parts is divided
among these threads instead. Does not depend on what they compute.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch

from localmem.llm.device import core_count


def one_thread_a_core(name: str) -> ThreadPoolExecutor:
    """As many threads as cores, each of which computes alone; they start when they are first needed."""
    usual = torch.get_num_threads()
    return ThreadPoolExecutor(core_count(), name, initializer=_compute_alone, initargs=(usual,))


def _compute_alone(usual: int) -> None:
    """Let this thread compute alone, and threads that start later by `usual` threads, as torch by itself would not.

    A thread takes the number that any thread set last when it first asks for it.
    """
    torch.get_num_threads()
    torch.set_num_threads(1)
    restoring = threading.Thread(target=torch.set_num_threads, args=(usual,))
    restoring.start()
    restoring.join()
