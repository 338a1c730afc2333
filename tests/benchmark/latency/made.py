"""Latency runs made by hand: points with few figures, and their requests."""

from pathlib import Path

from localmem.benchmark.latency.result import (
    SAMPLE,
    SAMPLES,
    CacheHit,
    Calls,
    Kind,
    Load,
    MemoryPeak,
    Overhead,
    Part,
    Point,
    Result,
    Sample,
    Share,
    save_result,
)

RANKS = ("mean", "median", "std", "p50", "p90", "p95", "p99")


def part(p50: float, p95: float, stages: dict[str, float] | None = None, **more: float) -> Part:
    """First tokens at these ranks, answers 1,000 ms later; each stage takes its mean always."""
    figures = {"completed": 120.0, "failed": 0.0, "duration": 60.0, "request_throughput": 2.0, **more}
    for what, later in (("ttft", 0.0), ("e2el", 1000.0)):
        figures |= {f"{rank}_{what}_ms": (p95 if rank in ("p95", "p99") else p50) + later for rank in RANKS}
    held = stages or {}
    return Part(figures, {name: Share(ms, ms, ms, ms / sum(held.values())) for name, ms in held.items()})


def point(system: str, users: int = 8, history: int = 10, **more: object) -> Point:
    """One whose first token takes 100 ms, 95 % within 287.3 ms; the bare backbone's 80 and 200.1."""
    during = bool(more.get("during_ends"))
    stages = {"embed": 5.0, "first_token": 95.0, f"llm:{system}/refine": 40.0, "decode": 900.0, "after:store": 2.0}
    turns = part(100.0, 287.3, stages)
    called = {"agent/respond": Calls(1, 800, 400, 60), f"{system}/refine": Calls(2, 300, 0, 40)}
    values: dict[str, object] = {
        "id": f"{system}/c{users}/h{history}/warm{'/ends' if during else ''}",
        "system": system,
        "load": Load("closed", concurrency=users),
        "history": history,
        "units": 3 * history,
        "cache": "warm",
        "requests": 120,
        "warm_up": 8,
        "turns": Part(turns.figures, turns.stages, called),
        "bare": part(80.0, 200.1),
        "ends": part(0.0, 0.0, {"llm:x/summarise": 700.0, "commit": 3.0}),
        "cache_hit": CacheHit(0.7, {1: 0.1, 4: 0.9, 5: 0.85}, 0.6),
        "memory": MemoryPeak(900.4, None),
        "energy_j": 600.0,
        "overhead": Overhead(20.0, 87.2, 1.25, 1.436),
        **more,
    }
    return Point(**values)  # type: ignore[arg-type]  # as its fields are named


def request(at: Point, session: str, ttft: float, kind: Kind = "turn") -> Sample:
    """One turn of a session."""
    return Sample(at.id, kind, "u1", session, 2, 0.0, ttft, ttft + 1000, (), 800, 400, 60)


def saved(folder: Path, *points: Point, requests: tuple[Sample, ...] = (), **about: object) -> Path:
    """The folder, as a run leaves it behind."""
    folder.mkdir(parents=True)
    save_result(folder, Result(about, points))
    (folder / SAMPLES).write_bytes(b"".join(SAMPLE.dump_json(one) + b"\n" for one in requests))
    return folder
