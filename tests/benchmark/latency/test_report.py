"""The report of latency runs: what its plain lines say, which points are drawn, and that the page stands alone."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from localmem.benchmark.latency import chosen
from localmem.benchmark.latency.report import chapters, line, sections
from localmem.benchmark.latency.result import CacheHit, Load, Overhead, Part, Point, Sample
from localmem.benchmark.latency.runs import Run, quality, read_runs
from localmem.cli.bench import bench
from localmem.errors import BadInput
from localmem.evaluation.answers import Answer, Work, open_answers
from localmem.reporting.pages import html_page, markdown
from localmem.reporting.sections import Section, Table
from tests.benchmark.latency.made import part, point, request, saved


def _run(*points: Point, requests: Mapping[str, Sequence[Sample]] | None = None, **about: object) -> Run:
    from localmem.benchmark.latency.result import Result

    return Run("made", Result(about, points), requests or {})


def _told(run: Run, folder: Path) -> dict[str, Section]:
    return {section.title: section for section in sections(run, folder)}


def _table(section: Section, begins: str) -> Table:
    return next(table for table in section.tables if table.caption.startswith(begins))


# -- plain lines -------------------------------------------------------------------------------------------------------


def test_the_plain_line_rounds_up() -> None:
    """287.3 ms are within 290, and 200.1 within 210: never less than what was measured."""
    assert line(point("rsum")) == (
        "rsum: 8 users at once: first word within 290 ms for 95 %; 210 ms for the same prompts without localmem"
    )


@pytest.mark.parametrize(
    "p95, told",
    [(300.0, "300 ms"), (0.834, "0.84 ms"), (7.0, "7 ms"), (99.1, "100 ms"), (1234.0, "1.3 s"), (12_000.0, "12 s")],
)
def test_times_in_plain_words(p95: float, told: str) -> None:
    alone = replace(point("rsum", users=1), turns=part(1.0, p95), bare=None)
    assert line(alone) == f"rsum: 1 user at once: first word within {told} for 95 %"


def test_the_plain_line_says_what_speaks_against_it() -> None:
    failing = part(100.0, 300.0, completed=117.0, failed=3.0)
    against = replace(
        point("rsum"), load=Load("open", rate=2.5), turns=failing, bare=None, marks=("it swapped", "too few")
    )
    assert line(against) == (
        "rsum: 2.5 turns a second: first word within 300 ms for 95 % of those answered, 3 of 120 failed"
        " (⚠ it swapped; too few)"
    )
    assert line(replace(point("rsum"), turns=Part({"failed": 9}))) == "rsum: 8 users at once: no turn was answered"


def test_a_scripted_backbone_is_said_to_be_one(tmp_path: Path) -> None:
    own = Overhead(40.0, 90.0, own_ttft_p50_ms=4.0, own_ttft_p95_ms=14.2, embed_p50_ms=30.0, embed_p95_ms=71.0)
    alone = replace(point("rsum"), bare=None, overhead=own)
    told = _told(_run(alone, model="scripted", arguments={"scripted": {"first_token": 0.2}}), tmp_path)["In short"]
    assert told.notes == (
        "Measured on scripted: 10 sessions held before, warm prefix cache.",
        "The backbone is scripted: its times are given, and only what localmem adds is measured.",
        "rsum: 8 users at once: first word within 290 ms for 95 %; of it localmem's own 15 ms, embedding 71 ms",
    )


def test_how_many_users_keep_to_the_objective(tmp_path: Path) -> None:
    """The load above the first that fails does not count, though it keeps to the limit by chance."""

    def at(system: str, *p95s: float) -> list[Point]:
        loads = zip((1, 2, 4, 8), p95s, strict=True)
        return [replace(point(system, users), turns=part(10.0, p95)) for users, p95 in loads]

    points = [*at("rsum", 100, 250, 310, 290), *at("none", 90, 95, 99, 300), *at("creem", 400, 500, 600, 700)]
    told = _told(_run(*points, arguments={"goodput": {"ttft": 300.0}}), tmp_path)["In short"].notes
    assert told[-2:] == (
        "First word within 300 ms for 95 %, at most: rsum with 2 users at once, none with 8 users at once",
        "At no load within 300 ms for 95 %: creem",
    )


# -- which points ------------------------------------------------------------------------------------------------------


def test_the_headline_is_of_what_most_systems_share() -> None:
    points = [point("rsum", users, 100) for users in (1, 4, 32)] + [point("none", 4, 100), point("rsum", 8, 1000)]
    assert chosen.usual(points) == (Load("closed", concurrency=4), 100, "warm")
    both = [point(system, users, 100) for system in ("rsum", "none") for users in (1, 8, 64)]
    assert chosen.usual([*both, *(replace(one, cache="cold") for one in both)]).load.concurrency == 8


def test_lines_hold_what_is_otherwise_alike() -> None:
    points = [point("rsum", 2, 10), point("rsum", 1, 10), point("rsum", 2, 100), point("none", 2, 10)]
    cold = replace(point("rsum", 4, 10), cache="cold")
    at = chosen.setting(points[0])
    assert chosen.by_load([*points, cold], at) == {"rsum": {1: points[1], 2: points[0]}, "none": {2: points[3]}}
    assert chosen.by_history([*points, cold], at) == {"rsum": {10: points[0], 100: points[2]}, "none": {10: points[3]}}
    found = chosen.longest(points, lambda one: one.load, lambda one: one.history)
    assert found.load.concurrency == 2


def test_a_point_while_remembering_is_set_beside_the_same_one_without() -> None:
    quiet, busy = point("rsum", 4), point("rsum", 4, during_ends=True)
    assert chosen.partners([busy, quiet, point("rsum", 8), point("none", 4, during_ends=True)]) == [(quiet, busy)]
    assert chosen.idle([busy, quiet]) == [quiet]


# -- the page ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Section], Path, Run]:
    """Two systems over loads and histories, one point while sessions are remembered, one with marks."""
    points = [point(system, users) for system in ("rsum", "<b>creem</b>") for users in (1, 4, 8)]
    points += [point("rsum", 8, history) for history in (1, 100)]
    busy = replace(point("rsum", 4, during_ends=True), turns=part(100.0, 344.76))
    points += [busy, replace(point("none"), cache_hit=CacheHit(0.3, {4: 0.5}), marks=("a | mark <i>",))]
    requests = {
        one.id: [
            made
            for number in range(20)
            for time in (90.0 + 20.0 * (number % 2),)
            for made in (
                request(one, f"s{number}", time * (1 + one.during_ends)),
                request(one, f"s{number}", time * 0.8, "bare"),
            )
        ]
        for one in points
    }
    run = _run(*points, requests=requests, model="m", machine={"cores": 2, "gpus": ["A <card>"]})
    folder = tmp_path_factory.mktemp("report")
    return _told(run, folder), folder, run


Whole = tuple[dict[str, Section], Path, Run]


def test_every_picture_is_drawn(whole: Whole) -> None:
    told, folder, _ = whole
    drawn = {title: [name.removeprefix("made-") for name in part.plots] for title, part in told.items()}
    assert {title: names for title, names in drawn.items() if names} == {
        "Users at once": ["first-token-warm.svg"],
        "Beside the bare backbone": [
            "beside-bare-rsum.svg", "beside-bare--b-creem--b-.svg", "beside-bare-none.svg",
        ],
        "Where the time goes": ["stages-first-token.svg", "stages-turn.svg", "stages-end.svg"],
        "As the history grows": [
            "history-first-token.svg", "history-own.svg", "history-tokens.svg", "history-end.svg",
        ],
        "Prefix cache": ["cache-hits.svg"],
        "While sessions are being remembered": ["while-remembering.svg"],
    }  # fmt: skip
    for part_ in told.values():
        for name in part_.plots:
            assert "</svg>" in (folder / name).read_text(encoding="utf-8")


def test_the_first_word_by_users(whole: Whole) -> None:
    table = _table(whole[0]["Users at once"], "First token (TTFT), p95")
    assert table.head == ("system", "1 user at once", "4 users at once", "8 users at once")
    assert table.rows[0] == ("rsum", "287 (200)", "287 (200)", "287 (200)")
    assert table.rows[2] == ("none", "", "", "287 (200) ⚠")


def test_stages_stand_in_their_order(whole: Whole) -> None:
    table = _table(whole[0]["Where the time goes"], "Stages of a turn")
    assert table.head == ("point", "embed", "llm:refine", "first_token", "decode", "after:store")
    assert table.rows[0] == (
        "rsum/c1/h10/warm", "5.00 (5.00) 0%", "40.0 (40.0) 4%", "95.0 (95.0) 9%", "900 (900) 86%", "2.00 (2.00) 0%"
    )  # fmt: skip


def test_cache_hits_by_turn_and_which_fall_short(whole: Whole) -> None:
    section = whole[0]["Prefix cache"]
    assert section.notes == (
        "From turn 4 on at least 80% of each prompt: rsum, <b>creem</b>",
        "Less from turn 4 on: none 50%",
    )
    assert section.tables[0].head == ("point", "all", "turn 1", "turn 4", "turn 5", "server's own count")
    assert section.tables[0].rows[-1] == ("none/c8/h10/warm ⚠", "30%", "–", "50%", "–", "–")


def test_chat_while_remembering_beside_idle(whole: Whole) -> None:
    """344.76 by 287.3 is 1.2; every one of its requests took twice the time, so the interval is about 2."""
    (row,) = whole[0]["While sessions are being remembered"].tables[0].rows
    assert row[:4] == ("rsum/c4/h10/warm/ends", "287", "345", "1.200 [2.000, 2.000]")
    assert row[4:6] == ("1287", "1345")


def test_all_figures_and_marks(whole: Whole) -> None:
    section = whole[0]["All figures"]
    assert _table(section, "What was measured").rows[-1] == (
        "none/c8/h10/warm ⚠", "30", "120", "8", "120", "0", "a | mark <i>"
    )  # fmt: skip
    first = _table(section, "First token (TTFT)")
    assert first.head == ("point", "of", *("mean", "median", "std", "p50", "p90", "p95", "p99"))
    assert first.rows[:2] == (
        ("rsum/c1/h10/warm", "turns", "100", "100", "100", "100", "100", "287", "287"),
        ("rsum/c1/h10/warm", "bare", "80.0", "80.0", "80.0", "80.0", "80.0", "200", "200"),
    )
    assert {row[1] for row in _table(section, "Whole answer").rows} == {"turns", "bare", "session ends"}
    added = _table(section, "What localmem adds").rows[0]
    assert added == ("rsum/c1/h10/warm", "20.0", "87.2", "1.250 [1.250, 1.250]", "1.436 [1.250, 1.250]")
    asked = _table(section, "Calls and tokens").rows[:2]
    assert asked[1] == ("rsum/c1/h10/warm", "turns", "rsum/refine", "2.00", "300", "0", "40")
    assert _table(section, "Memory").rows[0] == ("rsum/c1/h10/warm", "900", "–", "600", "5.00")
    assert _table(section, "Throughput").rows[0][4:] == ("60.0", "2.00", "–", "–")


def test_what_it_was_measured_on(whole: Whole) -> None:
    assert whole[0]["What it was measured on"].tables[0].rows == (
        ("model", "m"), ("machine.cores", "2"), ("machine.gpus", "A <card>")
    )  # fmt: skip


def test_the_page_stands_alone_and_escapes(whole: Whole) -> None:
    told, folder, run = whole
    html = html_page("latency", chapters([(run, list(told.values()))], folder))
    pictures = sum(len(section.plots) for section in told.values())
    assert html.count('src="data:image/svg+xml;base64,') == pictures
    assert len(re.findall(r"""(?:src|href)=(?!"data:|"#)""", html)) == 0
    assert "http" not in re.sub(r'base64,[^"]*', "", html)
    assert "<b>creem" not in html
    assert "&lt;b&gt;creem&lt;/b&gt;" in html
    assert "a | mark &lt;i&gt;" in html
    assert '<tr class="marked">' in html
    assert all(f">{section.title}</a>" in html for section in told.values())


def test_markdown_links_the_pictures(whole: Whole) -> None:
    told, folder, run = whole
    words = markdown("latency", chapters([(run, list(told.values()))], folder), folder)
    assert "## made\n" in words
    assert "- rsum: 8 users at once: first word within 290 ms for 95 %" in words
    assert "![made-cache-hits](made-cache-hits.svg)" in words
    assert "a \\| mark <i>" in words


def test_one_point_is_told_without_curves(tmp_path: Path) -> None:
    alone = replace(point("rsum"), ends=None, bare=None, overhead=None, cache_hit=CacheHit(), energy_j=None)
    told = _told(_run(alone), tmp_path)
    assert [name for part_ in told.values() for name in part_.plots] == [
        "made-stages-first-token.svg",
        "made-stages-turn.svg",
    ]
    assert "As the history grows" not in told
    assert told["In short"].notes == (
        "Measured on an unknown model: 10 sessions held before, warm prefix cache.",
        "rsum: 8 users at once: first word within 290 ms for 95 %",
    )


def test_open_loop_is_told_by_rate(tmp_path: Path) -> None:
    points = [replace(point("rsum"), id=f"r{rate}", load=Load("open", rate=rate)) for rate in (0.5, 2.0)]
    told = _told(_run(*points), tmp_path)
    assert _table(told["Turns a second"], "First token").head == ("system", "0.5 turns a second", "2 turns a second")


# -- runs and quality --------------------------------------------------------------------------------------------------


def _answers(path: Path) -> Path:
    with open_answers(path) as lines:
        for system, said in (("rsum", "Sunday"), ("rsum", "Monday"), ("none", "Monday"), ("other", "Sunday")):
            work = Work(system, "made-data", "e1")
            lines.append(Answer(work, f"{system}{said}", "question", "time", "s1", "When?", ("Sunday",), text=said))
    return path


def test_quality_is_the_mean_of_the_first_measure(tmp_path: Path) -> None:
    (found,) = quality(_answers(tmp_path / "answers.jsonl"))
    assert (found.data, found.measure) == ("made-data", "F1")
    assert found.means == {"rsum": 0.5, "none": 0.0, "other": 1.0}


def test_quality_stands_against_latency(tmp_path: Path) -> None:
    found = quality(_answers(tmp_path / "answers.jsonl"))
    run = _run(point("rsum"), point("none"), point("creem"))
    told = {section.title: section for section in sections(run, tmp_path, found)}["Which system is worth it"]
    assert told.plots == ("made-quality-made-data.svg",)
    assert told.notes == ("made-data: not in both, and so left out: creem, other",)
    assert told.tables[0].rows == (("rsum", "287", "0.500"), ("none", "287", "0.000"), ("creem", "287", "–"))


def test_a_folder_of_runs_stands_for_all_in_it(tmp_path: Path) -> None:
    for name in ("b/llama", "b/mistral", "c/llama"):
        saved(tmp_path / name, point("rsum"))
    assert [run.name for run in read_runs([tmp_path / "b"])] == ["llama", "mistral"]
    twice = read_runs([tmp_path / "b", tmp_path / "c" / "llama"])
    assert [run.name for run in twice] == ["llama-1", "mistral", "llama-3"]


def test_a_run_without_points_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no points yet"):
        read_runs([saved(tmp_path / "run")])


# -- commands ----------------------------------------------------------------------------------------------------------


def test_the_command_writes_page_text_and_pictures(tmp_path: Path) -> None:
    folder = saved(tmp_path / "run", point("rsum"), point("rsum", 1))
    _answers(tmp_path / "eval" / "answers.jsonl")
    done = CliRunner().invoke(
        bench, ["report", str(folder), "--out", str(tmp_path / "told"), "--quality", str(tmp_path / "eval")]
    )
    assert done.exit_code == 0, done.output
    assert "rsum: 8 users at once: first word within 290 ms" in done.stdout
    written = {path.name for path in (tmp_path / "told").iterdir()}
    assert {"report.html", "report.md", "run-quality-made-data.svg"} <= written


def test_the_report_as_json(tmp_path: Path) -> None:
    folder = saved(tmp_path / "run", point("rsum"))
    done = CliRunner().invoke(bench, ["report", str(folder), "--json"])
    (told,) = json.loads(done.stdout)
    assert told["run"] == "run"
    assert told["sections"][0]["title"] == "In short"
    assert (folder / "report.html").exists()


def test_two_runs_are_compared_by_either_command(tmp_path: Path) -> None:
    lots = [tuple(request(point("rsum"), f"s{n}", scale * 100) for n in range(4)) for scale in (1, 2)]
    ours, theirs = (
        saved(tmp_path / name, replace(point("rsum"), turns=part(p50, p50)), requests=lot, model=name)
        for name, p50, lot in (("a", 100.0, lots[0]), ("b", 200.0, lots[1]))
    )
    done = CliRunner().invoke(bench, ["compare", str(ours), str(theirs)])
    assert done.exit_code == 0, done.output
    assert re.search(r"p50_ttft_ms +100.00 +200.00 +2.000 \[2.000, 2.000\] +higher", done.stdout)
    assert re.search(r"model +a +b", done.stdout)
    same = CliRunner().invoke(bench, ["latency", "--compare", str(ours), str(theirs / "result.json"), "--json"])
    rows = {row["figure"]: row for row in json.loads(same.stdout)["rows"] if row["kind"] == "turn"}
    assert (rows["p95_ttft_ms"]["ratio"], rows["p95_ttft_ms"]["verdict"]) == (2.0, "higher")


def test_runs_that_share_no_point_cannot_be_compared(tmp_path: Path) -> None:
    ours, theirs = (saved(tmp_path / name, point(name)) for name in ("rsum", "none"))
    done = CliRunner().invoke(bench, ["compare", str(ours), str(theirs)])
    assert isinstance(done.exception, BadInput)
    assert "share no point" in str(done.exception)
    assert "rsum/c8/h10/warm has no partner" in done.stdout


def test_a_run_says_where_it_goes() -> None:
    done = CliRunner().invoke(bench, ["latency"])
    assert done.exit_code == 2
    assert "give its folder as --out" in done.stderr
