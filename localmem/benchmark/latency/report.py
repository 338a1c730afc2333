"""The report of latency runs: plain lines, pictures and tables, as one HTML page and one Markdown text.

Measures nothing and reads nothing but its template. Where quality is given, an evaluation found it.
"""

import base64
import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from math import ceil, floor, log10
from pathlib import Path

from jinja2 import Environment, Template

from localmem.benchmark.latency import chosen, plots, tables
from localmem.benchmark.latency.chosen import Setting
from localmem.benchmark.latency.plots import Curve
from localmem.benchmark.latency.result import Part, Point
from localmem.benchmark.latency.runs import Quality, Run
from localmem.reporting.plots import picture
from localmem.reporting.sections import Section, Table, markdown

AIM_HIT, AIM_TURN = 0.8, 4  # of prompt tokens from this turn on: what memory that is placed last allows


def sections(run: Run, folder: Path, qualities: Sequence[Quality] = ()) -> list[Section]:
    """The run's report, part by part; pictures go into `folder`. Raises MissingExtra without matplotlib."""
    book = _Book(run, folder)
    found = [_short(book), _loads(book), _each(book), _where(book), _histories(book), _caches(book), _remembering(book)]
    found += [_worth(book, qualities), _figures(book), _about(run)]
    return [section for section in found if section.tables or section.pictures or section.notes]


def text(runs: Sequence[tuple[Run, Sequence[Section]]], folder: Path) -> str:
    """All runs as one Markdown text to lie in `folder`, beside the pictures."""
    told = []
    for run, parts in runs:
        titled = [replace(part, title=f"{run.name}: {part.title}") for part in parts]
        told.append(markdown([(folder, part) for part in titled], folder))
    return "# localmem latency\n\n" + "\n".join(told)


def page(runs: Sequence[tuple[Run, Sequence[Section]]], folder: Path) -> str:
    """All runs as one HTML page that needs nothing but itself."""
    shown = [
        (run.name, [(part, [(Path(name).stem, _embedded(folder / name)) for name in part.pictures]) for part in parts])
        for run, parts in runs
    ]
    return _template().render(runs=shown, mark=tables.MARK)


def line(point: Point) -> str:
    """The point in one plain sentence, with what speaks against it."""
    p95, figures = point.turns.figures.get("p95_ttft_ms"), point.turns.figures
    if p95 is None:
        return f"{point.system}: {tables.told(point.load)}: no turn was answered"
    bare, added = point.bare.figures.get("p95_ttft_ms") if point.bare else None, point.overhead
    without = f"; {_within(bare)} for the same prompts without localmem" if bare else ""
    if added and added.own_ttft_p95_ms is not None:
        without = (
            f"; of it localmem's own {_within(added.own_ttft_p95_ms)}, embedding {_within(added.embed_p95_ms or 0)}"
        )
    failed = figures.get("failed", 0)
    lost = f" of those answered, {failed:.0f} of {failed + figures['completed']:.0f} failed" if failed else ""
    against = f" ({tables.MARK} {'; '.join(point.marks)})" if point.marks else ""
    return (
        f"{point.system}: {tables.told(point.load)}: first word within {_within(p95)} for 95 %{lost}{without}{against}"
    )


class _Book:
    """A run while it is told: its points, its colours, and where its pictures go."""

    def __init__(self, run: Run, folder: Path) -> None:
        self.run = run
        self.folder = folder
        self.points = run.result.points
        self.quiet = chosen.idle(self.points) or list(self.points)
        self.usual = chosen.usual(self.quiet)
        self.loads = chosen.longest(
            self.quiet, lambda one: (one.load.kind, one.history, one.cache), lambda one: one.load
        )
        self.colours = plots.colours(dict.fromkeys(point.system for point in self.points))

    def draw(self, name: str, how: "plots.Draw", height: float = 4.2) -> str:
        """The name of the picture that was drawn."""
        file = re.sub(r"[^\w.-]", "-", f"{self.run.name}-{name}.svg")
        picture(self.folder / file, how, width=8, height=height, kind="svg")
        return file


def _short(book: _Book) -> Section:
    """One line a system."""
    wanted = book.usual
    about = book.run.result.about
    measured = f"Measured on {about.get('model', 'an unknown model')}: {_before(wanted)}, {wanted.cache} prefix cache."
    given = ["The backbone is scripted: its times are given, and only what localmem adds is measured."]
    lines = [line(point) for point in chosen.under(book.quiet, wanted)]
    return Section("In short", (measured, *(given if _scripted(about) else []), *lines, *_most(book)), ())


