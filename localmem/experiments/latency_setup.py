"""What a point of `localmem bench latency` runs in: a runtime over a store of its own, its parts under a stopwatch.

The past of each system is remembered once; each point gets a copy of that store, so no point sees another's talk. Knows
no figures.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from localmem import factory
from localmem.bank import Bank
from localmem.benchmark.latency import synthetic_history
from localmem.benchmark.latency.ends import WatchedJobs
from localmem.benchmark.latency.measurement import World, users, writers
from localmem.benchmark.latency.plan import Plan, Spec
from localmem.benchmark.latency.result import Sample
from localmem.benchmark.latency.stopwatch import Clock, Salted, WatchedLLM
from localmem.chat.agent import ChatAgent
from localmem.config import Settings
from localmem.journal import Journal
from localmem.llm.base import LLM
from localmem.retrieval.base import Encoder, Retriever
from localmem.runtime import Runtime
from localmem.runtime.worker import Rememberer
from localmem.store import Store

if TYPE_CHECKING:
    from localmem.types import Session

Track = Callable[[str, "Sequence[Session]"], "Iterable[Session]"]


class Worlds:
    """All points of one backbone; `place` is a folder for stores, `track` is told of sessions as they are read."""

    def __init__(self, plan: Plan, settings: Settings, backbone: LLM, place: Path, track: Track) -> None:
        self._plan = plan
        self._settings = settings
        self._backbone = backbone
        self._place = place
        self._track = track

    @contextmanager
    def world(self, spec: Spec) -> Iterator[World]:
        """One point's, for as long as the `with` lasts."""
        from localmem.retrieval.dense import settle_all

        clock, scripted = Clock(), self._plan.scripted
        with tempfile.TemporaryDirectory(prefix="point-", dir=self._place) as folder:
            data = Path(folder) / "data"
            units = self._copy(spec, data)
            llm = WatchedLLM(Salted(self._backbone, _salt(spec)), clock)
            with Runtime(self._of(spec.system, data), llm=llm, around=clock.watch) as runtime:
                yield World(
                    home=runtime,
                    bare=self._backbone,
                    clock=clock,
                    units=units,
                    counters=getattr(self._backbone, "prefix_cache", lambda: None),
                    first_token_ms=1000 * scripted.first_token if scripted else None,
                    tells_cached=scripted is None,
                    remembering=_remembering,
                    settle=settle_all,
                    jobs=_jobs_of(runtime, clock),
                )

    def _of(self, system: str, data: Path) -> Settings:
        changed = {"data": data, "database": None, "system": system, "options": _own(self._settings, system)}
        return self._settings.model_copy(update=changed)

    # -- the past ----------------------------------------------------------------------------------------------------

    def _copy(self, spec: Spec, data: Path) -> int:
        """A store with the users' past, in `data`. Returns the live units of each."""
        people = [*users(spec), *writers(spec)]
        made = self._place / f"{spec.system}-h{spec.history}-n{len(people)}"
        if not made.exists():
            draft = self._place / f".{made.name}"
            shutil.rmtree(draft, ignore_errors=True)
            self._remember(spec, people, draft)
            draft.rename(made)
        shutil.copytree(made, data)
        with Store.open(data) as store:
            return sum(1 for _ in store.bank(people[0], spec.system).live())

    def _remember(self, spec: Spec, people: Sequence[str], data: Path) -> None:
        plan, settings = self._plan, self._of(spec.system, data)
        spoken = synthetic_history.sessions(spec.history, plan.exchanges, plan.seed)
        with Store.open(data) as store:
            vectors = synthetic_history.Vectors()
            made = synthetic_history.changes(
                lambda journal: self._reader(settings, vectors, journal),
                spoken,
                lambda sessions: self._track(f"{spec.system}: {spec.history} sessions", sessions),
            )
            for rows in vectors.parts():
                store.vectors.put(self._encoder.identity, rows)
            for user in people:
                synthetic_history.give(store.journal(user, spec.system), made)

    def _reader(self, settings: Settings, vectors: synthetic_history.Vectors, journal: Journal) -> ChatAgent:
        from localmem.retrieval.encoder import CachedEncoder

        llm = synthetic_history.scripted(self._plan.answer, name="scripted")
        encoder: list[Encoder] = []

        def one() -> Encoder:
            if not encoder:
                encoder.append(CachedEncoder(synthetic_history.Mixed(self._encoder), vectors))
            return encoder[0]

        def index() -> Retriever:
            return factory.retriever(settings, one, before=factory.SYSTEMS[settings.system].before)

        memory = factory.memory(settings, factory.Parts(llm, index), Bank())
        return ChatAgent(memory=memory, llm=llm, journal=journal)

    @cached_property
    def _encoder(self) -> Encoder:
        from localmem.factory.parts import bare_encoder

        return bare_encoder(self._settings)


def about(plan: Plan, settings: Settings) -> dict[str, object]:
    """What a run is of; another run in its folder must be of the same."""
    from localmem.benchmark.latency.gpu import Gpus
    from localmem.config import system_options
    from localmem.experiments.runs import adapters_of
    from localmem.prompts import digest_of_all
    from localmem.reporting.provenance import machine, versions
    from localmem.weights.manifest import Manifest

    known = Manifest.load().models.get(settings.model)  # a server may serve a model that the manifest does not list
    model = "scripted" if plan.scripted else settings.model
    return {
        "model": model,
        "checksum": known.checksum if known and not plan.scripted else None,
        "source": known.source.model_dump(mode="json") if known and known.source and not plan.scripted else None,
        "adapters": {} if plan.scripted else adapters_of(settings),
        "arguments": plan.model_dump(mode="json", exclude={"models", "title"}),
        "seed": plan.seed,
        "prompts": digest_of_all(),
        "llm": settings.llm.model_dump(mode="json", exclude={"api_key"}),
        "retrieval": settings.retrieval.model_dump(mode="json"),
        "chat": settings.chat.model_dump(mode="json"),
        "systems": {name: system_options(name, _own(settings, name)) for name in plan.systems},
        "title": plan.title,
        "machine": {**machine(Path.cwd()), "gpus": [asdict(gpu) for gpu in Gpus().look(())]},
        "versions": versions(),
    }


def _own(settings: Settings, system: str) -> Mapping[str, object]:
    """The options of the settings, for the system that they name."""
    return settings.options if settings.system == system else {}


def _salt(spec: Spec) -> Callable[[], str]:
    """Of a point's own prompts: apart from every other point's; with a cold cache, each apart from all.

    vLLM takes no slash in a salt, and 128 characters at most.
    """
    base, numbers = token_hex(8), count()
    return (lambda: base) if spec.cache == "warm" else (lambda: f"{base}-{next(numbers)}")


@contextmanager
def _remembering(jobs: WatchedJobs) -> Iterator[Callable[[], None]]:
    """The threads that a server has, at work on these jobs."""
    rememberer = Rememberer(jobs)
    rememberer.start()
    try:
        yield rememberer.nudge
    finally:
        rememberer.stop()


def _jobs_of(runtime: Runtime, clock: Clock) -> Callable[[str, float, Callable[[Sample], None]], WatchedJobs]:
    return lambda point, began, write: WatchedJobs(runtime, clock, point, began, write)
