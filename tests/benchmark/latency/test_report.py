"""The report of latency runs: its sentences, the measurements it compares, its tables, and a self-contained page."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from localmem.benchmark.latency.report import (
    headline,
    headline_setting,
    lines_along,
    pair_idle_and_busy,
    read_chapters,
    read_scores,
    setting_of,
)
from localmem.benchmark.latency.result import CacheHit, Kind, Measurement, Overhead, RequestStats
from localmem.benchmark.recipes import Load
from localmem.cli.bench import bench
from localmem.errors import BadInput
from localmem.evaluation.answers import Answer, Work, open_answers
from localmem.reporting.sections import Chapter, Section, Table, html_page, markdown
from tests.benchmark.latency.builders import build_point, build_request, build_stats, save_run


def _sections(folder: Path, *points: Measurement, **about: object) -> dict[str, Section]:
    run = save_run(folder / "run", *points, **about)  # type: ignore[arg-type]  # `requests` is not among them
    (chapter,) = read_chapters([run], folder / "report", {})
    return {section.title: section for section in chapter.sections}


def _table(section: Section, caption: str) -> Table:
    return next(table for table in section.tables if table.caption.startswith(caption))


# -- sentences ---------------------------------------------------------------------------------------------------------


def test_the_headline_rounds_up() -> None:
    assert headline(build_point("rsum")) == (
        "rsum: 8 concurrent users: first token within 290 ms for 95 %; 210 ms for the same prompts without localmem"
    )


@pytest.mark.parametrize(
    "p95, words",
    [(300.0, "300 ms"), (0.834, "0.84 ms"), (7.0, "7 ms"), (99.1, "100 ms"), (1234.0, "1.3 s"), (12_000.0, "12 s")],
)
def test_times_have_two_digits(p95: float, words: str) -> None:
    point = replace(build_point("rsum", users=1), turns=build_stats(1.0, p95), bare=None)
    assert headline(point) == f"rsum: 1 concurrent user: first token within {words} for 95 %"


def test_the_headline_gives_reasons_for_caution() -> None:
    stats = build_stats(100.0, 300.0, completed=117.0, failed=3.0)
    point = replace(
        build_point("rsum"), load=Load("open", rate=2.5), turns=stats, bare=None, marks=("it swapped", "too few")
    )
    assert headline(point) == (
        "rsum: 2.5 turns per second: first token within 300 ms for 95 %, 3 of 120 turns failed (⚠ it swapped; too few)"
    )
    failed = replace(build_point("rsum"), turns=RequestStats({"failed": 9}))
    assert headline(failed) == "rsum: 8 concurrent users: no turn was answered"


def test_a_scripted_backbone_is_named_as_such(tmp_path: Path) -> None:
    own = Overhead(40.0, 90.0, own_ttft_p50_ms=4.0, own_ttft_p95_ms=14.2, embed_p50_ms=30.0, embed_p95_ms=71.0)
    point = replace(build_point("rsum"), bare=None, overhead=own)
    arguments = {"scripted": {"first_token": 0.2}}
    model, scripted, line = _sections(tmp_path, point, model="scripted", arguments=arguments)["Summary"].notes
    assert model == "Model scripted; 8 concurrent users, 10 past sessions, warm prefix cache."
    assert scripted == "The backbone is scripted with fixed times: only what localmem adds is measured."
    assert line.endswith("within 290 ms for 95 %; of which localmem's own work 15 ms, embedding 71 ms")


def test_the_highest_load_within_the_limit(tmp_path: Path) -> None:
    """A load above the first that misses the limit does not count, even if it is within the limit by chance."""

    def build_line(system: str, *p95s: float) -> list[Measurement]:
        loads = zip((1, 2, 4, 8), p95s, strict=True)
        return [replace(build_point(system, users), turns=build_stats(10.0, p95)) for users, p95 in loads]

    points = [*build_line("rsum", 100, 250, 310, 290), *build_line("none", 90, 95, 99, 300)]
    points += build_line("creem", 400, 500, 600, 700)
    assert _sections(tmp_path, *points, arguments={"goodput": {"ttft": 300.0}})["Summary"].notes[-1] == (
        "Highest load with the first token within 300 ms for 95 %: "
        "rsum 2 concurrent users, none 8 concurrent users, creem none"
    )


# -- which measurements ------------------------------------------------------------------------------------------------


def test_the_headline_setting_is_shared_by_most_systems() -> None:
    points = [build_point("rsum", users, 100) for users in (1, 4, 32)]
    points += [build_point("none", 4, 100), build_point("rsum", 8, 1000)]
    assert headline_setting(points) == (Load("closed", concurrency=4), 100, "warm")
    both = [build_point(system, users, 100) for system in ("rsum", "none") for users in (1, 8, 64)]
    assert headline_setting([*both, *(replace(each, cache="cold") for each in both)]).load.concurrency == 8


def test_lines_differ_in_one_axis_only() -> None:
    points = [build_point("rsum", 2, 10), build_point("rsum", 1, 10), build_point("rsum", 2, 100)]
    points += [build_point("none", 2, 10), replace(build_point("rsum", 4, 10), cache="cold")]
    setting = setting_of(points[0])
    assert lines_along(points, setting, "load") == {"rsum": {1: points[1], 2: points[0]}, "none": {2: points[3]}}
    assert lines_along(points, setting, "history") == {"rsum": {10: points[0], 100: points[2]}, "none": {10: points[3]}}


def test_a_busy_measurement_is_paired_with_its_idle_one() -> None:
    idle, busy = build_point("rsum", 4), build_point("rsum", 4, during_ends=True)
    others = [build_point("rsum", 8), build_point("none", 4, during_ends=True)]
    assert pair_idle_and_busy([busy, idle, *others]) == [(idle, busy)]


# -- sections ----------------------------------------------------------------------------------------------------------


def _factors(point: Measurement) -> dict[Kind, float]:
    return {"turn": 1.0 + point.during_ends, "bare": 0.8}


@pytest.fixture(scope="module")
def chapter(tmp_path_factory: pytest.TempPathFactory) -> Chapter:
    """Two systems over loads and histories, one measurement during session ends, one with marks."""
    points = [build_point(system, users) for system in ("rsum", "<b>creem</b>") for users in (1, 4, 8)]
    points += [build_point("rsum", 8, history) for history in (1, 100)]
    points.append(replace(build_point("rsum", 4, during_ends=True), turns=build_stats(100.0, 344.76)))
    points.append(replace(build_point("none"), cache_hit=CacheHit(0.3, {4: 0.5}), marks=("a | mark <i>",)))
    requests = tuple(
        build_request(point, f"s{number}", (90.0 + 20.0 * (number % 2)) * factor, kind)
        for point in points
        for number in range(20)
        for kind, factor in _factors(point).items()
    )
    folder = tmp_path_factory.mktemp("report")
    run = save_run(folder / "made", *points, requests=requests, model="m", machine={"cores": 2, "gpus": ["A <card>"]})
    (chapter,) = read_chapters([run], folder, {})
    return chapter


@pytest.fixture
def sections(chapter: Chapter) -> dict[str, Section]:
    return {section.title: section for section in chapter.sections}


def test_every_plot_is_drawn(chapter: Chapter) -> None:
    names = [name for section in chapter.sections for name in section.plots]
    assert names == [
        "made-first-token-load.svg",
        "made-stages-a-turn.svg",
        "made-stages-a-session-end.svg",
        "made-first-token-history.svg",
    ]
    for name in names:
        assert "</svg>" in (chapter.folder / name).read_text(encoding="utf-8")


def test_first_token_by_load(sections: dict[str, Section]) -> None:
    table = _table(sections["First token by load"], "Time to first token (TTFT), p95")
    assert table.head == ("system", "1 concurrent user", "4 concurrent users", "8 concurrent users")
    assert table.rows[0] == ("rsum", "287 (200)", "287 (200)", "287 (200)")
    assert table.rows[2] == ("none", "", "", "287 (200) ⚠")


def test_stages_have_their_order(sections: dict[str, Section]) -> None:
    table = _table(sections["Where the time goes"], "Stages of turns")
    assert table.head == ("measurement", "embed", "llm:refine", "first_token", "decode", "after:store")
    assert table.rows[0] == (
        "rsum/c1/h10/warm", "5.00 (5.00) 0%", "40.0 (40.0) 4%", "95.0 (95.0) 9%", "900 (900) 86%", "2.00 (2.00) 0%"
    )  # fmt: skip


def test_cache_hits_by_turn(sections: dict[str, Section]) -> None:
    section = sections["Prefix cache"]
    assert section.notes == ("Lowest share from turn 4 on (goal 80%): rsum 85%, <b>creem</b> 85%, none 50%",)
    assert section.tables[0].head == ("measurement", "all", "turn 1", "turn 4", "turn 5", "server's own count")
    assert section.tables[0].rows[-1] == ("none/c8/h10/warm ⚠", "30%", "–", "50%", "–", "–")


def test_replies_during_session_ends(sections: dict[str, Section]) -> None:
    """344.76 by 287.3 is 1.2; every request took twice the time, so the interval is about 2."""
    (row,) = sections["While sessions are being remembered"].tables[0].rows
    assert row[:4] == ("rsum/c4/h10/warm/ends", "287", "345", "1.200 [2.000, 2.000]")
    assert row[4:6] == ("1287", "1345")


def test_all_figures(sections: dict[str, Section]) -> None:
    section = sections["All figures"]
    overview = _table(section, "Throughput")
    assert dict(zip(overview.head, overview.rows[-3], strict=True)) == {
        "measurement": "none/c8/h10/warm ⚠", "requests": "turns", "completed": "120", "failed": "0", "seconds": "60.0",
        "requests/s": "2.00", "good/s": "–", "output tokens/s": "–", "warm-up": "8", "units": "30", "host MB": "900",
        "GPU MB": "–", "J per turn": "5.00", "caution": "a | mark <i>",
    }  # fmt: skip
    first = _table(section, "Time to first token")
    assert first.head == ("measurement", "requests", "mean", "median", "std", "p50", "p90", "p95", "p99")
    assert first.rows[:2] == (
        ("rsum/c1/h10/warm", "turns", "100", "100", "100", "100", "100", "287", "287"),
        ("rsum/c1/h10/warm", "bare backbone", "80.0", "80.0", "80.0", "80.0", "80.0", "200", "200"),
    )
    kinds = {row[1] for row in _table(section, "End-to-end").rows}
    assert kinds == {"turns", "bare backbone", "session ends"}
    overhead = _table(section, "Time that localmem adds")
    assert overhead.head[1:] == ("ttft_p50", "ttft_p95", "ttft_ratio_p50", "ttft_ratio_p95")
    assert overhead.rows[0][1:] == ("20.0", "87.2", "1.250 [1.250, 1.250]", "1.436 [1.250, 1.250]")
    calls = _table(section, "Calls and tokens").rows[1]
    assert calls == ("rsum/c1/h10/warm", "turns", "rsum/refine", "2.00", "300.00", "0.00", "40.00")


def test_what_it_was_measured_on(sections: dict[str, Section]) -> None:
    assert sections["Measured on"].tables[0].rows == (
        ("model", "m"), ("machine.cores", "2"), ("machine.gpus", "A <card>")
    )  # fmt: skip


def test_the_page_is_self_contained_and_escaped(chapter: Chapter) -> None:
    html = html_page("latency", [chapter])
    plots = sum(len(section.plots) for section in chapter.sections)
    assert html.count('src="data:image/svg+xml;base64,') == plots
    assert "<b>creem" not in html
    assert "a | mark &lt;i&gt;" in html
    assert '<tr class="marked">' in html


def test_markdown_links_the_plots(chapter: Chapter) -> None:
    text = markdown("latency", [chapter], chapter.folder)
    assert "- rsum: 8 concurrent users: first token within 290 ms for 95 %" in text
    assert "(made-first-token-load.svg)" in text
    assert "a \\| mark <i>" in text


def test_one_measurement_is_reported_without_curves(tmp_path: Path) -> None:
    point = replace(build_point("rsum"), ends=None, bare=None, overhead=None, cache_hit=CacheHit(), energy_j=None)
    titles = _sections(tmp_path, point)
    assert [name for section in titles.values() for name in section.plots] == ["run-stages-a-turn.svg"]
    assert "First token by history" not in titles
    assert "Prefix cache" not in titles


# -- quality -----------------------------------------------------------------------------------------------------------


def _save_answers(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_answers(path) as log:
        for system, text in (("rsum", "Sunday"), ("rsum", "no"), ("none", "no"), ("other", "Sunday")):
            work = Work(system, "made-data", "e1")
            log.append(Answer(work, f"{system}{text}", "question", "time", "s1", "When?", ("Sunday",), text=text))
    return path


def test_scores_are_means_of_the_first_measure(tmp_path: Path) -> None:
    scores = read_scores(_save_answers(tmp_path / "answers.jsonl"))
    assert scores == {("made-data", "F1"): {"rsum": 0.5, "none": 0.0, "other": 1.0}}


def test_quality_is_set_against_latency(tmp_path: Path) -> None:
    run = save_run(tmp_path / "made", build_point("rsum"), build_point("none"), build_point("creem"))
    (chapter,) = read_chapters([run], tmp_path, read_scores(_save_answers(tmp_path / "answers.jsonl")))
    (section,) = [each for each in chapter.sections if each.title == "Quality against latency: made-data"]
    assert section.plots == ("made-quality-made-data.svg",)
    assert section.tables[0].rows == (("rsum", "287", "0.500"), ("none", "287", "0.000"))


# -- runs and commands -------------------------------------------------------------------------------------------------


def test_a_folder_of_runs_stands_for_all_of_them(tmp_path: Path) -> None:
    for name in ("b/llama", "b/mistral", "c/llama"):
        save_run(tmp_path / name, build_point("rsum"))
    chapters = read_chapters([tmp_path / "b", tmp_path / "c" / "llama"], tmp_path / "report", {})
    assert [chapter.title for chapter in chapters] == ["llama", "mistral", "llama-3"]


def test_a_run_without_measurements_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no measurements yet"):
        read_chapters([save_run(tmp_path / "run")], tmp_path, {})


def test_the_command_writes_page_text_and_plots(tmp_path: Path) -> None:
    folder = save_run(tmp_path / "run", build_point("rsum"), build_point("rsum", 1))
    _save_answers(tmp_path / "eval" / "answers.jsonl")
    arguments = ["report", str(folder), "--out", str(tmp_path / "out"), "--quality", str(tmp_path / "eval")]
    result = CliRunner().invoke(bench, arguments)
    assert result.exit_code == 0, result.output
    assert "rsum: 8 concurrent users: first token within 290 ms" in result.stdout
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"report.html", "report.md", "run-quality-made-data.svg"} <= names


def test_the_report_as_json(tmp_path: Path) -> None:
    folder = save_run(tmp_path / "run", build_point("rsum"))
    (document,) = json.loads(CliRunner().invoke(bench, ["report", str(folder), "--json"]).stdout)
    assert (document["run"], document["sections"][0]["title"]) == ("run", "Summary")
    assert (folder / "report.html").exists()


def test_two_runs_are_compared(tmp_path: Path) -> None:
    point = build_point("rsum")
    first, second = (
        save_run(
            tmp_path / name,
            replace(point, turns=build_stats(p50, p50)),
            requests=tuple(build_request(point, f"s{number}", p50) for number in range(4)),
            model=name,
        )
        for name, p50 in (("a", 100.0), ("b", 200.0))
    )
    result = CliRunner().invoke(bench, ["compare", str(first), str(second)])
    assert result.exit_code == 0, result.output
    assert re.search(r"p50_ttft_ms +100.00 +200.00 +2.000 \[2.000, 2.000\] +higher", result.stdout)
    assert re.search(r"model +a +b", result.stdout)
    document = CliRunner().invoke(bench, ["compare", str(first), str(second / "result.json"), "--json"])
    rows = {row["figure"]: row for row in json.loads(document.stdout)["rows"] if row["kind"] == "turn"}
    assert (rows["p95_ttft_ms"]["ratio"], rows["p95_ttft_ms"]["verdict"]) == (2.0, "higher")


def test_runs_with_nothing_in_common_are_refused(tmp_path: Path) -> None:
    first, second = (save_run(tmp_path / name, build_point(name)) for name in ("rsum", "none"))
    result = CliRunner().invoke(bench, ["compare", str(first), str(second)])
    assert isinstance(result.exception, BadInput)
    assert "have no measurement in common" in str(result.exception)
    assert "rsum/c8/h10/warm is only in one of the runs" in result.stdout