def _scripted(about: Mapping[str, object]) -> bool:
    arguments = about.get("arguments")
    return isinstance(arguments, Mapping) and bool(arguments.get("scripted"))


def _most(book: _Book) -> list[str]:
    """How many users at once keep to the run's objective for the first token; nothing where it has none."""
    arguments = book.run.result.about.get("arguments")
    goodput = arguments.get("goodput") if isinstance(arguments, Mapping) else None
    limit = goodput.get("ttft") if isinstance(goodput, Mapping) else None
    lines = chosen.by_load(book.quiet, book.loads)
    if not isinstance(limit, int | float) or not _sweep(lines):
        return []
    most = {system: _kept(_figure(held, "p95_ttft_ms"), limit) for system, held in lines.items()}
    told = [f"{system} with {tables.told(lines[system][load].load)}" for system, load in most.items() if load]
    none = [system for system, load in most.items() if not load]
    found = [f"First word within {limit:g} ms for 95 %, at most: {', '.join(told)}"] if told else []
    return [*found, *([f"At no load within {limit:g} ms for 95 %: {', '.join(none)}"] if none else [])]


def _kept(figures: Mapping[float, float], limit: float) -> float | None:
    """The greatest load up to which every one measured keeps to the limit."""
    within = itertools.takewhile(lambda load: figures[load] <= limit, sorted(figures))
    return max(within, default=None)


def _loads(book: _Book) -> Section:
    """The first token against how many talk at once."""
    at, title = book.loads, "Users at once" if book.loads.load.kind == "closed" else "Turns a second"
    shown: list[Table] = []
    pictures = []
    for warmth in dict.fromkeys(point.cache for point in book.quiet):
        lines = chosen.by_load(book.quiet, at._replace(cache=warmth))
        found = [tables.first_words(lines, f"{rank}_ttft_ms") for rank in ("p50", "p95") if lines]
        shown += [replace(table, caption=f"{table.caption}, {warmth} cache") for table in found]
        if _sweep(lines):
            pictures.append(_all_systems(book, lines, warmth, title.lower()))
    return Section(title, (f"With {_before(at)}.",), tuple(shown), tuple(pictures))


def _each(book: _Book) -> Section:
    """The same for one system at a time, beside the bare backbone on the same prompts."""
    lines = chosen.by_load(book.quiet, book.loads)
    across = "users at once" if book.loads.load.kind == "closed" else "turns a second"
    held = lines if _sweep(lines) else {}
    pictures = [_one_system(book, system, points, across) for system, points in held.items()]
    return Section("Beside the bare backbone", (), (), tuple(pictures))


def _all_systems(book: _Book, lines: Mapping[str, Mapping[float, Point]], cache: str, across: str) -> str:
    drawn = [Curve(system, _figure(held, "p95_ttft_ms"), book.colours[system]) for system, held in lines.items()]
    drawn = [curve for curve in drawn if curve.points]
    title = f"First token, p95, every system ({cache} cache)"
    return book.draw(f"first-token-{cache}", plots.curves(drawn, title, across, "ms"))


def _one_system(book: _Book, system: str, held: Mapping[float, Point], across: str) -> str:
    """Its p50 and p95, and the bare backbone's on the same prompts."""
    bare = {at: point.bare for at, point in held.items() if point.bare}
    colour = book.colours[system]
    drawn = [
        Curve("p95", _figure(held, "p95_ttft_ms"), colour),
        Curve("p50", _figure(held, "p50_ttft_ms"), colour, "--"),
        Curve("p95 without localmem", _of(bare, "p95_ttft_ms"), "#888888"),
        Curve("p50 without localmem", _of(bare, "p50_ttft_ms"), "#888888", "--"),
    ]
    curves = [curve for curve in drawn if curve.points]
    how = plots.curves(curves, f"{system}: first token ({book.loads.cache} cache)", across, "ms")
    return book.draw(f"beside-bare-{system}", how)


def _sweep(lines: Mapping[str, Mapping[float, Point]]) -> bool:
    """Whether there is a line to be drawn: two loads or histories of one system."""
    return max(map(len, lines.values()), default=0) > 1


