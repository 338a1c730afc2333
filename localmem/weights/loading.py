"""One load at a time. Importing transformers from two threads at once leaves one of them with half a module.

Knows nothing of what is loaded.
"""

import threading
from functools import cache


@cache
def one_at_a_time() -> threading.RLock:
    """The lock that whoever imports a weights library or loads weights holds meanwhile."""
    return threading.RLock()
