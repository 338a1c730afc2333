"""A latency run: its measurements one after another, each saved as soon as it is made, so that a run can resume."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

from localmem.benchmark.latency.measurement import Environment, measure, request_count
from localmem.benchmark.latency.recipe import LatencyRecipe, MeasurementSpec
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
from localmem.errors import BadInput
from localmem.files import JsonlLog, write_atomic

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


def run(
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
