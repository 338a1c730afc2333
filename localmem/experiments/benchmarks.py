"""The load and retrieval benchmarks on the parts that the settings choose."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from localmem.errors import BadInput
from localmem.files import write_jsonl
from localmem.reporting.provenance import machine, versions

if TYPE_CHECKING:
    from localmem.benchmark.recipes import LoadRecipe, RetrievalRecipe
    from localmem.config import Settings

_FSYNCS = 100  # before the run, and once more after it


def measure_load(
    recipe: "LoadRecipe", settings: "Settings", notify: Callable[[str], None], samples: Path | None = None
) -> dict[str, object]:
    """Simulate the users over a store in the settings' data directory, which must be empty; `samples` gets all turns.

    Raises BadInput for a store with users.
    """
    from localmem.benchmark.load import fsync_ms, percentiles, reply_script, run_load
    from localmem.llm.scripted import ScriptedLLM
    from localmem.runtime import Runtime
    from localmem.store import Store

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
    with Store.open(settings.store_url) as store:
        lost = result.lost_turns(store)
    if samples:
        write_jsonl(samples, map(asdict, result.samples), "choose another --samples")
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
    settings: "Settings",
    track: Callable[[str, Sequence[object]], Iterable[object]] = lambda _step, items: items,
) -> dict[str, object]:
    """The retrieval benchmark with the settings' encoder, or with word vectors if the recipe sets a dimension."""
    from localmem.benchmark.corpus import WordVectors
    from localmem.benchmark.indexes import run_retrieval
    from localmem.factory.parts import bare_encoder

    before = machine(settings.data)
    encoder = WordVectors(recipe.dimension) if recipe.dimension else bare_encoder(settings)
    report: Mapping[str, object] = run_retrieval(recipe, encoder, track)
    return {**report, "machine": before, "versions": versions()}
