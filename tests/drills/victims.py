"""The processes that the drills kill, and the program that forks them.

The program loads everything once and forks a process for each order, so that a kill costs a fraction of a second where
starting Python would cost six. A victim appends a line to its acknowledgement file for each thing that is durable; what
was written there outlives the kill. Run as `python -m tests.drills.victims`: a line of JSON in, a line of JSON out.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

from localmem import factory
from localmem.config import Settings, load_settings
from localmem.errors import LLMUnavailable
from localmem.llm.scripted import ScriptedLLM
from localmem.retrieval.base import Side
from localmem.retrieval.encoder import CachedEncoder
from localmem.runtime import Runtime
from localmem.server.listen import Server
from localmem.server.local_access import open_listener
from localmem.store import Store
from localmem.types import Completion, Prompt, Session
from localmem.weights.offline import unbundle
from tests.drills import scripted_life
from tests.fakes import START, WordEncoder, obedient, session

Acknowledge = Callable[[str], None]

USER = "ann"
SYSTEM = "theanine"  # asks the backbone most; a session ends in units and links
VERBATIM = "evidence"  # its units hold what was said, word for word


class OtherEncoder(WordEncoder):
    """Words again, by another encoder."""

    identity = "other-512"

    def encode(self, texts: Sequence[str], side: Side) -> NDArray[np.float32]:
        rows: NDArray[np.float32] = super().encode(texts, side)[:, ::-1].copy()
        return rows


def drill_settings(home: Path, system: str = SYSTEM, database: str | None = None, **server: object) -> Settings:
    """Settings under which each index has a file."""
    flags: dict[str, object] = {"data": home, "database": database, "system": system, "retrieval": {"index": "hnsw"}}
    return load_settings(None, flags | {"llm": {"backend": "transformers"}, "server": {"port": 0, **server}})


@contextmanager
def open_runtime(
    home: Path, system: str = SYSTEM, encoder: WordEncoder | None = None, database: str | None = None
) -> Iterator[Runtime]:
    """A runtime with a scripted backbone and an encoder without weights, whose vectors are stored."""
    with Runtime(drill_settings(home, system, database), llm=ScriptedLLM(obedient)) as runtime:
        runtime._encoder = CachedEncoder(encoder or WordEncoder(), runtime.store.vectors)
        yield runtime


def past_sessions(count: int) -> list[Session]:
    """Sessions of four turns, a day apart; each has a word of its own."""
    return [
        session(
            f"My neighbour number {day} keeps bees in garden{day}x.",
            f"How many bees, in garden{day}x?",
            f"I moved to town number {day} because of the bees in garden{day}x.",
            f"So you live in town number {day}.",
            name=f"s{day}",
            start=START + timedelta(days=day),
        )
        for day in range(count)
    ]


# -- victims -------------------------------------------------------------------------------------------------------


def lead_lives(acknowledge: Acknowledge, home: str, *begin: str) -> None:
    """Two users at the level of the store."""
    scripted_life.lead_both(acknowledge, home, *begin)


def remember(acknowledge: Acknowledge, home: str, count: str, system: str) -> None:
    """What `localmem remember` does."""
    with open_runtime(Path(home), system) as runtime:
        agent, infos = runtime.agent(USER), runtime.store.sessions(USER)
        remembered = {info.id for info in infos if info.jobs.get(system) == "done"}
        for past in past_sessions(int(count)):
            if past.id not in remembered:
                agent.writer.read([past])
                acknowledge(past.id)


def rebuild(acknowledge: Acknowledge, home: str) -> None:
    """What `localmem rebuild` does."""
    with open_runtime(Path(home)) as runtime:
        runtime.store.clear(USER, SYSTEM)
        acknowledge("cleared")
        runtime.forget_agent(USER)
        for job in runtime.waiting_jobs(USER):
            if not runtime.remember(job, replay=True):
                raise RuntimeError(f"{job.session} was not remembered")
            acknowledge(job.session)


def forget(acknowledge: Acknowledge, home: str) -> None:
    """What `localmem forget --session` does, for each session."""
    with open_runtime(Path(home), VERBATIM) as runtime:
        for info in runtime.store.sessions(USER):
            if runtime.store.delete_session(USER, info.id).remaining:
                raise RuntimeError(f"{info.id} left traces")
            acknowledge(info.id)


def reindex(acknowledge: Acknowledge, home: str) -> None:
    """What `localmem reindex` does, in batches of 16."""
    vars(sys.modules["localmem.runtime"])["_BATCH"] = 16
    vars(factory)["encoder"] = lambda _settings, cache: CachedEncoder(OtherEncoder(), cache)
    with open_runtime(Path(home), VERBATIM) as runtime:

        def track(batches: Sequence[Sequence[str]]) -> Iterator[Sequence[str]]:
            for number, batch in enumerate(batches):
                yield batch
                acknowledge(str(number))

        runtime.reindex(track)
        acknowledge("done")


def import_users(acknowledge: Acknowledge, home: str, export: str, *users: str) -> None:
    """What `localmem import` does, for each user."""
    lines = Path(export).read_text(encoding="utf-8").splitlines()
    with Store.open(home) as store:
        for user in users:
            store.restore(lines, export, user)
            acknowledge(user)


def unpack(acknowledge: Acknowledge, directory: str, bundle: str) -> None:
    """What `localmem models import BUNDLE` does."""
    for name in unbundle(Path(bundle), lambda _line: None, Path(directory)):
        acknowledge(name)


def migrate(acknowledge: Acknowledge, home: str) -> None:
    """The first start of a later release."""
    Store.open(home).close()
    acknowledge("open")


def serve(
    acknowledge: Acknowledge,
    home: str,
    per_token: str,
    threads: str = "128",
    waiting: str = "128",
    database: str | None = None,
) -> None:
    """`localmem serve` with one key for each user, by the name of the user; acknowledges its port."""
    keys = {f"key-of-{number:04d}": f"user{number:04d}" for number in range(400)}
    limits = {"threads": int(threads), "waiting": int(waiting), "grace_seconds": 0.2}
    settings = drill_settings(Path(home), VERBATIM, database, keys=keys, **limits)
    with (
        Runtime(settings, llm=_Echo(float(per_token))) as runtime,
        open_listener(settings.server.host, settings.server.port) as listener,
    ):
        runtime._encoder = CachedEncoder(WordEncoder(), runtime.store.vectors)
        port = listener.getsockname()[1]
        Server(runtime, lambda _line: acknowledge(str(port))).run_on(listener)


class _Echo(ScriptedLLM):
    """Repeats the user's words, so that a reply shows which turn it belongs to; dies in the middle when told so."""

    def __init__(self, per_token: float) -> None:
        super().__init__(_echo, per_token=per_token)

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        pieces = super().stream(prompt)
        if "fail in the middle" not in prompt.messages[-1].content:
            return (yield from pieces)
        for _ in range(3):
            yield next(pieces)
        raise LLMUnavailable("the backbone died in the middle; start it again")


