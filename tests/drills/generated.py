"""The long runs of the generated drills: `scripts/drills fuzz` and `scripts/drills canaries`."""

import json
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from localmem.llm.base import ABILITIES
from localmem.server.api_keys import KeyFile
from localmem.settings_sections import KeySettings
from tests.drills.canaries import CALLS, Canaries
from tests.drills.fuzz import fuzz
from tests.drills.summary import RESULTS, write_summary
from tests.fakes import START
from tests.server.conftest import LiveServer, serving

_USERS = 4
_STEPS = 20  # of a plan


@click.command("fuzz")
@click.option("--examples", default=100, show_default=True, help="Valid, and as many broken, requests to each route.")
@click.option("--seed", default=1, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "fuzz.json", show_default=True)
def fuzz_routes(examples: int, seed: int, out: Path) -> None:
    """Send generated requests to every route of the OpenAPI description."""
    started = time.monotonic()
    with _server(with_keys=False) as live:
        live.llm.abilities = ABILITIES
        counts, complaints = fuzz(live.url, examples, seed)
    _report(out, started, seed=seed, routes=len(counts), requests=counts.total(), complaints=complaints)


@click.command()
@click.option("--plans", default=100, show_default=True, help=f"Plans of {_STEPS} steps for {_USERS} users.")
@click.option("--seed", default=1, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "canaries.json", show_default=True)
def canaries(plans: int, seed: int, out: Path) -> None:
    """Let users call every door in generated orders, and look for one's words with another."""
    started, draw = time.monotonic(), random.Random(seed)
    with _server(with_keys=True) as live:
        drill = Canaries(live)
        for _ in range(plans):
            steps = [(draw.randrange(_USERS), draw.choice([*CALLS]), draw.randrange(_USERS)) for _ in range(_STEPS)]
            drill.run(steps, _USERS)
        drill.close()
    _report(out, started, seed=seed, plans=plans, users=plans * _USERS, requests=drill.calls, leaks=0)


@contextmanager
def _server(*, with_keys: bool) -> Iterator[LiveServer]:
    with tempfile.TemporaryDirectory(prefix="localmem-drill-") as folder:
        data = Path(folder) / "data"
        if with_keys:
            KeyFile(data / "keys.json").create(KeySettings(user="owner"), START)
        with serving(data, server={"access_log": with_keys}) as live:
            yield live


def _report(out: Path, started: float, **figures: object) -> None:
    summary = {**figures, "seconds": round(time.monotonic() - started)}
    write_summary(out, summary)
    click.echo(json.dumps(summary, indent=2))
