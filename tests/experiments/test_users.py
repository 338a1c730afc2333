"""The benchmark of growth over a small store: every figure is there, and the store holds what the recipe says."""

from pathlib import Path

import pytest

from localmem.benchmark.recipes import UsersRecipe
from localmem.config import load_settings
from localmem.errors import BadInput
from localmem.experiments.users import measure_users
from localmem.store import Store


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
    assert any(line.startswith("4 users; the last 2 were written in") for line in lines)
    with Store.open(tmp_path) as store:
        assert len(store.users()) == 4
        assert len(store.bank("user000003", "memory_retrieval").units) >= 60
    with pytest.raises(BadInput, match="already has users"):
        measure_users(recipe, settings, lines.append)
