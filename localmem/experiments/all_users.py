"""Work over the memories of all users, in this process or on a Ray cluster: rebuilding them, encoding their keys.

Prints nothing: notes and progress go to functions that the caller passes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from localmem import factory
from localmem.config import Settings
from localmem.experiments.ray_pool import map_on_ray
from localmem.experiments.runs import Notify, Progress
from localmem.files import JsonlLog
from localmem.runtime import EncodeBatches, Runtime
from localmem.store.opening import open_store

if TYPE_CHECKING:
    from localmem.retrieval.encoder import Rows

Rebuilt = tuple[str, int]  # a user, and how many sessions were read again


def rebuild_all(
    settings: Settings, *, ray: str | None, resume: bool, notify: Notify, progress: Progress
) -> tuple[int, int]:
    """Rebuild the memory of every user; the numbers of users and of sessions that were read again.

    Users who are completed are noted in the data directory until all are: with `resume` these are skipped. Raises
    LLMError at the first failure.
    """
    with open_store(settings) as store:
        users = store.users()
    noted = settings.data / f"rebuilt-{settings.system}.jsonl"
    if not resume:
        noted.unlink(missing_ok=True)
    with JsonlLog(noted, TypeAdapter(Rebuilt)) as log:
        counts = dict(log.records)
        waiting = [user for user in users if user not in counts]
        for user, count in _rebuild(settings, waiting, ray, notify):
            counts[user] = count
            log.append((user, count))
            progress("rebuilding", len(counts), len(users))
    noted.unlink()
    return len(counts), sum(counts.values())


def _rebuild(settings: Settings, users: Sequence[str], ray: str | None, notify: Notify) -> Iterable[Rebuilt]:
    if ray:
        yield from map_on_ray(ray, partial(_open_rebuilding, settings), users)
        return
    with Runtime(settings, progress=notify) as runtime:
        for user in users:
            yield user, runtime.rebuild(user)[0]


def _open_rebuilding(settings: Settings) -> Callable[[str], Rebuilt]:
    """In a process of the cluster, whose end closes the runtime."""
    runtime = Runtime(settings)
    return lambda user: (user, runtime.rebuild(user)[0])


def encode_on_ray(settings: Settings, address: str) -> EncodeBatches:
    """Encodes batches of passages with the configured encoder."""

    def encode(batches: Sequence[Sequence[str]]) -> "Iterator[tuple[Sequence[str], Rows]]":
        return map_on_ray(address, partial(_open_encoding, settings), batches)

    return encode


def _open_encoding(settings: Settings) -> "Callable[[Sequence[str]], tuple[Sequence[str], Rows]]":
    encoder = factory.bare_encoder(settings)
    return lambda texts: (texts, encoder.encode(texts, "passage"))
