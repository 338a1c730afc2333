"""Tables of latency runs: every figure of every measurement, and the ratios of two runs with bootstrap intervals.

A comparison also lists what else differs: a ratio is evidence for a change only if nothing else changed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from localmem.benchmark.latency.result import (
    SAMPLES,
    Kind,
    Measurement,
    RequestStats,
    Sample,
    load_result,
    read_samples,
    time_per_output_token,
)
from localmem.reporting.bootstrap import Clustered, Ratio, Statistic, cluster_mean, cluster_percentile, cluster_ratio
from localmem.reporting.sections import CAUTION, Table

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
        columns = ("measurement", "requests", "figure", "A", "B", "ratio", "verdict")
        rows = tuple(
            (row.point, row.kind, row.figure, f"{row.first:.2f}", f"{row.second:.2f}", format_ratio(row), row.verdict)
            for row in self.rows
        )
        tables = [Table("B / A (ratio with 95 % interval; below 1 is less)", columns, rows)]
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
    notes = []
    for path, rows, by_id in zip(paths, samples, measurements, strict=True):
        notes += [] if rows else [f"{path} has no {SAMPLES}: its figures have no intervals"]
        notes += [f"{name} of {path.name}: {mark}" for name in shared for mark in by_id[name].marks]
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
        requests = [_of_kind(by_id.get(first.id, ()), kind) for by_id in samples]
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


Row = dict[str, object]

_COLUMNS = ("mean", "median", "std", "p50", "p90", "p95", "p99")
_TIMES = {
    "ttft": "Time to first token (TTFT)",
    "tpot": "Time per output token (TPOT)",
    "itl": "Inter-token latency (ITL)",
    "e2el": "End-to-end latency (E2EL)",
}
_RATES = {
    "seconds": "duration",
    "requests/s": "request_throughput",
    "good/s": "request_goodput",
    "output tokens/s": "output_throughput",
}
_KINDS: Mapping[Kind, str] = {"turn": "turns", "bare": "bare backbone", "end": "session ends"}


def label(measurement: Measurement) -> str:
    """The measurement's id, marked if there are reasons for caution."""
    return f"{measurement.id} {CAUTION}" if measurement.marks else measurement.id


def format_ms(value: float | None) -> str:
    """Three significant digits, without an exponent; a dash for None."""
    if value is None:
        return "–"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def short_stage(stage: str) -> str:
    """A stage's name without that of the system, which the row or bar already says."""
    return f"{stage[: stage.index('llm:') + 4]}{stage.rpartition('/')[2]}" if "llm:" in stage else stage


def sort_stages(stages: Iterable[str]) -> list[str]:
    """Each once: localmem's own work, its prompts to the backbone, the reply, what comes after it."""

    def rank(stage: str) -> int:
        if stage.startswith("after:"):
            return 4
        return {"first_token": 2, "decode": 3}.get(stage, 1 if "llm:" in stage else 0)

    return sorted(dict.fromkeys(stages), key=rank)


def first_token_table(lines: Mapping[str, Mapping[float, Measurement]], rank: str, setting: str) -> Table:
    """Systems down, loads across; in brackets the bare backbone with the same prompts."""
    loads = {at: str(point.load) for line in lines.values() for at, point in line.items()}

    def cell(point: Measurement | None) -> str:
        if point is None:
            return ""
        bare = f" ({format_ms(point.bare.figures.get(f'{rank}_ttft_ms'))})" if point.bare else ""
        return f"{format_ms(point.turns.figures.get(f'{rank}_ttft_ms'))}{bare}{f' {CAUTION}' if point.marks else ''}"

    rows = [
        {"system": system, **{loads[at]: cell(line.get(at)) for at in sorted(loads)}} for system, line in lines.items()
    ]
    return Table.of(f"{_TIMES['ttft']}, {rank}, ms; in brackets without localmem ({setting})", rows)


def figure_tables(measurements: Sequence[Measurement], samples: SamplesById) -> list[Table]:
    """Throughput and resources, latencies, overhead, and the cost of prompts."""
    stats = [(point, kind, part) for point in measurements for kind in _KINDS if (part := point.stats(kind))]
    tables = {"Throughput, goodput, memory and energy (– if not reported)": [_overview(*each) for each in stats]}
    for time, caption in _TIMES.items():
        tables[f"{caption}, ms"] = [
            _row(point, kind, {name: format_ms(part.figures.get(f"{name}_{time}_ms")) for name in _COLUMNS})
            for point, kind, part in stats
            if f"mean_{time}_ms" in part.figures and (time, kind) != ("ttft", "end")
        ]
    tables["Time that localmem adds to the first token, in ms and as a ratio"] = [
        _overhead(point, samples.get(point.id, ())) for point in measurements if point.overhead
    ]
    tables["Calls and tokens of each prompt, per turn and per session end"] = [
        _row(point, kind, {"prompt": prompt, **{name: f"{value:.2f}" for name, value in asdict(cost).items()}})
        for point, kind, part in stats
        if kind != "bare"
        for prompt, cost in part.calls.items()
    ]
    return [Table.of(caption, rows) for caption, rows in tables.items() if rows]


