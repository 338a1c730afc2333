"""Tables of a latency run: every figure of every point, its marks beside it. Knows no pictures and no files."""

from collections.abc import Iterable, Mapping, Sequence

from localmem.benchmark.latency.compare import between, flat
from localmem.benchmark.latency.result import Calls, Load, Part, Point, Sample, Share
from localmem.reporting.sections import Table

MARK = "⚠"  # stands behind the name of a point that has marks
_SPREAD = ("mean", "median", "std", "p50", "p90", "p95", "p99")
_KINDS = {
    "ttft": "First token (TTFT)",
    "tpot": "A token after the first (TPOT)",
    "itl": "Gap between two pieces (ITL)",
    "e2el": "Whole answer (E2EL)",
}
Requests = Mapping[str, Sequence[Sample]]  # of each point


def name(point: Point) -> str:
    """The point's id, with a sign where there is something to know of it."""
    return f"{point.id} {MARK}" if point.marks else point.id


def told(load: Load) -> str:
    """A load in words."""
    if load.kind == "open":
        return f"{load.rate:g} turns a second"
    return f"{load.concurrency} user{'s' * (load.concurrency != 1)} at once"


def plain(stage: str) -> str:
    """A stage's name without the system's: that a table or a bar tells anyway."""
    return f"{stage[: stage.index('llm:') + 4]}{stage.rpartition('/')[2]}" if "llm:" in stage else stage


def ordered(stages: Iterable[str]) -> list[str]:
    """Each once: localmem's own, its questions to the backbone, the reply, what comes behind it."""
    return sorted(dict.fromkeys(stages), key=_rank)


def overview(points: Sequence[Point]) -> Table:
    """What was measured at each point, and why not to trust it."""
    rows = [
        {
            "point": name(point),
            "units": point.units,
            "requests": point.requests,
            "warm-up": point.warm_up,
            **_counts(point.turns),
            "marks": "; ".join(point.marks),
        }
        for point in points
    ]
    return Table.of("What was measured, and what speaks against it", rows)


def first_words(lines: Mapping[str, Mapping[float, Point]], figure: str) -> Table:
    """Systems down, loads across; the bare backbone's figure on the same prompts in brackets."""
    loads = {load: told(line[load].load) for line in lines.values() for load in line}
    rows = [
        {"system": system, **{loads[load]: _beside(line.get(load), figure) for load in sorted(loads)}}
        for system, line in lines.items()
    ]
    rank, what = figure.removesuffix("_ms").split("_")
    beside = any(point.bare for line in lines.values() for point in line.values())
    without = " (in brackets: the same prompts without localmem)" if beside else ""
    return Table.of(f"{_KINDS[what]}, {rank}, ms{without}", rows)


def spreads(points: Sequence[Point]) -> list[Table]:
    """TTFT, TPOT, ITL and E2EL of every point: of turns, of the bare backbone, of session ends."""
    found = []
    for kind, caption in _KINDS.items():
        rows = [
            {"point": name(point), "of": of, **{rank: _ms(part.figures.get(f"{rank}_{kind}_ms")) for rank in _SPREAD}}
            for point in points
            for of, part in _parts(point)
            if f"mean_{kind}_ms" in part.figures and (kind != "ttft" or of != "session ends")
        ]
        if rows:
            found.append(Table.of(f"{caption}, ms", rows))
    return found


def throughput(points: Sequence[Point]) -> Table:
    """Requests and tokens a second, and what the point took of the machine."""
    rows = [
        {
            "point": name(point),
            "of": of,
            **_counts(part),
            "seconds": _ms(part.figures.get("duration")),
            "requests/s": _ms(part.figures.get("request_throughput")),
            "good/s": _ms(part.figures.get("request_goodput")),
            "output tokens/s": _ms(part.figures.get("output_throughput")),
        }
        for point in points
        for of, part in _parts(point)
    ]
    return Table.of("Throughput, and goodput at the run's objective", rows)


def resources(points: Sequence[Point]) -> Table:
    """Memory and energy."""
    rows = [
        {
            "point": name(point),
            "host peak MB": _whole(point.memory.host_peak_mb),
            "GPU peak MB": _whole(point.memory.device_peak_mb),
            "energy J": _whole(point.energy_j),
            "J a turn": _ms(point.energy_j / point.requests if point.energy_j and point.requests else None),
        }
        for point in points
    ]
    return Table.of("Memory and energy (– where no driver tells)", rows)


def overheads(points: Sequence[Point], requests: Requests) -> Table | None:
    """What localmem adds to the first token, point by point; the ratio's interval is from the raw requests."""
    rows = [row for point in points if (row := _overhead(point, requests.get(point.id, ())))]
    return Table.of("What localmem adds to the first token", rows) if rows else None


def stages(points: Sequence[Point], *, ends: bool = False) -> Table | None:
    """A column for each stage: mean and p95 in ms, and the share of the whole."""
    held = [(point, part) for point in points if (part := point.ends if ends else point.turns) and part.stages]
    if not held:
        return None
    shown = [(name(point), {plain(stage): _share(part.stages[stage]) for stage in part.stages}) for point, part in held]
    names = ordered(stage for _, cells in shown for stage in cells)
    rows = [{"point": point, **{stage: cells.get(stage, "") for stage in names}} for point, cells in shown]
    what = "a session's end" if ends else "a turn"
    return Table.of(f"Stages of {what}: mean (p95) in ms, and share", rows)


