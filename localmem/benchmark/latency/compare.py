"""Compares two latency runs: ratios of the same figures, with bootstrap intervals from the raw requests.

Also lists what else differs between the runs: a ratio is evidence for a change only if nothing else changed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from localmem.benchmark.latency.figures import time_per_output_token
from localmem.benchmark.latency.result import SAMPLES, Kind, Measurement, Sample, load_result, read_samples
from localmem.reporting.bootstrap import Clustered, Ratio, Statistic, cluster_mean, cluster_percentile, cluster_ratio
from localmem.reporting.sections import Table

SamplesById = Mapping[str, Sequence[Sample]]

_STATISTICS: Mapping[str, Statistic] = {
    "mean": cluster_mean,
    "p50": cluster_percentile(50),
    "p95": cluster_percentile(95),
}
_VALUES: Mapping[str, Callable[[Sample], float | None]] = {
    "ttft": lambda sample: sample.ttft_ms,
    "tpot": time_per_output_token,
    "e2el": lambda sample: sample.e2el_ms,
}
_TURN_FIGURES = ("mean_ttft_ms", "p50_ttft_ms", "p95_ttft_ms", "p50_tpot_ms", "p50_e2el_ms", "p95_e2el_ms")
_FIGURES: Mapping[Kind, Sequence[str]] = {  # "bare" shows whether the backbone itself was equally fast in both runs
    "turn": (*_TURN_FIGURES, "request_throughput", "output_throughput"),
    "bare": ("p50_ttft_ms", "p95_ttft_ms", "p50_tpot_ms"),
    "end": ("p50_e2el_ms", "p95_e2el_ms"),
}
_ALWAYS_DIFFERENT = {"state", "load_average", "started", "ended"}


@dataclass(frozen=True, slots=True)
class FigureRatio:
    """One figure in both runs. `low` and `high` are the 95 % interval of the ratio, None without raw requests."""

    point: str
    kind: Kind
    figure: str
    first: float
    second: float
    ratio: float
    low: float | None
    high: float | None

    @property
    def verdict(self) -> str:
        """Whether the interval excludes 1."""
        if self.low is None or self.high is None:
            return "no interval"
        if self.low <= 1 <= self.high:
            return "no difference shown"
        return "lower" if self.high < 1 else "higher"


@dataclass(frozen=True, slots=True)
class Comparison:
    """`differences` are (setting, first, second) of what else differs; `notes` are marks and what is missing."""

    rows: tuple[FigureRatio, ...]
    differences: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...]

    def tables(self) -> list[Table]:
        """The ratios and, if there are any, the other differences; the runs are called A and B."""
        rows = [
            {
                "measurement": row.point,
                "requests": row.kind,
                "figure": row.figure,
                "A": f"{row.first:.2f}",
                "B": f"{row.second:.2f}",
                "ratio": format_ratio(row),
                "verdict": row.verdict,
            }
            for row in self.rows
        ]
        tables = [Table.of("B / A (ratio with 95 % interval; below 1 is less)", rows)]
        if self.differences:
            tables.append(Table("What else differs between the runs", ("setting", "A", "B"), self.differences))
        return tables


def compare(first: Path, second: Path) -> Comparison:
    """Compares two runs, given by their folder or result.json. Raises BadInput."""
    paths = (first, second)
    results = [load_result(path) for path in paths]
    samples = [read_samples_by_id(path) for path in paths]
    measurements = [{point.id: point for point in result.points} for result in results]
    shared = [name for name in measurements[0] if name in measurements[1]]
    notes = [
        f"{path} has no {SAMPLES}: its figures have no intervals"
        for path, rows in zip(paths, samples, strict=True)
        if not rows
    ]
    notes += [
        f"{name} of {path.name}: {mark}"
        for path, by_id in zip(paths, measurements, strict=True)
        for name in shared
        for mark in by_id[name].marks
    ]
    notes += [f"{name} is only in one of the runs" for name in measurements[0].keys() ^ measurements[1].keys()]
    settings = [dict(flat_items(result.about)) for result in results]
    return Comparison(
        tuple(row for name in shared for row in _ratios(measurements[0][name], measurements[1][name], samples)),
        tuple(
            (name, settings[0].get(name, "absent"), settings[1].get(name, "absent"))
            for name in dict.fromkeys([*settings[0], *settings[1]])
            if settings[0].get(name) != settings[1].get(name) and not _ALWAYS_DIFFERENT & set(name.split("."))
        ),
        tuple(notes),
    )


def read_samples_by_id(path: Path) -> SamplesById:
    """A run's raw samples by measurement; empty if only its result.json exists. Raises BadInput."""
    samples: defaultdict[str, list[Sample]] = defaultdict(list)
    if ((path if path.is_dir() else path.parent) / SAMPLES).exists():
        for sample in read_samples(path):
            samples[sample.point].append(sample)
    return samples


def flat_items(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted names and text values of a nested mapping."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat_items(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def sample_ratio(first: Sequence[Sample], second: Sequence[Sample], figure: str) -> Ratio | None:
    """The ratio of a figure such as `p95_ttft_ms`, second to first; None if either has no such times."""
    statistic, kind, _ = figure.split("_")
    sides = _by_conversation(first, kind), _by_conversation(second, kind)
    return cluster_ratio(*sides, _STATISTICS[statistic]) if all(sides) else None


def format_ratio(ratio: FigureRatio | Ratio) -> str:
    """The ratio with its interval, if it has one."""
    return f"{ratio.ratio:.3f}" + ("" if ratio.low is None else f" [{ratio.low:.3f}, {ratio.high:.3f}]")


def _ratios(first: Measurement, second: Measurement, samples: Sequence[SamplesById]) -> Iterator[FigureRatio]:
    for kind, figures in _FIGURES.items():
        sides = first.stats(kind), second.stats(kind)
        if sides[0] is None or sides[1] is None:
            continue
        requests = [[sample for sample in by_id.get(first.id, ()) if sample.kind == kind] for by_id in samples]
        for figure in figures:
            values = sides[0].figures.get(figure), sides[1].figures.get(figure)
            if values[0] and values[1]:
                interval = None if figure.endswith("throughput") else sample_ratio(requests[0], requests[1], figure)
                bounds = (interval.low, interval.high) if interval else (None, None)
                yield FigureRatio(first.id, kind, figure, values[0], values[1], values[1] / values[0], *bounds)


def _by_conversation(samples: Sequence[Sample], kind: str) -> Clustered:
    """Values by conversation; failed and warm-up requests have none."""
    values = (
        ((sample.user, sample.session), _VALUES[kind](sample))
        for sample in samples
        if not (sample.error or sample.warm_up)
    )
    return [(conversation, value) for conversation, value in values if value]
