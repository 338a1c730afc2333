"""Loading weights: one load at a time, and without progress bars.

Importing transformers from two threads at once leaves one of them with half a module, hence the lock. Does not depend
on what is loaded.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


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
