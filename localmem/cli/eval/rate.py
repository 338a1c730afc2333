"""`localmem eval rate`: people talk to hidden memory systems and rate them; the table of their ratings."""

import csv
import sys
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from localmem.cli.options import SettingsFlags, json_option, note, print_json, settings_options
from localmem.errors import BadInput

RATINGS = "ratings.jsonl"
_FILE = click.Path(path_type=Path)


@click.group()
def rate() -> None:
    """Let people rate memory systems in live conversations."""


@rate.command("serve")
@click.option("--system", "systems", multiple=True, required=True, help="Memory system. Repeatable.", metavar="NAME")
@click.option("--out", type=_FILE, required=True, help="Folder of the ratings and conversations.", metavar="DIR")
@click.option("--sessions", type=click.IntRange(1), default=5, show_default=True, help="Sessions with each system.")
@click.option("--gap-days", type=click.IntRange(1), default=10, show_default=True, help="Days between two sessions.")
@click.option("--seed", default=0, show_default=True, help="Seed of the order of the systems.")
@click.option("--port", type=click.IntRange(1, 65535), default=8322, show_default=True, help="Port of the page.")
@settings_options("model", "config")
def rate_serve(
    systems: tuple[str, ...], out: Path, sessions: int, gap_days: int, seed: int, port: int, flags: SettingsFlags
) -> None:
    """Serve the rating page on this machine.

    As in Keep Me Updated (section 5.2.2): a rater talks to a hidden system for several sessions and moves five sliders
    after each; the order of the systems is random. All systems reply with the same backbone.
    """
    import uvicorn

    from localmem import factory
    from localmem.runtime import Runtime
    from localmem.server.rating_page import RatingPlan, create_rating_app

    out.mkdir(parents=True, exist_ok=True)
    settings = [flags.read(system=system, data=out / system.replace("/", "-")) for system in systems]
    backbone = factory.backbone(settings[0], note)
    with ExitStack() as stack:
        stack.callback(backbone.close)
        runtimes = {
            name: stack.enter_context(Runtime(own, llm=backbone.llm))
            for name, own in zip(systems, settings, strict=True)
        }
        plan = RatingPlan(runtimes, out / RATINGS, sessions, timedelta(days=gap_days), seed, lambda: datetime.now(UTC))
        note(f"serving http://127.0.0.1:{port}; ratings go to {out / RATINGS}")
        uvicorn.run(create_rating_app(plan, settings[0]), host="127.0.0.1", port=port, log_level="warning")


@rate.command("replies")
@click.argument("run", type=_FILE)
@click.option("--system", "systems", multiple=True, help="Memory system; default: all. Repeatable.", metavar="NAME")
@click.option("--out", type=_FILE, required=True, help="Folder of the ratings.", metavar="DIR")
@click.option("--port", type=click.IntRange(1, 65535), default=8322, show_default=True, help="Port of the page.")
@settings_options("config")
def rate_replies(run: Path, systems: tuple[str, ...], out: Path, port: int, flags: SettingsFlags) -> None:
    """Serve a page to score a run's replies.

    As in SeCom (appendix A.10): a rater sees what the conversation says, the question and a reply of a hidden system,
    and scores it by five statements. RUN is the --out of `localmem eval run`.
    """
    import uvicorn

    from localmem.evaluation.answers import answers_of, read_answers
    from localmem.experiments.runs import ANSWERS
    from localmem.server.reply_rating import ReplyRatingManager, create_reply_rating_app

    answers = [answer for answer in answers_of(read_answers(run / ANSWERS)) if not answer.error]
    answers = [answer for answer in answers if not systems or answer.work.system in systems]
    if not answers:
        raise BadInput(f"{run} has no reply of {', '.join(systems) or 'any system'}; name others with --system")
    out.mkdir(parents=True, exist_ok=True)
    app = create_reply_rating_app(ReplyRatingManager(answers, out / RATINGS), flags.read(), lambda: datetime.now(UTC))
    note(f"serving http://127.0.0.1:{port}; ratings go to {out / RATINGS}")
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


@rate.command("report")
@click.argument("folder", type=_FILE)
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print every rating as a row of CSV.")
@click.option("--as-given", is_flag=True, help="Print means of the scores as they were given.")
def rate_report(folder: Path, as_json: bool, as_csv: bool, as_given: bool) -> None:
    """Print the standardised ratings of each system, and by session.

    FOLDER is the --out of `serve` or `replies`. Each rater's scores are standardised, unless --as-given; intervals of
    95 % are over episodes.
    """
    from localmem.evaluation.ratings import export_rows, rating_rows, read_ratings
    from localmem.reporting.sections import Table

    ratings = read_ratings(folder / RATINGS)
    if as_csv:
        rows = export_rows(ratings)
        writer = csv.DictWriter(sys.stdout, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return
    tables = {
        "systems": rating_rows(ratings, as_given=as_given),
        "sessions": rating_rows(ratings, by_session=True, as_given=as_given),
    }
    if as_json:
        print_json(tables)
        return
    from tabulate import tabulate

    for caption, rows in tables.items():
        table = Table.of(caption, rows)
        click.echo(f"{tabulate(table.rows, table.head)}\n")
