"""Latency recipes: the measurements they expand to, what is refused, and every shipped one."""

from pathlib import Path

import pytest

from localmem.benchmark.latency.measurement import request_count
from localmem.benchmark.recipes import LatencyRecipe, Load
from localmem.cli.recipes import build_recipe
from localmem.config import load_settings, system_options
from localmem.errors import BadSettings
from localmem.factory import SYSTEMS
from localmem.resources import resource
from localmem.weights.manifest import Manifest

SHIPPED = sorted(resource("configs/bench").glob("*.yaml"))


def test_every_combination_is_a_measurement() -> None:
    recipe = LatencyRecipe(systems=("a", "b"), history=(1, 100), concurrency=(1, 8), cache=("cold", "warm"))
    specs = recipe.specs()
    assert len(specs) == len({spec.id for spec in specs}) == 16
    assert specs[0].id == "a/c1/h1/cold"
    assert [spec.users for spec in specs[:4]] == [1, 1, 8, 8]


def test_a_rate_replaces_the_closed_loop() -> None:
    (spec,) = LatencyRecipe(systems=("a",), rate=(2.5,), users=20).specs()
    assert (spec.id, spec.load, spec.users) == ("a/r2.5/h10/warm", Load("open", rate=2.5), 20)


def test_measurements_during_ends_follow_the_idle_ones() -> None:
    specs = LatencyRecipe(systems=("a",), concurrency=(4,), during_ends=True).specs()
    assert [spec.id for spec in specs] == ["a/c4/h10/warm", "a/c4/h10/warm/ends"]


@pytest.mark.parametrize(
    ("assignments", "complaint"),
    [
        (["sytems=a"], "systems"),
        (["concurrency=0"], "concurrency"),
        (["users=2", "concurrency=4"], "2 users cannot send 4 requests at once; raise users"),
        (["history=-1"], "0 or more"),
        (["cache=tepid"], "cache"),
        (["goodput.tttf=3"], "goodput"),
        (["turns=1"], "turns"),
        (["scripted.first_token=soon", "scripted.per_token=0"], "first_token"),
    ],
)
def test_a_wrong_recipe_is_one_line(assignments: list[str], complaint: str) -> None:
    with pytest.raises(BadSettings, match=complaint) as caught:
        build_recipe(LatencyRecipe, None, assignments)
    assert "\n" not in str(caught.value)


def test_flags_and_fields_override_the_shipped_recipe() -> None:
    path = resource("configs/bench/cpu.yaml")
    assignments = ["scripted.first_token=0.25", "scripted.per_token=0.01"]
    recipe = build_recipe(LatencyRecipe, path, assignments, {"systems": ("none",)})
    assert (recipe.systems, recipe.answer) == (("none",), 16)
    assert recipe.scripted is not None
    assert (recipe.scripted.first_token, recipe.scripted.per_token) == (0.25, 0.01)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_shipped_recipe_is_valid(path: Path) -> None:
    recipe = build_recipe(LatencyRecipe, path)
    assert recipe.title
    assert set(recipe.systems) <= set(SYSTEMS)
    assert set(recipe.models) <= set(Manifest.load().models)
    settings = load_settings(flags=recipe.settings)
    for system in recipe.systems:
        system_options(system, {})
    assert settings.retrieval.memory_mb >= 2048
    assert len({spec.id for spec in recipe.specs()}) == len(recipe.specs())
    assert recipe.requests >= 100


def test_the_recipes_of_both_machines_are_shipped() -> None:
    assert {path.stem for path in SHIPPED} >= {"a100", "cpu"}
    a100 = build_recipe(LatencyRecipe, resource("configs/bench/a100.yaml"))
    assert a100.models == ("mistral-7b-instruct-v0.3", "llama-3.1-8b-instruct")
    assert set(a100.systems) == set(SYSTEMS)
    assert {1, 2, 4, 8, 16, 32, 64} <= set(a100.concurrency)


def test_the_hour_is_planned() -> None:
    """Assumed: 1, 1.3 and 2.4 s for 64 tokens of an 8B model with 1, 8 and 32 at once, twice that for Theanine, which
    asks before it replies, 4 s to remember a session, and five minutes to start."""
    recipe = build_recipe(LatencyRecipe, resource("configs/bench/a100_hour.yaml"))
    seconds = 300.0
    for spec in recipe.specs():
        users = spec.load.concurrency or 1
        reply = {1: 1.0, 8: 1.3, 32: 2.4}[users]
        seconds += request_count(recipe, spec) / users * reply * (2 if spec.system == "theanine" else 1)
        seconds += recipe.ends * 4
    assert seconds < 3600
