"""Plans: the points they come to, what is refused in one line, and every one that is shipped."""

from pathlib import Path

import pytest

from localmem.benchmark.latency.plan import Plan, goodput_of
from localmem.benchmark.latency.result import Load
from localmem.config import load_settings, system_options
from localmem.errors import BadInput, BadSettings, LocalmemError
from localmem.factory import SYSTEMS
from localmem.resources import resource
from localmem.weights.manifest import Manifest

SHIPPED = sorted(resource("configs/bench").glob("*.yaml"))


def test_every_combination_is_a_point() -> None:
    plan = Plan.of({"systems": ("a", "b"), "history": (1, 100), "concurrency": (1, 8), "cache": ("cold", "warm")})
    specs = plan.specs()
    assert len(specs) == len({spec.id for spec in specs}) == 16
    assert specs[0].id == "a/c1/h1/cold"
    assert [spec.users for spec in specs[:4]] == [1, 1, 8, 8]


def test_rates_stand_in_for_the_closed_loop() -> None:
    (spec,) = Plan.of({"systems": ("a",), "rate": ("2.5",), "users": 20}).specs()
    assert (spec.id, spec.load, spec.users) == ("a/r2.5/h10/warm", Load("open", rate=2.5), 20)


def test_points_beside_sessions_that_are_remembered_stand_beside_idle_ones() -> None:
    specs = Plan.of({"systems": ("a",), "concurrency": (4,), "during_ends": True}).specs()
    assert [spec.id for spec in specs] == ["a/c4/h10/warm", "a/c4/h10/warm/ends"]


def test_what_is_given_stands_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("systems: [theanine]\nconcurrency: [1, 2]\nscripted: {first_token: 0.05, per_token: 0.005}\n")
    plan = Plan.load(path, {"concurrency": ("4",)})
    assert (plan.systems, plan.concurrency) == (("theanine",), (4,))
    assert plan.scripted is not None
    assert plan.scripted.first_token == 0.05


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"sytems": ["a"]}, r"a plan has no key 'sytems' \(did you mean 'systems'\?\)"),
        ({"concurrency": [0]}, r"'concurrency.0' cannot be 0"),
        ({"concurrency": ["many"]}, r"'concurrency.0' cannot be 'many'"),
        ({"users": 2, "concurrency": [4]}, "2 users cannot talk 4 at once; raise users"),
        ({"systems": []}, "name at least one system"),
        ({"history": [-1]}, "0 or more"),
        ({"cache": ["tepid"]}, "cannot be 'tepid'"),
        ({"goodput": {"tttf": 3}}, "goodput"),
        ({"turns": 1}, "'turns' cannot be 1"),
        ({"scripted": {"first_token": "soon", "per_token": 0}}, "'scripted.first_token' cannot be 'soon'"),
    ],
)
def test_a_wrong_plan_is_one_line(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadSettings, match=complaint) as caught:
        Plan.of(values)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["- a\n", "systems: [a\n", "users: x\n", "", "# nothing\n"])
def test_a_file_that_is_no_plan_names_itself(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(LocalmemError, match=r"plan\.yaml"):
        Plan.load(path, {})


def test_objectives() -> None:
    assert goodput_of("ttft:300,e2el:5000") == {"ttft": 300.0, "e2el": 5000.0}
    with pytest.raises(BadInput, match="write it like ttft:300"):
        goodput_of("fast")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_shipped_plan_is_sound(path: Path) -> None:
    plan = Plan.load(path, {})
    assert plan.title
    assert set(plan.systems) <= set(SYSTEMS)
    assert set(plan.models) <= set(Manifest.load().models)
    settings = load_settings(flags=plan.settings)
    for system in plan.systems:
        system_options(system, {})
    assert settings.retrieval.memory_mb >= 2048
    assert len({spec.id for spec in plan.specs()}) == len(plan.specs())
    assert plan.requests >= 100


def test_the_plans_of_both_machines_are_shipped() -> None:
    assert {path.stem for path in SHIPPED} >= {"a100", "cpu"}
    a100 = Plan.load(resource("configs/bench/a100.yaml"), {})
    assert a100.models == ("mistral-7b-instruct-v0.3", "llama-3.1-8b-instruct")
    assert set(a100.systems) == set(SYSTEMS)
    assert {1, 2, 4, 8, 16, 32, 64} <= set(a100.concurrency)
