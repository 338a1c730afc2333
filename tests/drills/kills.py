"""Kill drills: each kind of work is cut short by SIGKILL at random points, and what is left is compared with what was
acknowledged.

A drill leads one folder through several kills and then to the end of its work. `check` holds after every kill, `finish`
at the end; both compare with a run that nothing disturbed. The points are random, the result is not: a drill that fails
shows a defect at the point it names.
"""

import random
import shutil
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

from localmem.errors import NotFound
from localmem.store import Store
from localmem.types import Session
from localmem.weights.folder import PARTIAL, find_damage
from localmem.weights.manifest import Manifest
from localmem.weights.offline import ImportOptions, bundle, import_model
from tests.drills import scripted_life
from tests.drills.processes import Victims
from tests.drills.scripted_life import STEPS, USERS
from tests.drills.victims import SYSTEM, USER, VERBATIM, OtherEncoder, open_runtime, past_sessions
from tests.fakes import WordEncoder
from tests.store.fixtures import EXPORT, build_store

KILLS_IN_ONE_FOLDER = 5
_SESSIONS = 8


class Drill(ABC):
    """One kind of work. In the folder `reference`, `prepare` makes what the drill starts from and compares with."""

    name: ClassVar[str]
    victim: ClassVar[str]

    def __init__(self, victims: Victims, reference: Path) -> None:
        self.victims, self.reference = victims, reference
        self.home = Path()

    def prepare(self) -> None:  # noqa: B027  # not every drill has a reference
        """Make the reference, once."""

    def begin(self, home: Path) -> None:
        """A new folder to work in."""
        self.home = home
        if (self.reference / "start").exists():
            shutil.copytree(self.reference / "start", home)

    @abstractmethod
    def arguments(self) -> Sequence[str]:
        """Of the victim, as the folder is now."""

    @abstractmethod
    def remaining(self) -> int:
        """How many acknowledgements an undisturbed run would give now."""

    @abstractmethod
    def check(self, acknowledged: Sequence[str]) -> None:
        """After a kill: raises AssertionError for what is lost, doubled or half done."""

    @abstractmethod
    def finish(self) -> None:
        """After the work came to its end: the same as the reference."""


def run_kills(drill: Drill, work: Path, count: int, seed: int) -> Counter[str]:
    """Kill a prepared drill's victim `count` times: how often, after how many acknowledgements, in how many folders."""
    chance, totals, pause = random.Random(seed), Counter[str](), 0.1
    while totals["kills"] < count:
        home = work / f"home{totals['folders']}"
        totals["folders"] += 1
        drill.begin(home)
        for _ in range(KILLS_IN_ONE_FOLDER):
            remaining = drill.remaining()  # before the victim starts: then it falls
            if totals["kills"] == count or not remaining:
                break
            start = time.monotonic()
            victim = drill.victims.start(drill.victim, *drill.arguments())
            victim.wait_for(chance.randint(0, remaining - 1))
            time.sleep(chance.uniform(0, 2 * pause))
            was_killed = victim.kill()
            acknowledged = victim.acknowledged()
            one_step = (time.monotonic() - start) / (len(acknowledged) + 1)
            pause = (pause + one_step) / 2 if was_killed else pause / 2  # kills shall fall before the end of the work
            totals["kills"] += was_killed
            totals["acknowledged"] += len(acknowledged)
            drill.check(acknowledged)
        drill.victims.run(drill.victim, *drill.arguments())
        drill.finish()
        shutil.rmtree(home)
    return totals


# -- what several drills look at -----------------------------------------------------------------------------------


def export(home: Path, user: str = USER) -> list[str]:
    """The user's export from a sound store; nothing where there is no user."""
    with Store.open(home) as store:
        assert store.problems() == []
        try:
            return list(store.export(user))
        except NotFound:
            return []


def of_kind(lines: Sequence[str], *kinds: str) -> list[str]:
    """The lines of these kinds."""
    return [line for line in lines if any(line.startswith(f'{{"kind":"{kind}"') for kind in kinds)]


