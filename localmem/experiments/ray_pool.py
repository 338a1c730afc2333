"""Work on a Ray cluster: the same function for many items, in a process on each of its processors.

What an item needs besides itself (a backbone, a store, an encoder) is opened once in each process. Ray moves the items
and the results and nothing else, so every machine of the cluster must have this version of localmem, the models and,
where the settings name files, those too, at the same paths. Does not depend on what the work is.
"""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

from localmem.errors import BadInput, LocalmemError, requires

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[Item], Result]

_PATIENCE = 10  # seconds that a cluster has to accept a connection
LOCAL = "local"  # the address that starts a cluster on this machine, for as long as the work takes


def map_on_ray(address: str, open_work: Callable[[], Work[Item, Result]], items: Sequence[Item]) -> Iterator[Result]:
    """The results in the order in which they are ready. `open_work` runs once in each process of the cluster.

    It must pickle, and so must items and results. Raises what the work raises, BadInput where no cluster answers,
    LocalmemError where a process died; what was not ready by then is lost.
    """
    if not items:
        return
    with _connection(address) as ray:
        from ray.util import ActorPool

        workers = ray.remote(num_cpus=1)(_Worker)
        count = min(len(items), max(1, int(ray.cluster_resources().get("CPU", 1))))
        pool = ActorPool([workers.remote(open_work) for _ in range(count)])
        try:
            yield from pool.map_unordered(lambda worker, item: worker.apply.remote(item), items)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except ray.exceptions.RayActorError as error:
            raise LocalmemError(f"a process of the Ray cluster died ({_first_line(error)}); run it again") from error


class _Worker:
    def __init__(self, open_work: Callable[[], Work[Any, Any]]) -> None:
        self._open_work = open_work
        self._work: Work[Any, Any] | None = None

    def apply(self, item: object) -> object:
        if self._work is None:  # not in the constructor, whose errors Ray reports as the death of the process
            self._work = self._open_work()
        return self._work(item)


@contextmanager
def _connection(address: str) -> Iterator[Any]:
    with requires("--ray needs the package {}", "ray"):
        import ray
    options: dict[str, object] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == LOCAL:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # Ray reports its use to its makers otherwise
        options |= {"address": "local", "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    else:
        options["address"] = address
    try:
        _knock(address)
        ray.init(**options)
    except (OSError, RuntimeError, ValueError) as error:
        raise BadInput(
            f"no Ray cluster answers at {address} ({_first_line(error)}); start one with `ray start --head`, or give "
            f"--ray {LOCAL}"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Raises OSError where nobody listens at host:port: Ray itself tries for minutes."""
    place = urlsplit(f"//{address}")
    if "://" not in address and place.hostname and place.port:
        socket.create_connection((place.hostname, place.port), _PATIENCE).close()


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