def _where(book: _Book) -> Section:
    """What a turn and a session's end are made up of, system by system."""
    held = chosen.under(book.quiet, book.usual)
    words = f"{tables.told(book.usual.load)}, {_before(book.usual)}, {book.usual.cache} cache"
    kinds: Mapping[str, tuple[str, Callable[[Point], Mapping[str, float]]]] = {
        "stages-first-token": ("To the first token", lambda one: _stages(one.turns, _before_first)),
        "stages-turn": ("A whole turn", lambda one: _stages(one.turns, lambda _: True)),
        "stages-end": ("A session's end", lambda one: _stages(one.ends, lambda _: True)),
    }
    pictures = []
    for file, (title, of) in kinds.items():
        bars = {_marked(point): parts for point in held if (parts := of(point))}
        order = tables.ordered(stage for parts in bars.values() for stage in parts)
        bars = {bar: {stage: parts.get(stage, 0.0) for stage in order} for bar, parts in bars.items()}
        if bars:
            pictures.append(book.draw(file, plots.stacks(bars, title, "mean ms"), 1.8 + 0.42 * len(bars)))
    shown = [tables.stages(book.quiet), tables.stages(book.quiet, ends=True)]
    return Section("Where the time goes", (f"Pictures: {words}.",), _there(shown), tuple(pictures))


def _histories(book: _Book) -> Section:
    """How cost grows with what was held before."""
    at = chosen.longest(book.quiet, lambda one: (one.load, one.cache), lambda one: one.history)
    lines = chosen.by_history(book.quiet, at)
    if not _sweep(lines):
        return Section("As the history grows", (), ())
    across, words = "sessions held before", f"{tables.told(at.load)}, {at.cache} cache"
    costs: Mapping[str, tuple[str, str, Callable[[Point], float | None]]] = {
        "history-first-token": ("First token, p50", "ms", lambda one: one.turns.figures.get("p50_ttft_ms")),
        "history-own": ("localmem's own part of a turn, mean", "ms", _own),
        "history-tokens": ("Tokens a turn, all prompts, in and out", "tokens", _tokens),
        "history-end": ("A session's end, p50", "ms", lambda one: (one.ends or Part({})).figures.get("p50_e2el_ms")),
    }
    pictures = []
    for file, (title, up, of) in costs.items():
        drawn = [
            Curve(system, {x: y for x, one in held.items() if (y := of(one))}, book.colours[system])
            for system, held in lines.items()
        ]
        drawn = [curve for curve in drawn if curve.points]
        if drawn:
            pictures.append(book.draw(file, plots.curves(drawn, title, across, up)))
    return Section("As the history grows", (f"{words}.",), (), tuple(pictures))


def _caches(book: _Book) -> Section:
    """Prefix-cache hits by the turn's number, under the usual load with a warm cache."""
    held = chosen.under(book.quiet, book.usual._replace(cache="warm"))
    drawn = [
        Curve(
            point.system,
            {float(turn): hit for turn, hit in point.cache_hit.by_turn.items()},
            book.colours[point.system],
        )
        for point in held
        if point.cache_hit.by_turn
    ]
    title, up = "Prompt tokens found in the prefix cache", "share"
    pictures = (
        [book.draw("cache-hits", plots.curves(drawn, title, "turn of the session", up, guide=AIM_HIT))] if drawn else []
    )
    later = {
        curve.name: min(hits)
        for curve in drawn
        if (hits := [hit for turn, hit in curve.points.items() if turn >= AIM_TURN])
    }
    kept = [system for system, hit in later.items() if hit >= AIM_HIT]
    less = [f"{system} {hit:.0%}" for system, hit in later.items() if hit < AIM_HIT]
    notes = [f"From turn {AIM_TURN} on at least {AIM_HIT:.0%} of each prompt: {', '.join(kept)}"] if kept else []
    notes += [f"Less from turn {AIM_TURN} on: {', '.join(less)}"] if less else []
    return Section("Prefix cache", tuple(notes), _there([tables.cache_hits(book.points)]), tuple(pictures))


