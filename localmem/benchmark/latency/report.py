"""The report of latency runs: chapters of notes, tables and plots, which `localmem.reporting.sections` renders."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import takewhile
from math import ceil, floor, log2, log10
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal, NamedTuple

from localmem.benchmark.latency import tables
from localmem.benchmark.latency.result import RESULT, LatencyResult, Measurement, load_result
from localmem.benchmark.latency.tables import SamplesById, flat_items, read_samples_by_id
from localmem.benchmark.recipes import Load
from localmem.errors import BadInput
from localmem.evaluation.answers import answers_of, read_answers, read_judgements
from localmem.evaluation.summary import key, score_answers
from localmem.reporting.sections import CAUTION, Chapter, Section, Table, pareto_plot, save_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from localmem.reporting.sections import Draw

_GOAL_SHARE, _GOAL_TURN = 0.8, 4  # of prompt tokens in the prefix cache from this turn on, if memory is placed last
_HEADLINE_USERS = 8  # the load of the summary, or the nearest to it
_BACKBONE_COLOURS = {"first_token": "#9a9a9a", "decode": "#cfcfcf"}
_NAMING = (
    "A measurement is named SYSTEM/cN (N users at once) or rN (N turns per second)/hN (N past sessions)/prefix cache.",
    f"{CAUTION} marks a measurement that needs caution; the first table says why.",
)

Lines = Mapping[str, Mapping[float, Measurement]]  # of each system: its measurements by load or by history
Scores = Mapping[tuple[str, str], Mapping[str, float]]  # by dataset and measure: the mean score of each system


class Setting(NamedTuple):
    """Everything but the system: measurements of one setting compare systems."""

    load: Load
    history: int
    cache: str

    def __str__(self) -> str:
        return f"{self.load}, {self.history} past sessions, {self.cache} prefix cache"


def read_chapters(paths: Sequence[Path], folder: Path, scores: Scores) -> list[Chapter]:
    """A chapter for each run; a folder of runs stands for all of them. Writes plots into `folder`. Raises BadInput."""
    inner = [sorted(result.parent for result in path.glob(f"*/{RESULT}")) for path in paths]
    runs = [run for path, nested in zip(paths, inner, strict=True) for run in nested or [path]]
    folder.mkdir(parents=True, exist_ok=True)
    chapters: dict[str, Chapter] = {}
    for run in runs:
        name = (run if run.is_dir() else run.parent).resolve().name
        title = f"{name}-{len(chapters) + 1}" if name in chapters else name
        result = load_result(run)
        if not result.points:
            raise BadInput(f"{run} has no measurements yet; run `localmem bench latency` to its end")
        report = _Report(title, result, read_samples_by_id(run), folder)
        chapters[title] = Chapter(title, folder, tuple(report.sections(scores)))
    return list(chapters.values())


def read_scores(answers: Path) -> Scores:
    """Mean scores from an evaluation's file of answers, by the first measure that each dataset has. Raises BadInput."""
    rows = answers_of(read_answers(answers))
    scores = score_answers(rows, read_judgements(answers.parent))
    means: dict[tuple[str, str], Mapping[str, float]] = {}
    for dataset in sorted({answer.work.dataset for answer in rows}):
        for measure, values in scores.items():
            by_system: defaultdict[str, list[float]] = defaultdict(list)
            for answer in rows:
                if answer.work.dataset == dataset and key(answer) in values:
                    by_system[answer.work.system].append(values[key(answer)])
            if by_system:
                means[dataset, measure] = {system: fmean(each) for system, each in by_system.items()}
                break
    return means


def headline(point: Measurement) -> str:
    """One measurement in one sentence, with times rounded up."""
    figures, overhead = point.turns.figures, point.overhead
    if "p95_ttft_ms" not in figures:
        return f"{point.system}: {point.load}: no turn was answered"
    detail = ""
    if overhead and overhead.own_ttft_p95_ms is not None:
        own, embedding = _round_up(overhead.own_ttft_p95_ms), _round_up(overhead.embed_p95_ms or 0)
        detail = f"; of which localmem's own work {own}, embedding {embedding}"
    elif point.bare and "p95_ttft_ms" in point.bare.figures:
        detail = f"; {_round_up(point.bare.figures['p95_ttft_ms'])} for the same prompts without localmem"
    failed, caution = figures.get("failed", 0), f" ({CAUTION} {'; '.join(point.marks)})" if point.marks else ""
    failures = f", {failed:.0f} of {failed + figures['completed']:.0f} turns failed" if failed else ""
    within = _round_up(figures["p95_ttft_ms"])
    return f"{point.system}: {point.load}: first token within {within} for 95 %{failures}{detail}{caution}"