def hits(home: Path, system: str, encoder: WordEncoder | None = None) -> list[object]:
    """What the memory finds, with its scores."""
    with open_runtime(home, system, encoder) as runtime:
        memory = runtime.agent(USER).memory
        queries = ("bees in the garden", "town because", "topic called", "number 3")
        hits = [[(hit.unit.id, hit.score) for hit in memory.search(query, 20)] for query in queries]
        units = sorted((unit.id, unit.text, unit.key) for unit in memory.bank.live())
        return [hits, units, sorted(map(str, memory.bank.links)), memory.bank.notes]


def check_index(home: Path, system: str, encoder: WordEncoder | None = None) -> list[object]:
    """The index as it is saved answers like one made anew; returns what it answers."""
    saved = hits(home, system, encoder)
    with Store.open(home) as store:
        store.indexes.delete_all()
    assert hits(home, system, encoder) == saved, "the saved index differs from a fresh one"
    return saved


# -- the drills ----------------------------------------------------------------------------------------------------


class LogDrill(Drill):
    """Two users' turns, changes, session ends and vectors, at the level of the store."""

    name, victim = "log", "lead_lives"

    def prepare(self) -> None:
        self.done = dict.fromkeys(USERS, 0)
        self.states: dict[str, list[str]] = {user: [] for user in USERS}
        with Store.open(self.reference / "undisturbed") as store:
            for user in USERS:
                journals = scripted_life.journals(store, user)
                self.states[user].append(self._state(store, user))
                for number in range(STEPS):
                    scripted_life.step(store, journals, user, number)
                    self.states[user].append(self._state(store, user))

    def begin(self, home: Path) -> None:
        super().begin(home)
        self.done = dict.fromkeys(USERS, 0)

    def arguments(self) -> Sequence[str]:
        return [str(self.home), *map(str, self.done.values())]

    def remaining(self) -> int:
        return min(40, sum(STEPS - count for count in self.done.values()))

    def check(self, acknowledged: Sequence[str]) -> None:
        for line in acknowledged:
            user, number = line.split()
            assert int(number) == self.done[user]
            self.done[user] += 1
        with Store.open(self.home) as store:
            assert store.problems() == []
            for user, count in self.done.items():
                assert self._state(store, user) in self.states[user][count : count + 2], f"{user} after {count} steps"

    def finish(self) -> None:
        with Store.open(self.home) as store:
            assert {user: self._state(store, user) for user in USERS} == {u: s[-1] for u, s in self.states.items()}

    def _state(self, store: Store, user: str) -> str:
        """A digest of all that the store holds for the user."""
        try:
            lines = "\n".join(store.export(user))
        except NotFound:
            lines = ""
        vectors = store.embeddings.get("encoder", [f"{user}{day}" for day in range(STEPS // 10)])
        return sha256(f"{lines}\n{sorted(vectors)}".encode()).hexdigest()


class RememberDrill(Drill):
    """`localmem remember`: past sessions are logged, and remembered by a system that asks the backbone."""

    name, victim = "remember", "remember"

    def prepare(self) -> None:
        home = self.reference / "undisturbed"
        self.victims.run(self.victim, str(home), str(_SESSIONS), SYSTEM)
        self.lines = export(home)
        self.answers = check_index(home, SYSTEM)

    def arguments(self) -> Sequence[str]:
        return [str(self.home), str(_SESSIONS), SYSTEM]

    def remaining(self) -> int:
        return _SESSIONS - sum('"state":"done"' in line for line in of_kind(export(self.home), "job"))

    def check(self, acknowledged: Sequence[str]) -> None:
        lines = export(self.home)
        facts = of_kind(lines, "turn", "batch")
        doubled_or_half = Counter(facts) - Counter(of_kind(self.lines, "turn", "batch"))
        assert not doubled_or_half, f"not in the undisturbed run: {doubled_or_half}"
        finished = {line for line in of_kind(lines, "job") if '"state":"done"' in line}
        ends = [line for line in of_kind(lines, "batch") if '"of":"session"' in line]
        for past in past_sessions(_SESSIONS):
            is_finished = any(f'"session":"{past.id}"' in line for line in finished)
            has_end = any(f'"cause":"{past.id}"' in line for line in ends)
            assert is_finished == has_end, f"half a session end: {past.id}"
            assert is_finished or past.id not in acknowledged, f"{past.id} was acknowledged and is lost"

    def finish(self) -> None:
        assert export(self.home) == self.lines
        assert check_index(self.home, SYSTEM) == self.answers


class RebuildDrill(Drill):
    """`localmem rebuild`: the log stays, and the memory becomes that of an undisturbed rebuild."""

    name, victim = "rebuild", "rebuild"

    def prepare(self) -> None:
        self.victims.run("remember", str(self.reference / "start"), str(_SESSIONS), SYSTEM)
        undisturbed = self.reference / "undisturbed"
        shutil.copytree(self.reference / "start", undisturbed)
        self.victims.run(self.victim, str(undisturbed))
        self.log = of_kind(export(undisturbed), "session", "turn")
        self.answers = check_index(undisturbed, SYSTEM)

    def arguments(self) -> Sequence[str]:
        return [str(self.home)]

    def remaining(self) -> int:
        return _SESSIONS + 1

    def check(self, acknowledged: Sequence[str]) -> None:
        lines = export(self.home)
        assert of_kind(lines, "session", "turn") == self.log
        active = Counter(line for line in of_kind(lines, "batch") if '"state":"active"' in line)
        assert not active or max(active.values()) == 1, "a session was remembered twice"
        jobs = [line for line in of_kind(lines, "job") if '"state":"done"' in line]
        for session in acknowledged[1:]:
            assert any(f'"session":"{session}"' in line for line in jobs), f"{session} is lost"

    def finish(self) -> None:
        assert of_kind(export(self.home), "session", "turn") == self.log
        assert check_index(self.home, SYSTEM) == self.answers


class ForgetDrill(Drill):
    """`localmem forget`: a session is whole or absent, and nothing acknowledged as erased is in any file."""

    name, victim = "forget", "forget"

    def prepare(self) -> None:
        self.victims.run("remember", str(self.reference / "start"), str(_SESSIONS), VERBATIM)
        self.turns = of_kind(export(self.reference / "start"), "turn")

    def begin(self, home: Path) -> None:
        super().begin(home)
        self.erased: set[str] = set()

    def arguments(self) -> Sequence[str]:
        return [str(self.home)]

    def remaining(self) -> int:
        return _SESSIONS - len(self.erased)

    def check(self, acknowledged: Sequence[str]) -> None:
        self.erased.update(acknowledged)
        present = of_kind(export(self.home), "turn")  # opened and closed: what the kill left in the log is written
        absent = set()
        for past in past_sessions(_SESSIONS):
            own = [line for line in self.turns if _word(past) in line]
            copies = [line for line in present if _word(past) in line]
            assert copies in ([], own), f"half of {past.id} is left"
            absent |= set() if copies else {past.id}
        assert self.erased <= absent, "an acknowledged erasure did not happen"
        self.erased = absent
        files = b"".join(path.read_bytes() for path in sorted(self.home.rglob("*")) if path.is_file())
        for past in past_sessions(_SESSIONS):
            assert past.id not in absent or _word(past).encode() not in files, f"words of {past.id} are in a file"

    def finish(self) -> None:
        self.check([past.id for past in past_sessions(_SESSIONS)])
        with Store.open(self.home) as store:
            assert store.users() == []
            assert store.indexes.all_files() == []


def _word(past: Session) -> str:
    return f"garden{past.id.removeprefix('s')}x"


class ReindexDrill(Drill):
    """`localmem reindex`: until its last step the old encoder is in use, whole; what was encoded stays encoded."""

    name, victim = "reindex", "reindex"

    def prepare(self) -> None:
        self.victims.run("remember", str(self.reference / "start"), "24", VERBATIM)
        undisturbed = self.reference / "undisturbed"
        shutil.copytree(self.reference / "start", undisturbed)
        self.batches = len(self.victims.run(self.victim, str(undisturbed)))
        self.answers = check_index(undisturbed, VERBATIM, OtherEncoder())

    def begin(self, home: Path) -> None:
        super().begin(home)
        self.encoded = 0

    def arguments(self) -> Sequence[str]:
        return [str(self.home)]

    def remaining(self) -> int:
        with Store.open(self.home) as store:
            is_over = store.vectors.encoder() == (OtherEncoder.identity, OtherEncoder.dimension)
        return 0 if is_over else max(1, self.batches - self.encoded // 16)

    def check(self, acknowledged: Sequence[str]) -> None:
        from localmem.retrieval.base import passage_digest

        with Store.open(self.home) as store:
            assert store.problems() == []
            digests = [passage_digest(key) for key in set(store.unit_keys())]
            recorded = store.vectors.encoder()
            assert recorded is not None
            assert recorded[0] in (WordEncoder.identity, OtherEncoder.identity)
            assert recorded[0] == OtherEncoder.identity or "done" not in acknowledged
            assert set(store.embeddings.find_digests(recorded[0], digests)) == set(digests), "vectors are missing"
            encoded = len(store.embeddings.find_digests(OtherEncoder.identity, digests))
        assert encoded >= self.encoded, "vectors that were stored are lost"
        self.encoded = encoded

    def finish(self) -> None:
        assert check_index(self.home, VERBATIM, OtherEncoder()) == self.answers


class ImportDrill(Drill):
    """`localmem import`: a user is there as exported, or not at all."""

    name, victim = "import", "import_users"
    users = tuple(f"user{number}" for number in range(6))

    def prepare(self) -> None:
        home = self.reference / "undisturbed"
        self.victims.run("remember", str(home), "16", SYSTEM)
        self.lines = export(home)
        self.file = self.reference / "export.jsonl"
        self.file.write_text("\n".join(self.lines), encoding="utf-8")

    def arguments(self) -> Sequence[str]:
        return [str(self.home), str(self.file), *self.users]

    def remaining(self) -> int:
        return 0 if self.home.exists() and export(self.home, self.users[-1]) else len(self.users)

    def check(self, acknowledged: Sequence[str]) -> None:
        for user in self.users:
            lines = export(self.home, user)
            assert lines[1:] in ([], self.lines[1:]), f"half of {user} was imported"
            assert lines or user not in acknowledged, f"{user} was acknowledged and is lost"

    def finish(self) -> None:
        self.check(self.users)


class UnbundleDrill(Drill):
    """`localmem models import BUNDLE`: a model is there with the right checksums, or not at all."""

    name, victim = "unbundle", "unpack"
    models = tuple(f"model{number}" for number in range(4))

    def prepare(self) -> None:
        source, origin = self.reference / "source", self.reference / "origin"
        for name in self.models:
            folder = source / name
            folder.mkdir(parents=True)
            config = '{"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 128, "hidden_size": 16}'
            (folder / "config.json").write_text(config, encoding="utf-8")
            (folder / "model.safetensors").write_bytes(random.Random(name).randbytes(1 << 20))
            import_model(folder, ImportOptions(name=name), origin)
        self.file = self.reference / "bundle.tar"
        bundle(self.models, self.file, lambda _line: None, origin)

    def arguments(self) -> Sequence[str]:
        return [str(self.home), str(self.file)]

    def remaining(self) -> int:
        return 1

    def check(self, acknowledged: Sequence[str]) -> None:
        self._check(self.models if acknowledged else ())

    def finish(self) -> None:
        self._check(self.models)
        partial = [path for path in (self.home / PARTIAL).iterdir() if path.name != "locks"]
        assert partial == [], "what a kill left behind was not cleared away"

    def _check(self, expected: Sequence[str]) -> None:
        entries = Manifest.load(self.home).models
        for name in self.models:
            if (self.home / name).exists() or name in expected:
                entry = entries.get(name)
                assert entry is None or find_damage(entry, self.home / name) is None
                assert entry is not None or name not in expected


class MigrationDrill(Drill):
    """The first start of this release on a store of the first one: old or new, and the same content."""

    name, victim = "migration", "migrate"

    def begin(self, home: Path) -> None:
        super().begin(home)
        build_store(home, "0001")

    def arguments(self) -> Sequence[str]:
        return [str(self.home)]

    def remaining(self) -> int:
        return 1

    def check(self, acknowledged: Sequence[str]) -> None:
        copy = self.home.with_name("copy")
        shutil.copytree(self.home, copy)
        assert export(copy, "ana") == EXPORT
        shutil.rmtree(copy)

    def finish(self) -> None:
        assert export(self.home, "ana") == EXPORT


DRILLS: dict[str, type[Drill]] = {
    each.name: each
    for each in (
        LogDrill,
        RememberDrill,
        RebuildDrill,
        ForgetDrill,
        ReindexDrill,
        ImportDrill,
        UnbundleDrill,
        MigrationDrill,
    )
}
