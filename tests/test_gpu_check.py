"""scripts/gpu_check.py: guarded, resumable, limited in time; its steps' commands exist."""

import json
import sys
from pathlib import Path

import pytest

from scripts.gpu_check import BUDGET, Step, check, main, plan, run

PLACE = {"revision": "r1", "gpu": "card, 580"}


def step(name: str, code: str, limit: int = 60) -> Step:
    return Step(name, [sys.executable, "-c", code], limit)


def states(file: Path) -> dict[str, str]:
    return {name: result["state"] for name, result in json.loads(file.read_text())["steps"].items()}


def test_a_failed_and_a_slow_step_stop_nothing(tmp_path: Path) -> None:
    steps = [
        step("bad", "import sys; print('half'); sys.exit('no driver')"),
        step("slow", "import time; time.sleep(60)", limit=1),
        step("good", "import json; print(json.dumps({'p95': 3}))"),
    ]
    assert check(steps, tmp_path / "out.json", PLACE) == 1
    assert states(tmp_path / "out.json") == {"bad": "failed", "slow": "timed out", "good": "passed"}
    results = json.loads((tmp_path / "out.json").read_text())["steps"]
    assert "no driver" in results["bad"]["errors"]
    assert results["good"]["output"] == {"p95": 3}


def test_what_passed_is_not_run_again_unless_the_code_or_the_card_changed(tmp_path: Path) -> None:
    out, runs = tmp_path / "out.json", tmp_path / "runs"
    count = f"open({str(runs)!r}, 'a').write('x')"
    steps = [step("one", count), step("two", f"{count}; import sys; sys.exit(1)")]
    for where, total in ((PLACE, 2), (PLACE, 3), ({**PLACE, "revision": "r2"}, 5), ({**PLACE, "gpu": "other"}, 7)):
        assert check(steps, out, where) == 1
        assert len(runs.read_text()) == total
    check(steps, out, {**PLACE, "gpu": "other"}, only=["one"])
    assert len(runs.read_text()) == 8


def test_children_of_a_slow_step_end_with_it(tmp_path: Path) -> None:
    child = f"import time; time.sleep(4); open({str(tmp_path / 'late')!r}, 'w')"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    assert run(step("parent", code, limit=1))["state"] == "timed out"
    assert run(step("wait", "import time; time.sleep(5)"))["state"] == "passed"
    assert not (tmp_path / "late").exists()


def test_an_unknown_step_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--step", "fais"])
    with pytest.raises(SystemExit, match="there is no step 'fais'; --plan lists them"):
        main()


def test_the_plan_fits_its_time_and_its_recipes_are_shipped(tmp_path: Path) -> None:
    steps = plan(tmp_path, "smollm2-135m-instruct")
    assert sum(each.limit for each in steps) < BUDGET
    assert len({each.name for each in steps}) == len(steps)
    root = Path(__file__).parent.parent
    for each in steps:
        for word in each.command:
            if word.startswith(("tests/", "configs/")):
                assert (root / word).exists()


@pytest.mark.parametrize("name", ["faiss", "t5", "serve", "latency"])
def test_the_commands_of_the_plan_parse(name: str, tmp_path: Path) -> None:
    """With --help behind them, which ends them before they do anything."""
    command = next(each.command for each in plan(tmp_path, "smollm2-135m-instruct") if each.name == name)
    result = run(Step(name, [*command, "--help"], 60))
    assert result["state"] == "passed"
    assert str(result["output"])
