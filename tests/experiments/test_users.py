"""The benchmark of growth over a small store: every figure is there, and the store holds what the recipe says."""

from pathlib import Path

import pytest

from localmem.benchmark.recipes import UsersRecipe
from localmem.config import load_settings
from localmem.errors import BadInput
from localmem.experiments.users import draw_growth, measure_users
from localmem.retrieval.base import passage_digest
from localmem.store import Store
from tests.postgres_server import PostgresServer


def test_it_measures_each_size(tmp_path: Path) -> None:
    settings = load_settings(None, {"data": tmp_path, "system": "memory_retrieval"})
    recipe = UsersRecipe(users=(2, 4), units=60, sample=2, dimension=16)
    lines: list[str] = []
    report = measure_users(recipe, settings, lines.append)
    rows = report["rows"]
    assert isinstance(rows, list)
    assert [row["users"] for row in rows] == [2, 4]
    for row in rows:
        for name in ("cold_recall_ms", "warm_recall_ms", "turn_ms"):
            assert 0 < row[name]["p50"] <= row[name]["p95"]
        assert row["store_mb"] > 0
    assert all(path.stat().st_size for path in draw_growth(rows, tmp_path))
    assert any(line.startswith("4 users; the last 2 were written in") for line in lines)
    with Store.open(tmp_path) as store:
        assert len(store.users()) == 4
        assert len(store.bank("user000003", "memory_retrieval").units) >= 60
    with pytest.raises(BadInput, match="already has users"):
        measure_users(recipe, settings, lines.append)


@pytest.mark.slow
@pytest.mark.parametrize("index", ["flat", "pgvector"])
def test_copies_on_postgresql_are_users_like_the_others(postgres: PostgresServer, tmp_path: Path, index: str) -> None:
    recipe = UsersRecipe(users=(20, 43), units=60, sample=20, dimension=16)
    with postgres.new_database() as url:
        retrieval = {"index": index}
        flags = {"data": tmp_path, "database": url, "system": "memory_retrieval", "retrieval": retrieval}
        measure_users(recipe, load_settings(None, flags), lambda _: None)
        with Store.open(url) as store:
            assert store.problems() == []
            assert len(store.users()) == 43
            original, copy = (store.bank(user, "memory_retrieval") for user in ("user000002", "user000042"))
            texts = [unit.text.replace("user000002", "user000042") for unit in original.live() if "user" in unit.text]
            assert len(texts) == 60
            assert [unit.text for unit in copy.live() if "user" in unit.text] == texts
            assert len(store.vectors.find_digests("words-16", [passage_digest(text) for text in texts])) == 60
            if index == "pgvector":
                bank = ("user000042", "memory_retrieval", "words-16")
                digests = store.unit_vectors.digests(bank, [unit.id for unit in copy.live()])
                assert {passage_digest(text) for text in texts} <= set(digests.values())
