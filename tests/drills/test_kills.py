"""The kill drills with a few kills each; `scripts/drills kills` is the same with many.

The points are random in time, what must hold is not: any failure is a defect.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from localmem.store import Store
from tests.drills.earlier_release import old_victims
from tests.drills.kills import DRILLS, run_kills
from tests.drills.processes import Victims
from tests.drills.replica_kills import kill_replicas, upgrade_replicas
from tests.drills.server_kills import kill_server
from tests.postgres_server import PostgresServer


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victims]:
    with Victims(tmp_path_factory.mktemp("victims")) as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("name", DRILLS)
def test_nothing_is_lost_or_half_done(name: str, victims: Victims, tmp_path: Path) -> None:
    reference = tmp_path / "reference"
    reference.mkdir()
    drill = DRILLS[name](victims, reference)
    drill.prepare()
    totals = run_kills(drill, tmp_path, 3, seed=20260302)
    assert totals["kills"] == 3


@pytest.mark.slow
@pytest.mark.usefixtures("starter_encoder_dir")
def test_a_server_under_load_loses_nothing(victims: Victims, tmp_path: Path) -> None:
    totals = kill_server(victims, tmp_path, 3, seed=20260302)
    assert totals["acknowledged turns"] > 0


@pytest.mark.slow
def test_two_releases_serve_one_store_while_one_replaces_the_other(
    victims: Victims, tmp_path: Path, postgres: PostgresServer
) -> None:
    with postgres.new_database() as database, old_victims(tmp_path) as old:
        load = {"users": 6, "seconds": 3.0, "pause": 0.2, "seed": 20260302}
        totals = upgrade_replicas(old, victims, tmp_path, database, **load)  # type: ignore[arg-type]  # numbers by name
        with Store.open(database) as store:
            assert store.problems() == []
    assert totals["acknowledged turns"] > 0


@pytest.mark.slow
def test_users_of_a_killed_replica_go_on_at_another(victims: Victims, tmp_path: Path, postgres: PostgresServer) -> None:
    with postgres.new_database() as database:
        totals = kill_replicas(victims, tmp_path, database, users=12, kills=4, every=1.0, pause=0.1, seed=20260302)
    assert totals["acknowledged turns"] > 0