def setting_of(point: Measurement) -> Setting:
    """The measurement's setting."""
    return Setting(point.load, point.history, point.cache)


def headline_setting(points: Sequence[Measurement]) -> Setting:
    """The setting of most systems; of those a warm cache, about eight users at once, and a long history."""
    systems = Counter(map(setting_of, points))

    def preference(setting: Setting) -> tuple[float, ...]:
        users = setting.load.concurrency
        distance = abs(log2(users / _HEADLINE_USERS)) if users else 100.0
        return systems[setting], setting.cache == "warm", -distance, setting.history

    return max(systems, key=preference)


def lines_along(points: Sequence[Measurement], setting: Setting, axis: Literal["load", "history"]) -> Lines:
    """Each system's measurements along one axis, with everything else as in the setting."""

    def position(point: Measurement) -> float:
        return point.load.amount if axis == "load" else float(point.history)

    lines: defaultdict[str, dict[float, Measurement]] = defaultdict(dict)
    for point in sorted(points, key=position):
        other = point.history == setting.history if axis == "load" else point.load == setting.load
        if other and point.cache == setting.cache:
            lines[point.system][position(point)] = point
    return lines


def pair_idle_and_busy(points: Sequence[Measurement]) -> list[tuple[Measurement, Measurement]]:
    """Measurements with sessions being remembered meanwhile, each after the same one without."""
    idle = {(point.system, setting_of(point)): point for point in points if not point.during_ends}
    pairs = ((idle.get((point.system, setting_of(point))), point) for point in points if point.during_ends)
    return [(before, point) for before, point in pairs if before]


class _Report:
    def __init__(self, name: str, result: LatencyResult, samples: SamplesById, folder: Path) -> None:
        self._name = name
        self._about = result.about
        self._points = result.points
        self._samples = samples
        self._folder = folder
        self._idle = [point for point in self._points if not point.during_ends] or list(self._points)
        self._setting = headline_setting(self._idle)
        self._compared = [point for point in self._idle if setting_of(point) == self._setting]

    def sections(self, scores: Scores) -> list[Section]:
        busy = tables.during_ends_table(pair_idle_and_busy(self._points), self._samples)
        about = Table("Measured on", ("setting", "value"), tuple(flat_items(self._about)))
        sections = [
            self._summary(),
            self._along("load"),
            Section("Where the time goes", (), tuple(tables.stage_tables(self._idle)), self._stage_plots()),
            self._along("history"),
            self._cache(),
            Section("While sessions are being remembered", (), tuple(busy)),
            *(self._quality(dataset, measure, means) for (dataset, measure), means in scores.items()),
            Section("All figures", _NAMING, tuple(tables.figure_tables(self._points, self._samples))),
            Section("Measured on", (), (about,)),
        ]
        return [section for section in sections if section.tables or section.plots or section.notes]

    def _summary(self) -> Section:
        settings = dict(flat_items(self._about))
        notes = [f"Model {settings.get('model', 'unknown')}; {self._setting}."]
        if "arguments.scripted.first_token" in settings:
            notes.append("The backbone is scripted with fixed times: only what localmem adds is measured.")
        notes += map(headline, self._compared)
        lines = lines_along(self._idle, self._setting, "load")
        limit = float(settings.get("arguments.goodput.ttft", 0))
        if limit and _is_line(lines):
            loads = ", ".join(f"{system} {_highest_load(line, limit)}" for system, line in lines.items())
            notes.append(f"Highest load with the first token within {limit:g} ms for 95 %: {loads}")
        return Section("Summary", tuple(notes), ())

    def _along(self, axis: Literal["load", "history"]) -> Section:
        setting, lines = self._setting, lines_along(self._idle, self._setting, axis)
        words = f"{setting.history} past sessions, {setting.cache} cache"
        rows = [tables.first_token_table(lines, rank, words) for rank in ("p50", "p95") if axis == "load"]
        if not _is_line(lines):
            return Section(f"First token by {axis}", (), tuple(rows))
        curves = {system: {at: _p95(point) for at, point in line.items()} for system, line in lines.items()}
        units = str(setting.load).split(" ", 1)[1] if axis == "load" else f"past sessions ({setting.load})"
        plot = self._save(f"first-token-{axis}", _curves(curves, units))
        return Section(f"First token by {axis}", (), tuple(rows), (plot,))

    def _stage_plots(self) -> tuple[str, ...]:
        bars = {point.system: point.turns.stages for point in self._compared if point.turns.stages}
        ends = {point.system: point.ends.stages for point in self._compared if point.ends and point.ends.stages}
        plots = []
        for name, systems in (("A turn", bars), ("A session end", ends)):
            means = {
                system: {tables.short_stage(stage): time.mean_ms for stage, time in stages.items()}
                for system, stages in systems.items()
            }
            draw = _stacked_bars(means, f"{name}: {self._setting}")
            plots += [self._save(f"stages-{name}", draw, 1.8 + 0.42 * len(means))] if means else []
        return tuple(plots)

    def _cache(self) -> Section:
        late = {
            point.system: [share for turn, share in point.cache_hit.by_turn.items() if turn >= _GOAL_TURN]
            for point in self._compared
        }
        lowest = ", ".join(f"{system} {min(shares):.0%}" for system, shares in late.items() if shares)
        note = f"Lowest share from turn {_GOAL_TURN} on (goal {_GOAL_SHARE:.0%}): {lowest}"
        return Section("Prefix cache", (note,) if lowest else (), tuple(tables.cache_table(self._points)))

    def _quality(self, dataset: str, measure: str, means: Mapping[str, float]) -> Section:
        both = {point.system: (_p95(point), means[point.system]) for point in self._compared if point.system in means}
        if not both:
            return Section("", (), ())
        head = f"first token p95, ms ({self._setting.load})"
        rows = [{"system": name, head: tables.format_ms(time), measure: mean} for name, (time, mean) in both.items()]
        plot = self._save(f"quality-{dataset}", pareto_plot(both, xlabel=head, ylabel=measure, title=dataset))
        return Section(f"Quality against latency: {dataset}", (), (Table.of(dataset, rows),), (plot,))

    def _save(self, name: str, draw: "Draw", height: float = 4.2) -> str:
        file = re.sub(r"[^\w.-]", "-", f"{self._name}-{name}.svg").lower()
        save_plot(self._folder / file, draw, width=8, height=height, kind="svg")
        return file


