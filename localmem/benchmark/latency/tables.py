"""Tables of a latency run: every figure of every measurement."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from localmem.benchmark.latency.compare import SamplesById, format_ratio, sample_ratio
from localmem.benchmark.latency.result import Kind, Measurement, RequestStats, Sample
from localmem.reporting.bootstrap import Ratio
from localmem.reporting.sections import CAUTION, Table

Row = dict[str, object]

_STATISTICS = ("mean", "median", "std", "p50", "p90", "p95", "p99")
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
            _row(point, kind, {name: format_ms(part.figures.get(f"{name}_{time}_ms")) for name in _STATISTICS})
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
        elif value is not None:
            row[name.removesuffix("_ms")] = format_ms(value)
    return row


def _stage_cells(part: RequestStats) -> Row:
    return {
        short_stage(name): f"{format_ms(time.mean_ms)} ({format_ms(time.p95_ms)}) {time.share:.0%}"
        for name, time in part.stages.items()
    }


def _ratio(ratio: float | None, first: Sequence[Sample], second: Sequence[Sample], figure: str) -> str:
    """The ratio with the interval that the raw requests give."""
    if ratio is None:
        return "–"
    interval = sample_ratio(first, second, figure)
    return format_ratio(Ratio(ratio, *(interval[1:] if interval else (None, None))))


def _of_kind(samples: Sequence[Sample], kind: Kind) -> list[Sample]:
    return [sample for sample in samples if sample.kind == kind]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"
