"""Two runs of the latency benchmark, point by point: how the second stands to the first, and whether that is chance.

Intervals come from the raw requests; a figure that is but one number a run (throughput) has none. Says what else
differs between the runs, for a ratio tells of a change only where nothing else did. Measures nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from localmem.benchmark.latency.figures import tpot
from localmem.benchmark.latency.resample import Figure, Measured, Ratio, mean, percentile, ratio
from localmem.benchmark.latency.result import SAMPLES, Kind, Part, Point, Sample, load_result, read_samples
from localmem.reporting.sections import Table

Value = Callable[[Sample], float | None]


_VALUES: Mapping[str, Value] = {
    "ttft": lambda one: one.ttft_ms,
    "tpot": tpot,
    "e2el": lambda one: one.e2el_ms,
}
_FIGURES: Mapping[str, tuple[str, Figure]] = {
    "mean_ttft_ms": ("ttft", mean),
    "p50_ttft_ms": ("ttft", percentile(50)),
    "p95_ttft_ms": ("ttft", percentile(95)),
    "p50_tpot_ms": ("tpot", percentile(50)),
    "p50_e2el_ms": ("e2el", percentile(50)),
    "p95_e2el_ms": ("e2el", percentile(95)),
}
_SINGLE = ("request_throughput", "output_throughput")
_OF_KIND: Mapping[Kind, Sequence[str]] = {  # bare: whether the backbone itself was as fast in both
    "turn": (*_FIGURES, *_SINGLE),
    "bare": ("p50_ttft_ms", "p95_ttft_ms", "p50_tpot_ms"),
    "end": ("p50_e2el_ms", "p95_e2el_ms"),
}
_UNTOLD = ("state", "load_average", "started", "ended")  # of no two runs alike, and told with the points' marks


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one point in both runs; the interval is of the ratio, 95 %, and None where requests cannot tell."""

    point: str
    kind: Kind
    figure: str
    ours: float
    theirs: float
    ratio: float
    low: float | None
    high: float | None

    @property
    def verdict(self) -> str:
        """Whether the ratio may be chance."""
        if self.low is None or self.high is None:
            return "no interval"
        if self.low <= 1 <= self.high:
            return "no difference shown"
        return "lower" if self.high < 1 else "higher"


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that both runs say of themselves, and not alike."""

    what: str
    ours: str
    theirs: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """`rows` of points in both; `alone` are the points without a partner; `notes` tell what to keep in mind."""

    rows: tuple[Row, ...]
    alone: tuple[tuple[str, ...], tuple[str, ...]]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]


Requests = Mapping[str, Sequence[Sample]]  # of each point


def compare(ours: Path, theirs: Path) -> Comparison:
    """Two runs' folders or their result.json, whose samples lie beside. Raises BadInput."""
    runs = [load_result(path) for path in (ours, theirs)]
    requests = [read_requests(path) for path in (ours, theirs)]
    first, second = ({point.id: point for point in run.points} for run in runs)
    both = [name for name in first if name in second]
    rows = [row for name in both for row in _rows(first[name], second[name], requests)]
    notes = [_without(path) for path, held in zip((ours, theirs), requests, strict=True) if not held]
    notes += [
        f"{name} of {path.name}: {mark}"
        for path, points in ((ours, first), (theirs, second))
        for name in both
        for mark in points[name].marks
    ]
    alone = tuple(name for name in first if name not in second), tuple(name for name in second if name not in first)
    return Comparison(tuple(rows), alone, tuple(differences(*(run.about for run in runs))), tuple(notes))


def read_requests(path: Path) -> Requests:
    """A run's raw samples by point; none where a result lies alone. Raises BadInput."""
    folder = path if path.is_dir() else path.parent
    if not (folder / SAMPLES).exists():
        return {}
    found: dict[str, list[Sample]] = {}
    for one in read_samples(path):
        found.setdefault(one.point, []).append(one)
    return found


def differences(ours: Mapping[str, object], theirs: Mapping[str, object]) -> list[Difference]:
    """What two runs say of themselves, and not alike; dots join the names of what lies within."""
    first, second = dict(flat(ours)), dict(flat(theirs))
    return [
        Difference(name, first.get(name, "absent"), second.get(name, "absent"))
        for name in dict.fromkeys([*first, *second])
        if first.get(name) != second.get(name) and not set(name.split(".")) & set(_UNTOLD)
    ]


def flat(about: Mapping[str, object], before: str = "") -> Iterable[tuple[str, str]]:
    """Names and values of a nested mapping."""
    for name, value in about.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{name}.")
        elif isinstance(value, list | tuple):
            yield f"{before}{name}", ", ".join(map(str, value))
        else:
            yield f"{before}{name}", str(value)


def between(ours: Sequence[Sample], theirs: Sequence[Sample], figure: str) -> Ratio | None:
    """The ratio of one figure (as `p95_ttft_ms`) of any two lots of requests; None where a lot has no such times."""
    name, of = _FIGURES[figure]
    first, second = _measured(ours, name), _measured(theirs, name)
    return ratio(first, second, of) if first and second else None


def tables(found: Comparison, names: tuple[str, str]) -> list[Table]:
    """The comparison for a person; `names` are those of the runs."""
    rows = [
        {
            "point": row.point,
            "of": row.kind,
            "figure": row.figure,
            names[0]: f"{row.ours:.2f}",
            names[1]: f"{row.theirs:.2f}",
            "ratio": _told(row),
            "verdict": row.verdict,
        }
        for row in found.rows
    ]
    differ = [{"what": one.what, names[0]: one.ours, names[1]: one.theirs} for one in found.differences]
    return [
        Table.of(f"{names[1]} by {names[0]} (ratio with 95 % interval; below 1 is less)", rows),
        Table.of("What else differs between the two", differ),
    ][: 1 + bool(differ)]


def _rows(ours: Point, theirs: Point, requests: Sequence[Requests]) -> Iterable[Row]:
    for kind, figures in _OF_KIND.items():
        first, second = _part(ours, kind), _part(theirs, kind)
        if first is None or second is None:
            continue
        lots = [[one for one in held.get(ours.id, ()) if one.kind == kind] for held in requests]
        for figure in figures:
            before, after = first.figures.get(figure), second.figures.get(figure)
            if before and after:
                yield Row(ours.id, kind, figure, before, after, after / before, *_interval(lots, figure))


def _interval(lots: Sequence[Sequence[Sample]], figure: str) -> tuple[float | None, float | None]:
    found = None if figure in _SINGLE else between(lots[0], lots[1], figure)
    return (found.low, found.high) if found else (None, None)


def _part(point: Point, kind: Kind) -> Part | None:
    return {"turn": point.turns, "bare": point.bare, "end": point.ends}[kind]


def _measured(samples: Sequence[Sample], name: str) -> Measured:
    """By conversation; a failed request has no time."""
    values = (((one.user, one.session), _VALUES[name](one)) for one in samples if not (one.error or one.warm_up))
    return [(conversation, value) for conversation, value in values if value]


def _without(path: Path) -> str:
    return f"no {SAMPLES} lies beside {path}: its figures have no intervals"


def _told(row: Row) -> str:
    interval = "" if row.low is None else f" [{row.low:.3f}, {row.high:.3f}]"
    return f"{row.ratio:.3f}{interval}"
