"""A run: its points one after another, each written when it is measured, so that a run that broke off goes on.

Knows the folder and what stands in it; what a point runs in is given.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from localmem.benchmark.latency.measurement import World, Write, measure, requests
from localmem.benchmark.latency.plan import Plan, Spec
from localmem.benchmark.latency.result import (
    RESULT,
    SAMPLE,
    SAMPLES,
    Result,
    Sample,
    load_result,
    read_samples,
    save_result,
)
from localmem.errors import BadInput
from localmem.files import JsonlLog

_MAY_DIFFER = ("machine", "versions", "title", "plan")  # told as they were when the run began


class Bar(Protocol):
    """What shows how far the run is."""

    def point(self, spec: Spec, requests: int) -> None:
        """This one begins."""
        ...

    def sample(self, sample: Sample) -> None:
        """A request is over."""
        ...


def claim(out: Path, about: Mapping[str, object], *, resume: bool) -> Result:
    """The folder is this run's; gives the points that it has. Raises BadInput where it holds another run, or this one
    and no `resume`."""
    fresh = Result(about)
    if not (out / RESULT).exists():
        _make(out)
        save_result(out, fresh)
        return fresh
    held = load_result(out)
    if not held.points:
        save_result(out, fresh)
        return fresh
    if not resume:
        raise BadInput(f"{out} holds a run; go on with --resume, or give another --out")
    if changed := [name for name in about if name not in _MAY_DIFFER and held.about.get(name) != about[name]]:
        raise BadInput(f"{out} holds a run with another {', '.join(changed)}; give another --out")
    return held


def run(
    plan: Plan, held: Result, world: Callable[[Spec], AbstractContextManager[World]], out: Path, bar: Bar
) -> Result:
    """Measures the points that `held` has not. The samples of a point that broke off are dropped: it begins anew."""
    done = {point.id for point in held.points}
    _keep_only(out, done)
    result = held
    with JsonlLog(out / SAMPLES, SAMPLE) as lines:
        for spec in plan.specs():
            if spec.id in done:
                continue
            with world(spec) as place:
                bar.point(spec, requests(plan, spec))
                point = measure(plan, spec, place, _both(lines.append, bar.sample))
            result = replace(result, points=(*result.points, point))
            save_result(out, result)
    return result


def _both(first: Write, second: Write) -> Write:
    def write(sample: Sample) -> None:
        first(sample)
        second(sample)

    return write


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot write to {out} ({error.strerror}); choose another --out") from error


def _keep_only(out: Path, points: set[str]) -> None:
    """The samples of these points, in place of all."""
    path = out / SAMPLES
    if not path.exists():
        return
    draft = path.with_suffix(".new")
    with draft.open("wb") as file:
        for sample in read_samples(out):
            if sample.point in points:
                file.write(SAMPLE.dump_json(sample) + b"\n")
    draft.replace(path)