def _p95(point: Measurement) -> float:
    return point.turns.figures.get("p95_ttft_ms", float("nan"))


def _is_line(lines: Lines) -> bool:
    return max(map(len, lines.values()), default=0) > 1


def _highest_load(line: Mapping[float, Measurement], limit: float) -> str:
    within = list(takewhile(lambda point: _p95(point) <= limit, line.values()))
    return str(within[-1].load) if within else "none"


def _curves(lines: Mapping[str, Mapping[float, float]], units: str) -> "Draw":
    def draw(axes: "Axes") -> None:
        for number, (name, points) in enumerate(lines.items()):
            style = ("-", "--", ":")[number // 10 % 3]
            axes.plot(list(points), list(points.values()), style, color=f"C{number % 10}", marker="o", label=name)
        ticks = sorted({x for points in lines.values() for x in points})
        axes.set(title="First token, p95", xlabel=units, ylabel="ms", yscale="log")
        axes.set_xscale("symlog" if ticks[0] <= 0 else "log")
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])

    return draw


def _stacked_bars(bars: Mapping[str, Mapping[str, float]], title: str) -> "Draw":
    stages = tables.sort_stages(stage for parts in bars.values() for stage in parts)

    def draw(axes: "Axes") -> None:
        from matplotlib import colormaps

        starts = [0.0] * len(bars)
        for number, stage in enumerate(stages):
            widths = [parts.get(stage, 0.0) for parts in bars.values()]
            colour = _BACKBONE_COLOURS.get(stage, colormaps["tab20"](number % 20))
            axes.barh(list(bars), widths, left=starts, color=colour, label=stage)
            starts = [start + width for start, width in zip(starts, widths, strict=True)]
        axes.set(title=title, xlabel="mean ms")
        axes.invert_yaxis()

    return draw


def _round_up(milliseconds: float) -> str:
    step = 10.0 ** (floor(log10(milliseconds)) - 1) if milliseconds > 0 else 1.0
    rounded = ceil(round(milliseconds / step, 6)) * step
    return f"{rounded / 1000:g} s" if rounded >= 1000 else f"{rounded:g} ms"
