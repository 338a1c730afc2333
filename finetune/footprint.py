"""What this process has freed goes back to the system, so that it is not counted as the memory of what comes next."""

import ctypes
import gc


def give_back() -> None:
    """Where the C library can do that; elsewhere Python's own garbage is let go of, and no more."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
