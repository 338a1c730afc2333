"""Work on a real Ray cluster of two processes, through the command line: the same results as without it.

Needs what scripts/setup_ray installs.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

import numpy as np
import pytest
import yaml

from localmem import factory
from localmem.config import load_settings
from localmem.evaluation.answers import answers_of, read_answers, reads_of
from localmem.experiments.all_users import rebuild_all
from localmem.experiments.distillation import CollectionRecipe, collect_traces
from localmem.experiments.runs import EvaluationRecipe, evaluate, ignore_progress
from localmem.retrieval.base import passage_digest
from localmem.store import Store
from tests.llm.remote.conftest import Json, Peer, answer, running_peer
from tests.store.lives import add_unit, make_turns, remember

ROOT = Path(__file__).resolve().parents[2]
RAY = ROOT / ".ray"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (RAY / "version").exists(), reason="no Ray in .ray: run scripts/setup_ray"),
]

_CLUSTER = """
import sys, ray
ray.init(address="local", num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("home")
    names = {key: value for key, value in os.environ.items() if not key.startswith("LOCALMEM_")}
    paths = os.pathsep.join([str(RAY), str(ROOT)])
    ray = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token_hex(16)}
    return {**names, "PYTHONPATH": paths, "XDG_DATA_HOME": str(home), **ray}


