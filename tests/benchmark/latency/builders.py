"""Latency runs built by hand: measurements with few figures, and their requests."""

from pathlib import Path

from localmem.benchmark.latency.result import (
    SAMPLE,
    SAMPLES,
    CacheHit,
    Kind,
    LatencyResult,
    Measurement,
    MemoryPeak,
    Overhead,
    PromptCost,
    RequestStats,
    Sample,
    StageTime,
    save_result,
)
from localmem.benchmark.recipes import Load

STATISTICS = ("mean", "median", "std", "p50", "p90", "p95", "p99")


def build_stats(p50: float, p95: float, stages: dict[str, float] | None = None, **figures: float) -> RequestStats:
    """First tokens at these percentiles, replies 1,000 ms later; each stage always takes its mean."""
    values = {"completed": 120.0, "failed": 0.0, "duration": 60.0, "request_throughput": 2.0, **figures}
    for kind, later in (("ttft", 0.0), ("e2el", 1000.0)):
        values |= {f"{name}_{kind}_ms": (p95 if name in ("p95", "p99") else p50) + later for name in STATISTICS}
    total = sum((stages or {}).values())
    return RequestStats(values, {name: StageTime(ms, ms, ms, ms / total) for name, ms in (stages or {}).items()})


def build_point(system: str, users: int = 8, history: int = 10, **changes: object) -> Measurement:
    """First token at p50 100 ms and p95 287.3 ms; the bare backbone's 80 and 200.1."""
    during = bool(changes.get("during_ends"))
    stages = {"embed": 5.0, "first_token": 95.0, f"llm:{system}/refine": 40.0, "decode": 900.0, "after:store": 2.0}
    turns = build_stats(100.0, 287.3, stages)
    calls = {"agent/respond": PromptCost(1, 800, 400, 60), f"{system}/refine": PromptCost(2, 300, 0, 40)}
    values: dict[str, object] = {
        "id": f"{system}/c{users}/h{history}/warm{'/ends' if during else ''}",
        "system": system,
        "load": Load("closed", concurrency=users),
        "history": history,
        "units": 3 * history,
        "cache": "warm",
        "requests": 120,
        "warm_up": 8,
        "turns": RequestStats(turns.figures, turns.stages, calls),
        "bare": build_stats(80.0, 200.1),
        "ends": build_stats(0.0, 0.0, {"llm:x/summarise": 700.0, "commit": 3.0}),
        "cache_hit": CacheHit(0.7, {1: 0.1, 4: 0.9, 5: 0.85}, 0.6),
        "memory": MemoryPeak(900.4, None),
        "energy_j": 600.0,
        "overhead": Overhead(20.0, 87.2, 1.25, 1.436),
        **changes,
    }
    return Measurement(**values)  # type: ignore[arg-type]  # as its fields are named


def build_request(point: Measurement, session: str, ttft: float, kind: Kind = "turn") -> Sample:
    """One turn of a session."""
    return Sample(point.id, kind, "u1", session, 2, 0.0, ttft, ttft + 1000, (), 800, 400, 60)


def save_run(folder: Path, *points: Measurement, requests: tuple[Sample, ...] = (), **about: object) -> Path:
    """The folder as a run leaves it."""
    folder.mkdir(parents=True)
    save_result(folder, LatencyResult(about, points))
    (folder / SAMPLES).write_bytes(b"".join(SAMPLE.dump_json(sample) + b"\n" for sample in requests))
    return folder
