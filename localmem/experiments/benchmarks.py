"""The load, retrieval and latency benchmarks on the parts that the settings choose.

For latency each system reads the synthetic history once; every measurement gets a copy of that store, so none sees
another's turns. A measurement is saved as soon as it is made, so that a run can resume.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import cache, partial
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from localmem import factory
from localmem.bank import Bank
from localmem.benchmark.latency import client
from localmem.benchmark.latency.measurement import Environment, measure, request_count, user_names, writer_names
from localmem.benchmark.latency.result import (
    RESULT,
    SAMPLE,
    SAMPLES,
    LatencyResult,
    Sample,
    load_result,
    read_samples,
    save_result,
)
from localmem.benchmark.latency.stopwatch import SaltedLLM, Stopwatch, TimedLLM
from localmem.benchmark.recipes import LatencyRecipe, MeasurementSpec
from localmem.chat.conversation import Conversation
from localmem.config import Settings, load_settings, system_options
from localmem.errors import BadInput
from localmem.experiments.demo import with_system
from localmem.files import JsonlLog, write_atomic, write_jsonl
from localmem.journal import Journal
from localmem.llm.base import LLM
from localmem.reporting.provenance import machine, versions
from localmem.runtime import Runtime
from localmem.store import Store
from localmem.store.opening import open_store
from localmem.types import Session

if TYPE_CHECKING:
    from localmem.benchmark.recipes import LoadRecipe, RetrievalRecipe

_MAY_DIFFER = ("machine", "versions", "title")  # recorded as they were when the run began


# Receives the title of a measurement and its number of requests; returns what to call after each of them.
Progress = Callable[[str, int], Callable[[], object]]


def claim(out: Path, about: Mapping[str, object], *, resume: bool) -> LatencyResult:
    """Reserve the folder for this run; returns what it has already measured.

    Raises BadInput for a folder with another run, or with this run unless `resume` is set.
    """
    new = LatencyResult(about)
    existing = load_result(out) if (out / RESULT).exists() else new
    if not existing.points:
        save_result(out, new)
        return new
    if not resume:
        raise BadInput(f"{out} contains a run; continue it with --resume, or choose another --out")
    if changed := [name for name in about if name not in _MAY_DIFFER and existing.about.get(name) != about[name]]:
        raise BadInput(f"{out} contains a run with a different {', '.join(changed)}; choose another --out")
    return existing


def run_measurements(
    recipe: LatencyRecipe,
    existing: LatencyResult,
    environment: Callable[[MeasurementSpec], AbstractContextManager[Environment]],
    out: Path,
    progress: Progress,
) -> LatencyResult:
    """Make the measurements that `existing` lacks. An interrupted measurement starts over."""
    finished = {point.id for point in existing.points}
    if (out / SAMPLES).exists():
        lines = [SAMPLE.dump_json(sample) + b"\n" for sample in read_samples(out) if sample.point in finished]
        write_atomic(out / SAMPLES, lines)
    result, specs = existing, recipe.specs()
    with JsonlLog(out / SAMPLES, SAMPLE) as log:
        for number, spec in enumerate(specs, start=1):
            if spec.id in finished:
                continue
            with environment(spec) as place:
                advance = progress(f"{spec.id} ({number} of {len(specs)})", request_count(recipe, spec))
                point = measure(recipe, spec, place, partial(_record, log, advance))
            result = replace(result, points=(*result.points, point))
            save_result(out, result)
    return result


def _record(log: JsonlLog[Sample], advance: Callable[[], object], sample: Sample) -> None:
    log.append(sample)
    if sample.kind != "end":
        advance()


Track = Callable[[str, Sequence[Session]], Iterable[Session]]


def measure_latency(
    recipe: LatencyRecipe,
    out: Path,
    *,
    config: Path | None = None,
    resume: bool = False,
    notify: Callable[[str], None],
    track: Track,
    progress: Progress,
) -> list[LatencyResult]:
    """A latency run for each of the recipe's models, each in a folder of its own if there are several.

    `track` wraps the sessions that a system reads. Raises BadSettings for an unknown system, and BadInput for a folder
    that contains another run.
    """
    if recipe.systems == ("all",):
        recipe = recipe.model_copy(update={"systems": tuple(factory.SYSTEMS)})
    for system in recipe.systems:
        system_options(system, {})
    if recipe.scripted and recipe.models:
        notify("the scripted backbone replaces the recipe's models")
    models: tuple[str | None, ...] = (None if recipe.scripted else recipe.models) or (None,)
    results = []
    for model in models:
        settings = load_settings(config, {**recipe.settings, **({"model": model} if model else {})})
        folder = out / model if model and len(models) > 1 else out
        existing = claim(folder, describe_latency_run(recipe, settings), resume=resume)
        with ExitStack() as stack:
            stores = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stores-", dir=folder)))
            if recipe.scripted:
                llm: LLM = client.scripted_llm(recipe.answer, **recipe.scripted.model_dump())
            else:
                backbone = factory.backbone(settings, notify)
                stack.callback(backbone.close)
                llm = backbone.llm
            setup = LatencySetup(recipe, settings, llm, stores, track)
            results.append(run_measurements(recipe, existing, setup.environment, folder, progress))
    return results


class LatencySetup:
    """The environments of all measurements on one backbone; `folder` is for stores, `track` wraps sessions read."""

    def __init__(self, recipe: LatencyRecipe, settings: Settings, backbone: LLM, folder: Path, track: Track) -> None:
        self._recipe = recipe
        self._settings = settings
        self._backbone = backbone
        self._folder = folder
        self._track = track

    @contextmanager
    def environment(self, spec: MeasurementSpec) -> Iterator[Environment]:
        """The environment of one measurement, for as long as the `with` block lasts."""
        from localmem.retrieval.dense import wait_for_builds

        stopwatch, scripted = Stopwatch(), self._recipe.scripted
        with tempfile.TemporaryDirectory(prefix="point-", dir=self._folder) as folder:
            data = Path(folder) / "data"
            units = self._copy_store(spec, data)
            llm = TimedLLM(SaltedLLM(self._backbone, _salts(spec)), stopwatch)
            settings = with_system(self._settings, spec.system, data=data, database=None)
            with Runtime(settings, llm=llm, wrap=stopwatch.wrap) as runtime:
                yield Environment(
                    agents=runtime,
                    bare=self._backbone,
                    stopwatch=stopwatch,
                    units=units,
                    counters=getattr(self._backbone, "prefix_cache", lambda: None),
                    first_token_ms=1000 * scripted.first_token if scripted else None,
                    reports_cached=scripted is None,
                    settle=wait_for_builds,
                )

    def _copy_store(self, spec: MeasurementSpec, data: Path) -> int:
        people = [*user_names(spec), *writer_names(spec)]
        original = self._folder / f"{spec.system}-h{spec.history}-n{len(people)}"
        if not original.exists():
            draft = self._folder / f".{original.name}"
            shutil.rmtree(draft, ignore_errors=True)
            self._make_store(spec, people, draft)
            draft.rename(original)
        shutil.copytree(original, data)
        with Store.open(data) as store:
            return sum(1 for _ in store.bank(people[0], spec.system).live())

    def _make_store(self, spec: MeasurementSpec, people: Sequence[str], data: Path) -> None:
        recipe, settings = self._recipe, with_system(self._settings, spec.system, data=data, database=None)
        sessions = client.generate_sessions(spec.history, recipe.exchanges, recipe.seed)
        with Store.open(data) as store:
            changes = client.remember(
                lambda journal: self._history_reader(settings, store, journal),
                sessions,
                lambda sessions: self._track(f"{spec.system}: {spec.history} sessions", sessions),
            )
            for user in people:
                client.commit_history(store.journal(user, spec.system), changes)

    def _history_reader(self, settings: Settings, store: Store, journal: Journal) -> Conversation:
        """An agent that needs no backbone and leaves its vectors in the store."""
        llm = client.scripted_llm(self._recipe.answer)
        encoder = cache(lambda: factory.encoder(settings, store.vectors))
        system = factory.SYSTEMS[settings.system]
        parts = factory.Parts(llm, lambda: factory.retriever(settings, encoder, system=system))
        return Conversation(memory=factory.memory(settings, parts, Bank()), llm=llm, journal=journal)


def describe_latency_run(recipe: LatencyRecipe, settings: Settings) -> dict[str, object]:
    """Everything that a run depends on; a run that resumes must agree with it."""
    from localmem.experiments.runs import describe_run
    from localmem.reporting.provenance import Gpus, machine

    by_system = {name: with_system(settings, name) for name in recipe.systems}
    selection: dict[str, object] = {
        "arguments": recipe.model_dump(mode="json", exclude={"models", "title"}),
        "chat": settings.chat.model_dump(mode="json"),
        "title": recipe.title,
        "machine": {**machine(Path.cwd()), "gpus": [asdict(gpu) for gpu in Gpus().states(())]},
    }
    about = describe_run(settings, by_system, (), selection)
    return {**about, "model": "scripted", "checksum": None, "adapters": {}} if recipe.scripted else about


def _salts(spec: MeasurementSpec) -> Callable[[], str]:
    """Cache salts of a measurement's own prompts: one for all with a warm cache, one for each with a cold cache.

    vLLM accepts no slash in a salt, and at most 128 characters.
    """
    base, numbers = token_hex(8), count()
    return (lambda: base) if spec.cache == "warm" else (lambda: f"{base}-{next(numbers)}")


_FSYNCS = 100  # before the run, and once more after it


def measure_load(
    recipe: "LoadRecipe", settings: Settings, notify: Callable[[str], None], samples: Path | None = None
) -> dict[str, object]:
    """Simulate the users over a store in the settings' data directory, which must be empty; `samples` gets all turns.

    Raises BadInput for a store with users.
    """
    from localmem.benchmark.load import fsync_ms, percentiles, reply_script, run_load
    from localmem.llm.scripted import ScriptedLLM
    from localmem.runtime import Runtime

    before = machine(settings.data)
    llm = ScriptedLLM(reply_script(recipe), first_token=recipe.first_token, per_token=recipe.per_token)
    with Runtime(settings, llm=llm) as runtime:
        if runtime.store.users():
            raise BadInput(
                f"{runtime.store.where} already has users; choose an empty --data-dir, and no database in the settings"
            )
        notify(f"{recipe.users} users; the store is at {runtime.store.where}")
        fsyncs = fsync_ms(settings.data, _FSYNCS)
        result = run_load(recipe, runtime.agent)
        fsyncs += fsync_ms(settings.data, _FSYNCS)
    with open_store(settings) as store:
        lost = result.lost_turns(store)
    if samples:
        write_jsonl(samples, map(asdict, result.samples), "choose another --turn-times")
    return {
        **result.figures(recipe),
        "fsync_ms": percentiles(fsyncs),
        "lost": len(lost),
        "recipe": recipe.model_dump(),
        "settings": settings.model_dump(mode="json", exclude={"server": {"keys"}, "llm": {"api_key"}}),
        "machine": before,
        "versions": versions(),
    }


def measure_retrieval(
    recipe: "RetrievalRecipe",
    settings: Settings,
    track: Callable[[str, Sequence[object]], Iterable[object]] = lambda _step, items: items,
) -> dict[str, object]:
    """The retrieval benchmark with the settings' encoder, or with word vectors if the recipe sets a dimension."""
    from localmem.benchmark.corpus import WordVectors
    from localmem.benchmark.indexes import run_retrieval
    from localmem.factory import bare_encoder

    before = machine(settings.data)
    encoder = WordVectors(recipe.dimension) if recipe.dimension else bare_encoder(settings, remembers=False)
    report: Mapping[str, object] = run_retrieval(recipe, encoder, track)
    return {**report, "machine": before, "versions": versions()}