def _remembering(book: _Book) -> Section:
    """Chat while sessions are being remembered, beside chat while none is."""
    both = chosen.partners(book.points)
    bars = {
        busy.id: (quiet.turns.figures["p95_e2el_ms"], busy.turns.figures["p95_e2el_ms"])
        for quiet, busy in both
        if "p95_e2el_ms" in quiet.turns.figures and "p95_e2el_ms" in busy.turns.figures
    }
    names = "no session's end", "while sessions are remembered"
    how = plots.pairs(bars, names, "Whole answer, p95", "ms")
    pictures = [book.draw("while-remembering", how, 1.8 + 0.6 * len(bars))] if bars else []
    shown = _there([tables.consolidation(both, book.run.requests)])
    return Section("While sessions are being remembered", (), shown, tuple(pictures))


def _worth(book: _Book, qualities: Sequence[Quality]) -> Section:
    """Quality against latency."""
    times = {
        point.system: point.turns.figures["p95_ttft_ms"]
        for point in chosen.under(book.quiet, book.usual)
        if "p95_ttft_ms" in point.turns.figures
    }
    pictures, notes = [], []
    for one in qualities:
        at = {system: (times[system], mean) for system, mean in one.means.items() if system in times}
        alone = sorted(set(times) ^ set(one.means))
        notes += [f"{one.data}: not in both, and so left out: {', '.join(alone)}"] if alone else []
        if at:
            across = f"first token, p95, ms ({tables.told(book.usual.load)})"
            how = plots.pareto(at, f"Quality against latency: {one.data}", across, one.measure)
            pictures.append(book.draw(f"quality-{one.data}", how))
    shown = [tables.worth(times, {f"{one.data}: {one.measure}": one.means for one in qualities})] if pictures else []
    return Section("Which system is worth it", tuple(notes), tuple(shown), tuple(pictures))


def _figures(book: _Book) -> Section:
    points, requests = book.points, book.run.requests
    notes = (
        "A point is SYSTEM/cN (N users at once) or rN (N turns a second)/hN (N sessions held before)/the prefix cache.",
        f"{tables.MARK} marks a point that something speaks against: see the first table.",
    )
    shown = [tables.overview(points), tables.throughput(points), *tables.spreads(points)]
    shown += _there([tables.overheads(points, requests), tables.calls(points)])
    return Section("All figures", notes, (*shown, tables.resources(points)))


def _about(run: Run) -> Section:
    return Section("What it was measured on", (), (tables.measured_on(run.result.about),))


# -- figures -----------------------------------------------------------------------------------------------------------


def _figure(held: Mapping[float, Point], name: str) -> dict[float, float]:
    return _of({at: point.turns for at, point in held.items()}, name)


def _of(held: Mapping[float, Part], name: str) -> dict[float, float]:
    return {at: part.figures[name] for at, part in held.items() if name in part.figures}


def _stages(part: Part | None, wanted: Callable[[str], bool]) -> dict[str, float]:
    """Means by stage, in their order."""
    held = part.stages if part else {}
    found: defaultdict[str, float] = defaultdict(float)
    for stage in tables.ordered(filter(wanted, held)):
        found[tables.plain(stage)] += held[stage].mean_ms
    return dict(found)


def _before_first(stage: str) -> bool:
    return stage != "decode" and not stage.startswith("after:")


def _own(point: Point) -> float | None:
    """All but what the backbone took."""
    backbone = ("first_token", "decode")
    own = [one.mean_ms for stage, one in point.turns.stages.items() if stage not in backbone and "llm:" not in stage]
    return sum(own) or None


def _tokens(point: Point) -> float | None:
    return sum(one.input_tokens + one.output_tokens for one in point.turns.calls.values()) or None


def _within(milliseconds: float) -> str:
    """Rounded up to two digits, so that it is not less than what was measured."""
    step = 10.0 ** (floor(log10(milliseconds)) - 1) if milliseconds > 0 else 1.0
    rounded = ceil(round(milliseconds / step, 6)) * step
    return f"{rounded / 1000:g} s" if rounded >= 1000 else f"{rounded:g} ms"


def _before(at: Setting) -> str:
    return f"{at.history} session{'s' * (at.history != 1)} held before"


def _marked(point: Point) -> str:
    return f"{point.system} {tables.MARK}" if point.marks else point.system


def _embedded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _there(found: Sequence[Table | None]) -> tuple[Table, ...]:
    return tuple(table for table in found if table)


@functools.cache
def _template() -> Template:
    source = files("localmem.benchmark.latency").joinpath("report.html").read_text(encoding="utf-8")
    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(source)