def stage_tables(measurements: Sequence[Measurement]) -> list[Table]:
    """Stages of turns and of session ends: mean, p95, and share of the whole."""
    tables = []
    for kind, title in _KINDS.items():
        rows = []
        for point in measurements:
            part = point.stats(kind)
            rows += [_row(point, kind, _stage_cells(part))] if part and part.stages else []
        columns = sort_stages(name for row in rows for name in row if name not in ("measurement", "requests"))
        rows = [{name: row.get(name, "") for name in ("measurement", *columns)} for row in rows]
        tables += [Table.of(f"Stages of {title}: mean (p95) in ms, and share", rows)] if rows else []
    return tables


def cache_table(measurements: Sequence[Measurement]) -> list[Table]:
    """Prompt tokens found in the prefix cache, by the turn's number in its session."""
    hits = [(point, hit) for point in measurements if {(hit := point.cache_hit).all, hit.server} != {None}]
    turns = sorted({turn for _, hit in hits for turn in hit.by_turn})
    rows = [
        {
            "measurement": label(point),
            "all": _percent(hit.all),
            **{f"turn {turn}": _percent(hit.by_turn.get(turn)) for turn in turns},
            "server's own count": _percent(hit.server),
        }
        for point, hit in hits
    ]
    return [Table.of("Prompt tokens found in the prefix cache", rows)] if rows else []


def during_ends_table(pairs: Iterable[tuple[Measurement, Measurement]], samples: SamplesById) -> list[Table]:
    """Each measurement without and with sessions being remembered in the background."""
    rows: list[Row] = []
    for idle, busy in pairs:
        row: Row = {"measurement": label(busy)}
        for name, figure in (("first token p95", "p95_ttft_ms"), ("whole reply p95", "p95_e2el_ms")):
            first, second = idle.turns.figures.get(figure), busy.turns.figures.get(figure)
            requests = [_of_kind(samples.get(point.id, ()), "turn") for point in (idle, busy)]
            row |= {name: format_ms(first), f"{name} meanwhile": format_ms(second)}
            ratio = second / first if first and second else None
            row[f"{name} ratio"] = _ratio(ratio, requests[0], requests[1], figure)
        rows.append(row)
    return [Table.of("Replies while sessions are being remembered, ms", rows)] if rows else []


def _row(point: Measurement, kind: Kind, cells: Mapping[str, object]) -> Row:
    return {"measurement": label(point), "requests": _KINDS[kind], **cells}


def _overview(point: Measurement, kind: Kind, part: RequestStats) -> Row:
    row = _row(point, kind, {name: f"{part.figures.get(name, 0):.0f}" for name in ("completed", "failed")})
    row |= {title: format_ms(part.figures.get(name)) for title, name in _RATES.items()}
    if kind == "turn":
        energy = point.energy_j / point.requests if point.energy_j and point.requests else None
        row |= {"warm-up": point.warm_up, "units": point.units, "host MB": format_ms(point.memory.host_peak_mb)}
        row |= {"GPU MB": format_ms(point.memory.device_peak_mb), "J per turn": format_ms(energy)}
        row["caution"] = "; ".join(point.marks)
    return row


def _overhead(point: Measurement, samples: Sequence[Sample]) -> Row:
    """Of what is known; the ratios with the intervals that the raw requests give."""
    row: Row = {"measurement": label(point)}
    for name, value in asdict(point.overhead).items() if point.overhead else ():
        if "ratio" in name and value is not None:
            sides = _of_kind(samples, "bare"), _of_kind(samples, "turn")
            row[name] = _ratio(value, *sides, f"{name[-3:]}_ttft_ms")
        elif isinstance(value, tuple):
            figure = name.removesuffix("_interval_ms")
            row[figure] = f"{row[figure]} [{format_ms(value[0])}, {format_ms(value[1])}]"
        elif value is not None:
            row[name.removesuffix("_ms")] = format_ms(value)
    return row


def _stage_cells(part: RequestStats) -> Row:
    return {
        short_stage(name): f"{format_ms(time.mean_ms)} ({format_ms(time.p95_ms)}) {time.share:.0%}"
        for name, time in part.stages.items()
    }


def _ratio(ratio: float | None, first: Sequence[Sample], second: Sequence[Sample], figure: str) -> str:
    if ratio is None:
        return "–"
    interval = sample_ratio(first, second, figure)
    return format_ratio(Ratio(ratio, *(interval[1:] if interval else (None, None))))


def _of_kind(samples: Sequence[Sample], kind: Kind) -> list[Sample]:
    return [sample for sample in samples if sample.kind == kind]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"
