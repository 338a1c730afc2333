"""The long drills: `scripts/drills kills` and `scripts/drills soak`. Short ones of the same code are tests here.

A summary in JSON is written again after each step, so a run that is interrupted leaves what it measured.
"""

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from tests.drills.earlier_release import old_victims
from tests.drills.erasure import erasure
from tests.drills.generated import canaries, fuzz_routes
from tests.drills.kills import DRILLS, run_kills
from tests.drills.processes import Victims
from tests.drills.replica_kills import kill_replicas, upgrade_replicas
from tests.drills.server_kills import KILLS_IN_ONE_FOLDER, WRITERS, kill_server
from tests.drills.soak import SoakPlan, soak
from tests.drills.summary import RESULTS, write_summary
from tests.postgres_server import run_server

SERVER = "server"
_PLAN = SoakPlan()


@click.group()
def root() -> None:
    """Prove by force that nothing is lost. Needs the starter models."""


@root.command()
@click.option("--count", default=1000, show_default=True, help="Kills of the server; of each other work a tenth.")
@click.option("--only", multiple=True, type=click.Choice([*DRILLS, SERVER]), help="Only this work. Repeatable.")
@click.option("--minutes", type=float, help="Stop after so many minutes, whatever the count.")
@click.option("--seed", default=1, show_default=True, help="Of the points at which it is killed.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "kills.json", show_default=True)
def kills(count: int, only: tuple[str, ...], minutes: float | None, seed: int, out: Path) -> None:
    """Kill each kind of work at random points, and compare what is left with what was acknowledged."""
    end = time.monotonic() + 60 * (minutes or 1e6)
    summary: dict[str, Counter[str]] = {}
    for name in only or (SERVER, *DRILLS):
        kills = count if name == SERVER else max(1, count // 10)
        summary[name] = Counter()
        with tempfile.TemporaryDirectory(prefix="localmem-drill-") as folder, Victims(Path(folder)) as victims:
            kill = _killer(name, victims, Path(folder))
            while summary[name]["kills"] < kills and time.monotonic() < end:
                part = min(KILLS_IN_ONE_FOLDER, kills - summary[name]["kills"])
                summary[name] += kill(part, seed + summary[name]["kills"])
                write_summary(out, {"seed": seed, "writers": WRITERS, "drills": summary})
        click.echo(f"{name}: {dict(summary[name])}")


@root.command()
@click.option("--users", default=100, show_default=True)
@click.option("--kills", default=60, show_default=True)
@click.option("--every", default=5.0, show_default=True, help="Seconds from one kill to the next.")
@click.option("--pause", default=1.0, show_default=True, help="Seconds from a reply to the user's next turn.")
@click.option("--seed", default=1, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "replicas.json", show_default=True)
def replicas(users: int, kills: int, every: float, pause: float, seed: int, out: Path) -> None:
    """Kill one of two servers over one PostgreSQL store again and again. Needs scripts/setup_postgres."""
    with (
        tempfile.TemporaryDirectory(prefix="localmem-drill-") as folder,
        Victims(Path(folder)) as victims,
        run_server() as server,
        server.new_database() as database,
    ):
        load = {"users": users, "kills": kills, "every": every, "pause": pause, "seed": seed}
        totals = kill_replicas(victims, Path(folder), database, **load)  # type: ignore[arg-type]  # numbers by name
    share = round(totals["broken off"] / max(totals["requests"], 1), 4)
    write_summary(out, {**load, "totals": totals, "broken off share": share, "lost": 0, "doubled": 0})
    click.echo(f"{dict(totals)}, broken off {share:.2%}, 0 lost, 0 doubled")


@root.command()
@click.option("--users", default=30, show_default=True)
@click.option("--seconds", default=20.0, show_default=True, help="Before, between and after the two replacements.")
@click.option("--pause", default=1.0, show_default=True, help="Seconds from a reply to the user's next turn.")
@click.option("--seed", default=1, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "upgrade.json", show_default=True)
def upgrade(users: int, seconds: float, pause: float, seed: int, out: Path) -> None:
    """Replace two servers of the release before the last migration, one after another. Needs scripts/setup_postgres."""
    with (
        tempfile.TemporaryDirectory(prefix="localmem-drill-") as folder,
        old_victims(Path(folder)) as old,
        Victims(Path(folder)) as new,
        run_server() as server,
        server.new_database() as database,
    ):
        load = {"users": users, "seconds": seconds, "pause": pause, "seed": seed}
        totals = upgrade_replicas(old, new, Path(folder), database, **load)  # type: ignore[arg-type]  # numbers by name
    write_summary(out, {**load, "totals": totals, "lost": 0, "doubled": 0})
    click.echo(f"{dict(totals)}, 0 lost, 0 doubled")


def _killer(name: str, victims: Victims, folder: Path) -> Callable[[int, int], Counter[str]]:
    """Kills one kind of work so many times, with a seed."""
    if name == SERVER:
        return partial(kill_server, victims, folder)
    reference = folder / "reference"
    reference.mkdir()
    drill = DRILLS[name](victims, reference)
    drill.prepare()
    return partial(run_kills, drill, folder)


@root.command(name="soak")
@click.option("--users", default=_PLAN.users, show_default=True)
@click.option("--minutes", default=10.0, show_default=True)
@click.option("--think", default=_PLAN.think, show_default=True, help="Seconds between a user's turns.")
@click.option("--threads", default=_PLAN.threads, show_default=True, help="Replies in progress.")
@click.option("--waiting", default=_PLAN.waiting, show_default=True, help="Requests that may wait.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "soak.json", show_default=True)
def run_soak(users: int, minutes: float, think: float, threads: int, waiting: int, out: Path) -> None:
    """Let many users talk to a real server with a scripted backbone."""
    plan = SoakPlan(users, 60 * minutes, think, threads=threads, waiting=waiting)
    with tempfile.TemporaryDirectory(prefix="localmem-soak-") as folder, Victims(Path(folder)) as victims:
        figures = soak(victims, Path(folder) / "home", plan)
    write_summary(out, {"plan": asdict(plan), "figures": figures})
    click.echo(json.dumps(figures))


root.add_command(fuzz_routes)
root.add_command(canaries)
root.add_command(erasure)

if __name__ == "__main__":
    root()
