"""The timelines benchmark: banks of the stated shape and size, and a row for each."""

import json
from itertools import pairwise

import pytest
from click.testing import CliRunner

from localmem.benchmark.timelines import SHAPES, bank, measure
from localmem.cli.bench import bench
from localmem.errors import BadInput
from localmem.systems.theanine.graph import count
from localmem.systems.theanine.held import Held


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [4, 5, 6, 300])
def test_a_bank_is_one_component_of_its_size(shape: str, size: int) -> None:
    graph = Held.of(bank(shape, size, 0)).graph
    assert len(graph.units) == size
    assert {graph.component(position) for position in range(size)} == {graph.component(0)}
    assert all(older.time < newer.time for older, newer in pairwise(graph.units))


def test_paths_double_with_every_diamond() -> None:
    graph = Held.of(bank("diamonds", 31, 0)).graph
    mantissa, exponent = count(graph, 0)
    assert mantissa * 2**exponent == 2**10


def test_the_random_shape_follows_its_seed() -> None:
    assert bank("random", 60, 1).links == bank("random", 60, 1).links != bank("random", 60, 2).links


@pytest.mark.parametrize("shape, size", [("rings", 10), ("random", 3)])
def test_what_cannot_be_made_is_told(shape: str, size: int) -> None:
    with pytest.raises(BadInput, match="four or more"):
        bank(shape, size, 0)


def test_each_shape_and_size_has_its_row() -> None:
    rows = measure([10, 40], seed=0, draws=2)
    assert [(row["shape"], row["units"]) for row in rows] == [(shape, size) for shape in SHAPES for size in (10, 40)]
    for row in rows:
        times = {name: value for name, value in row.items() if name.endswith("_ms")}
        assert set(times) == {"draw_ms", "draw_max_ms", "grow_ms", "build_ms"}
        assert all(isinstance(value, float) and value >= 0 for value in times.values())


def test_the_command_prints_a_table_or_json() -> None:
    done = CliRunner().invoke(bench, ["timelines", "--units", "1e1,2e1", "--json"])
    assert done.exit_code == 0, done.output
    assert [row["units"] for row in json.loads(done.stdout)] == [10, 20, 10, 20]
    assert "draw_us_per_unit" in CliRunner().invoke(bench, ["timelines", "--units", "10"]).stdout


@pytest.mark.parametrize("sizes", ["many", "1e3,", "0", "inf", "nan"])
def test_what_is_no_size_is_misuse(sizes: str) -> None:
    done = CliRunner().invoke(bench, ["timelines", "--units", sizes])
    assert done.exit_code == 2
    assert "write them like 1e3,1e4" in done.stderr