@pytest.fixture(scope="module")
def cluster(environment: dict[str, str]) -> Iterator[str]:
    """The address of a cluster that ends with the tests."""
    command = [sys.executable, "-c", _CLUSTER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


@pytest.fixture(scope="module")
def backbone() -> Iterator[Peer]:
    """Answers every prompt with a word that depends on it."""
    with running_peer() as peer:
        others: Json = {"/v1/models": {"data": [{"id": "smollm2-135m-instruct", "max_model_len": 8192}]}}

        def reply(path: str, body: Json) -> tuple[int, object]:
            digest = sha256(json.dumps(body.get("messages")).encode()).hexdigest()
            return 200, others.get(path, answer(f"It is {digest[:8]}."))

        peer.reply = reply
        yield peer


@pytest.fixture
def settings(tmp_path: Path, backbone: Peer) -> Path:
    file = tmp_path / "settings.yaml"
    values = {"model": "smollm2-135m-instruct", "data": str(tmp_path / "data"), "retrieval": {"retriever": "bm25"}}
    file.write_text(yaml.safe_dump({**values, "llm": {"url": backbone.url}}), encoding="utf-8")
    return file


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three users' conversations of one session, with a question each."""
    lines: list[Json] = []
    for user, city in (("ann", "Lisbon"), ("bob", "Oslo"), ("eve", "Rome")):
        turns = [{"role": "user", "text": f"I live in {city}."}, {"role": "assistant", "text": "How nice."}]
        lines.append({"user": user, "id": f"{user}-1", "time": "2026-03-01T09:00:00Z", "turns": turns})
        lines.append({"user": user, "question": "Where do I live?", "answer": city})
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def localmem(environment: dict[str, str], *arguments: object) -> str:
    command = [sys.executable, "-m", "localmem", *map(str, arguments)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_an_evaluation_has_the_same_answers(
    environment: dict[str, str], cluster: str, settings: Path, log: Path, tmp_path: Path
) -> None:
    options: list[object] = ["eval", "run", "--dataset", f"jsonl={log}", "--system", "rsum", "--config", settings]
    options += ["--out", tmp_path / "there", "--ray", cluster]
    localmem(environment, *options)
    recipe = EvaluationRecipe(systems=("rsum",))
    here = evaluate(load_settings(settings), recipe, datasets={"jsonl": log}, out=tmp_path / "here")
    file = tmp_path / "there" / "answers.jsonl"
    answers = read_answers(file)
    assert [each.text for each in answers_of(here)] == [each.text for each in answers_of(answers)]
    assert [each.changes for each in reads_of(here)] == [each.changes for each in reads_of(answers)]
    assert len(answers_of(answers)) == 9
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join(lines[:7]), encoding="utf-8")  # as an interrupt leaves it
    localmem(environment, *options, "--resume")
    resumed = read_answers(file)
    assert [(each.work, each.text) for each in answers_of(resumed)] == [(a.work, a.text) for a in answers_of(here)]
    assert file.read_text(encoding="utf-8").startswith("".join(lines[:7])), "what was answered is not asked again"


def test_a_collection_has_the_same_traces(
    environment: dict[str, str], cluster: str, settings: Path, log: Path, tmp_path: Path
) -> None:
    options: list[object] = [
        "--system",
        "rsum",
        "--set",
        "split=null",
        "--teacher",
        "smollm2-135m-instruct",
        "--config",
        settings,
    ]
    out = tmp_path / "there"
    options += ["--set", f"ray={cluster}", "--out", out]
    localmem(environment, "distill", "collect", "--data", f"jsonl={log}", *options)
    recipe = CollectionRecipe(systems=("rsum",), split=None)
    collect_traces(load_settings(settings), recipe, {"jsonl": log}, tmp_path / "here")

    def traces(name: str) -> dict[str, set[str]]:
        files = sorted((tmp_path / name / "traces").glob("*.jsonl"))
        return {file.stem: {json.loads(line)["id"] for line in file.read_text().splitlines()} for file in files}

    assert traces("here") == traces("there")
    assert all(traces("there").values())


def test_all_users_are_rebuilt(environment: dict[str, str], cluster: str, settings: Path, tmp_path: Path) -> None:
    users = [f"user{number}" for number in range(5)]
    with Store.open(tmp_path / "data") as store:
        for user in users:
            journal = store.journal(user, "evidence")
            journal.add_turns("s1", make_turns("s1", f"My dog is called Rex{user[-1]}.", "A fine name."))
            journal.close("s1")
    loaded = load_settings(settings)
    assert rebuild_all(loaded, ray=None, resume=False, notify=print, progress=ignore_progress) == (5, 5)

    def units() -> dict[str, list[str]]:
        with Store.open(tmp_path / "data") as store:
            return {user: [unit.text for unit in store.bank(user, "evidence").live()] for user in users}

    here = units()
    assert all(any("Rex" in text for text in texts) for texts in here.values())
    output = localmem(environment, "rebuild", "--all-users", "--config", settings, "--ray", cluster)
    assert output == "evidence read 5 sessions of 5 users again\n"
    assert units() == here
    assert not list((tmp_path / "data").glob("rebuilt-*"))


def test_an_interrupted_rebuild_goes_on_where_it_stopped(settings: Path, tmp_path: Path) -> None:
    with Store.open(tmp_path / "data") as store:
        for user in ("ann", "bob"):
            remember(store, user, "evidence", "s1", [], "My cat is called Tom.", "A fine name.")
    (tmp_path / "data" / "rebuilt-evidence.jsonl").write_text('["ann",7]\n', encoding="utf-8")
    loaded = load_settings(settings)
    counts = rebuild_all(loaded, ray=None, resume=True, notify=print, progress=ignore_progress)
    assert counts == (2, 8)
    with Store.open(tmp_path / "data") as store:
        assert not list(store.bank("ann", "evidence").live())
        assert list(store.bank("bob", "evidence").live())


@pytest.mark.usefixtures("starter_encoder_dir")
def test_all_keys_are_encoded_anew(environment: dict[str, str], cluster: str, settings: Path, tmp_path: Path) -> None:
    with Store.open(tmp_path / "data") as store:
        remember(store, "ann", "evidence", "s1", [add_unit(f"u{number}") for number in range(300)])
        store.vectors.put("gte-small@0123/4567", {"d": np.ones(384, dtype="<f4").tobytes()})
    run = localmem(environment, "reindex", "--json", "--config", settings, "--ray", cluster)
    assert json.loads(run)["encoded"] == 300
    encoder = factory.bare_encoder(load_settings(settings))
    with Store.open(tmp_path / "data") as store:
        digest = passage_digest(add_unit("u7").unit.key)
        (vector,) = store.vectors.get(encoder.identity, [digest]).values()
    assert np.frombuffer(vector, dtype="<f4") @ encoder.encode([add_unit("u7").unit.key], "passage")[0] > 0.999


def test_a_cluster_that_is_not_there_is_one_line(environment: dict[str, str], settings: Path, log: Path) -> None:
    command = [sys.executable, "-m", "localmem", "eval", "run", "--dataset", f"jsonl={log}", "--system", "none"]
    options = ["--config", str(settings), "--out", str(log.parent / "run"), "--ray", "127.0.0.1:1"]
    run = subprocess.run([*command, *options], env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 2
    assert "no Ray cluster answers at 127.0.0.1:1" in run.stderr.splitlines()[-1]