def _echo(prompt: Prompt) -> str:
    words = prompt.messages[-1].content.strip().splitlines()[-1]
    return f"You said: {words} " + "and so it goes on " * 4


VICTIMS: dict[str, Callable[..., None]] = {
    each.__name__: each
    for each in (lead_lives, remember, rebuild, forget, reindex, import_users, unpack, migrate, serve)
}


# -- the program ---------------------------------------------------------------------------------------------------


def _run(order: dict[str, list[str] | str]) -> None:
    """In the forked process. An exception is its last line."""
    devices = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(devices, number)
    file = os.open(str(order["acknowledgements"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        VICTIMS[str(order["victim"])](lambda line: os.write(file, f"{line}\n".encode()), *order["arguments"])
    except BaseException:  # noqa: BLE001  # whatever it is, the drill shall see it
        os.write(file, f"error {traceback.format_exc()!r}\n".encode())
        os._exit(1)
    os._exit(0)


def main() -> None:
    """Fork a victim for each order, and wait for the end of one when asked to."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            reply = os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1])
        else:
            reply = os.fork()
            if not reply:
                _run(order)
        sys.stdout.write(f"{json.dumps(reply)}\n")
        sys.stdout.flush()
    for child in psutil.Process().children():
        child.kill()


if __name__ == "__main__":
    main()