def calls(points: Sequence[Point]) -> Table | None:
    """What a turn and a session's end ask of the backbone, by prompt name; means."""
    rows = [
        {"point": name(point), "of": of, "prompt": prompt, **_cost(cost)}
        for point in points
        for of, part in _parts(point)
        if of != "bare"
        for prompt, cost in part.calls.items()
    ]
    return Table.of("Calls and tokens, a turn and a session's end", rows) if rows else None


def cache_hits(points: Sequence[Point]) -> Table | None:
    """Share of the replies' prompt tokens that the prefix cache held, by the turn's number in its session."""
    held = [point for point in points if point.cache_hit.all is not None or point.cache_hit.server is not None]
    turns = sorted({turn for point in held for turn in point.cache_hit.by_turn})
    rows = [
        {
            "point": name(point),
            "all": _percent(point.cache_hit.all),
            **{f"turn {turn}": _percent(point.cache_hit.by_turn.get(turn)) for turn in turns},
            "server's own count": _percent(point.cache_hit.server),
        }
        for point in held
    ]
    return Table.of("Prompt tokens found in the prefix cache", rows) if rows else None


def consolidation(found: Iterable[tuple[Point, Point]], requests: Requests) -> Table | None:
    """Chat while sessions are being remembered, beside chat while none is."""
    rows: list[dict[str, object]] = []
    for quiet, busy in found:
        row: dict[str, object] = {"point": name(busy)}
        for figure in ("p95_ttft_ms", "p95_e2el_ms"):
            before, after = quiet.turns.figures.get(figure), busy.turns.figures.get(figure)
            lots = [[one for one in requests.get(point.id, ()) if one.kind == "turn"] for point in (quiet, busy)]
            what = "first token" if "ttft" in figure else "whole answer"
            row |= {f"{what}, p95": _ms(before), f"{what}, p95 while remembering": _ms(after)}
            row[f"{what}, ratio"] = _ratio(before, after, lots, figure)
        rows.append(row)
    return Table.of("Chat while sessions are being remembered, ms", rows) if rows else None


def worth(times: Mapping[str, float], means: Mapping[str, Mapping[str, float]]) -> Table:
    """Latency and quality of each system; `means` are by measure."""
    rows = [
        {
            "system": system,
            "first token p95, ms": _ms(time),
            **{measure: f"{held[system]:.3f}" if system in held else "–" for measure, held in means.items()},
        }
        for system, time in times.items()
    ]
    return Table.of("Latency and quality", rows)


def measured_on(about: Mapping[str, object]) -> Table:
    """All that the run says of itself."""
    return Table("What it was measured on", ("what", "value"), tuple(flat(about)))


def _rank(stage: str) -> int:
    if stage.startswith("after:"):
        return 4
    return {"first_token": 2, "decode": 3}.get(stage, 1 if "llm:" in stage else 0)


def _beside(point: Point | None, figure: str) -> str:
    if point is None or figure not in point.turns.figures:
        return ""
    bare = f" ({_ms(point.bare.figures.get(figure))})" if point.bare else ""
    return f"{_ms(point.turns.figures[figure])}{bare}{f' {MARK}' if point.marks else ''}"


def _parts(point: Point) -> list[tuple[str, Part]]:
    named = (("turns", point.turns), ("bare", point.bare), ("session ends", point.ends))
    return [(of, part) for of, part in named if part]


def _counts(part: Part) -> dict[str, str]:
    return {key: f"{part.figures[key]:.0f}" if key in part.figures else "–" for key in ("completed", "failed")}


def _overhead(point: Point, requests: Sequence[Sample]) -> dict[str, object] | None:
    found = point.overhead
    if found is None:
        return None
    lots = [[one for one in requests if one.kind == kind] for kind in ("bare", "turn")]
    own = {
        "own p50": _ms(found.own_ttft_p50_ms),
        "own p95": _ms(found.own_ttft_p95_ms),
        "embedding p50": _ms(found.embed_p50_ms),
        "embedding p95": _ms(found.embed_p95_ms),
    }
    row: dict[str, object] = {
        "point": name(point),
        "+ ms p50": _ms(found.ttft_p50_ms),
        "+ ms p95": _ms(found.ttft_p95_ms),
        **(own if found.own_ttft_p50_ms is not None else {}),
    }
    for rank, value in (("p50", found.ttft_ratio_p50), ("p95", found.ttft_ratio_p95)):
        if value is not None:
            row[f"ratio {rank}"] = _ratio(1.0, value, lots, f"{rank}_ttft_ms")
    return row


def _ratio(before: float | None, after: float | None, lots: Sequence[Sequence[Sample]], figure: str) -> str:
    """The figures' ratio, and the interval that their raw requests give it."""
    if not before or after is None:
        return "–"
    found = between(lots[0], lots[1], figure)
    interval = f" [{found.low:.3f}, {found.high:.3f}]" if found and found.low is not None else ""
    return f"{after / before:.3f}{interval}"


def _cost(cost: Calls) -> dict[str, str]:
    return {
        "calls": f"{cost.calls:.2f}",
        "input tokens": f"{cost.input_tokens:.0f}",
        "of them cached": f"{cost.cached_tokens:.0f}",
        "output tokens": f"{cost.output_tokens:.0f}",
    }


def _share(share: Share | None) -> str:
    return "" if share is None else f"{_ms(share.mean_ms)} ({_ms(share.p95_ms)}) {share.share:.0%}"


def _ms(value: float | None) -> str:
    """Three digits that tell something; never an exponent."""
    if value is None:
        return "–"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _whole(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"
