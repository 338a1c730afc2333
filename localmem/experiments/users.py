"""The benchmark of growth: a store of many users, and what one of them waits for as there are more.

The store is that of the settings (a PostgreSQL database, or a file) and must be empty. Memories are written as any
system writes them: a logged turn, a unit, a vector. Vectors are word vectors of the right dimension, so that filling a
store needs no model; embedding a question is not measured. On PostgreSQL the first users are written so, and the others
are copies of them (`user_copies`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from time import perf_counter, process_time
from typing import TYPE_CHECKING, cast

import psutil

from localmem.benchmark.corpus import Statement, WordVectors, generate_statements
from localmem.benchmark.load import percentiles
from localmem.benchmark.recipes import UsersRecipe
from localmem.config import Settings
from localmem.errors import BadInput
from localmem.experiments.user_copies import copy_users, user_name
from localmem.llm.base import drain
from localmem.llm.scripted import ScriptedLLM
from localmem.reporting.provenance import machine, versions
from localmem.reporting.sections import save_plot
from localmem.retrieval.encoder import CachedEncoder
from localmem.runtime import Runtime
from localmem.store import Store
from localmem.store.database import Database
from localmem.store.opening import open_store
from localmem.types import AddUnit, Session, Turn, Unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_START = datetime(2026, 1, 1, 9, tzinfo=UTC)
_ORIGINALS = 20  # users who are written as a system writes, where the others can be copied
_COPIES = 50  # users of one transaction
_SESSION = 50  # turns of a session
_STATEMENTS = 20_000  # that all users' memories are drawn from; each names its user, so no two are the same text
_MB = 1 << 20

Row = dict[str, object]


def measure_users(recipe: UsersRecipe, settings: Settings, notify: Callable[[str], None]) -> dict[str, object]:
    """A row for each number of users: size of the store, times in milliseconds, memory of this process.

    Raises BadInput for a store with users.
    """
    before, pairs = machine(settings.data), generate_statements(_STATEMENTS, recipe.seed)
    rows: list[Row] = []
    with open_store(settings) as store:
        if store.users():
            raise BadInput(f"{store.where} already has users; choose an empty --data-dir or database")
        encoder = CachedEncoder(WordVectors(recipe.dimension), store.vectors)
        filled = 0
        for count in sorted(recipe.users):
            start = perf_counter()
            written = min(count, _ORIGINALS) if store.server and not settings.store.encryption else count
            for number in range(filled, written):
                _fill(store, encoder, settings, recipe, number, pairs)
            _copy(settings, max(filled, written), count)
            notify(f"{count} users; the last {count - filled} were written in {perf_counter() - start:.0f} s")
            filled = count
            with Runtime(settings, llm=ScriptedLLM(lambda _: "I see."), encoder=encoder) as runtime:
                rows.append(_measure(runtime, recipe, count, pairs))
            notify(str(rows[-1]))
    return {
        "rows": rows,
        "recipe": recipe.model_dump(mode="json"),
        "system": settings.system,
        "retrieval": settings.retrieval.model_dump(mode="json"),
        "server": store_name(settings),
        "machine": before,
        "versions": versions(),
    }


def draw_growth(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write growth-times.png and growth-sizes.png, curves by the number of users. Raises MissingExtra."""
    users = [float(str(row["users"])) for row in rows]

    def draw(axes: "Axes", lines: Mapping[str, Sequence[float]], ylabel: str) -> None:
        for name, values in lines.items():
            axes.plot(users, values, marker="o", label=name)
        axes.set(xscale="log", yscale="log", xlabel="users in the store", ylabel=ylabel)

    times = {
        f"{name}, {title}": [cast("Mapping[str, float]", row[f"{name.replace(' ', '_')}_ms"])[figure] for row in rows]
        for name in ("cold recall", "warm recall", "turn")
        for title, figure in (("p95", "p95"), ("processor", "cpu"))
    }
    sizes = {
        "store": [cast("float", row["store_mb"]) for row in rows],
        "server with the sample in memory": [cast("float", row["sample_mb"]) for row in rows],
    }
    plots = {
        folder / "growth-times.png": partial(draw, lines=times, ylabel="ms"),
        folder / "growth-sizes.png": partial(draw, lines=sizes, ylabel="MB"),
    }
    for path, plot in plots.items():
        save_plot(path, plot)
    return list(plots)


def store_size(settings: Settings) -> int:
    """Bytes of the store on the disk."""
    with closing(Database(settings.store_url)) as database:
        return database.size()


def store_name(settings: Settings) -> str:
    """The database server, or SQLite."""
    with open_store(settings) as store:
        return store.server or "SQLite"


def _copy(settings: Settings, first: int, count: int) -> None:
    with closing(Database(settings.store_url)) as database:
        for start in range(first, count, _COPIES):
            with database.write() as connection:
                copy_users(connection, _ORIGINALS, start, min(start + _COPIES, count) - 1)


def _fill(
    store: Store, encoder: CachedEncoder, settings: Settings, recipe: UsersRecipe, number: int, pairs: list[Statement]
) -> None:
    user, journal = user_name(number), store.journal(user_name(number), settings.system)
    chosen = Random(f"{recipe.seed}/{user}").sample(range(len(pairs)), recipe.units)  # noqa: S311  # no secret
    texts = [f"{user}: {pairs[index][0]}" for index in chosen]
    encoder.put(texts, encoder.inner.encode(texts, "passage"))
    for session, turns in _sessions(texts):
        journal.add_turns(session, turns)
        journal.close(session)
        journal.finish(session, [AddUnit(_unit(turn, session), turn.time) for turn in turns])
    if settings.retrieval.index == "pgvector":
        from localmem.store.pgvector import PgVectorRetriever

        index = PgVectorRetriever(encoder, store.unit_vectors, user, settings.system)
        index.add(list(store.bank(user, settings.system).live()))


def _sessions(texts: Sequence[str]) -> Iterator[tuple[str, list[Turn]]]:
    for day, start in enumerate(range(0, len(texts), _SESSION)):
        session, begin = f"s{day}", _START + timedelta(days=day)
        yield (
            session,
            [
                Turn(f"{session}.{place}", "user", "User", text, begin + timedelta(minutes=place))
                for place, text in enumerate(texts[start : start + _SESSION])
            ],
        )


def _unit(turn: Turn, session: str) -> Unit:
    return Unit(f"u-{turn.id}", turn.text, turn.text, "turn", "User", session, (turn.id,), turn.time, turn.time)


def _measure(runtime: Runtime, recipe: UsersRecipe, count: int, pairs: Sequence[Statement]) -> Row:
    random = Random(f"{recipe.seed}/{count}")  # noqa: S311  # no secret
    users = [user_name(number) for number in random.sample(range(count), min(count, recipe.sample))]
    runtime.agent(user_name(0)).memory.recall(_question(pairs[0][1]))  # what every process loads once
    watches = {name: _Watch() for name in ("cold_recall", "warm_recall", "turn")}
    process = psutil.Process()
    resident = process.memory_info().rss
    for user in users:
        runtime.forget_agent(user)
        question = _question(random.choice(pairs)[1])
        for name in ("cold_recall", "warm_recall"):
            with watches[name].measure():
                runtime.agent(user).memory.recall(question)
        with watches["turn"].measure():
            agent = runtime.agent(user)
            drain(agent.reply(agent.log_turns(random.choice(pairs)[0], datetime.now(UTC)).id))
    grown = process.memory_info().rss - resident
    size = store_size(runtime.settings)
    return {
        "users": count,
        "units": recipe.units,
        "store_mb": round(size / _MB, 1),
        "kb_a_user": round(size / count / 1024),
        **{f"{name}_ms": watch.figures() for name, watch in watches.items()},
        "process_mb": round(resident / _MB),
        "sample_mb": round((resident + grown) / _MB),
        "kb_a_user_in_memory": round(grown / len(users) / 1024),
    }


@dataclass
class _Watch:
    """Times in milliseconds, and this process's time on a processor: on a busy machine the latter says more."""

    times: list[float] = field(default_factory=list)
    cpu: float = 0.0

    @contextmanager
    def measure(self) -> Iterator[None]:
        start, spent = perf_counter(), process_time()
        yield
        self.times.append(1000 * (perf_counter() - start))
        self.cpu += 1000 * (process_time() - spent)

    def figures(self) -> dict[str, float]:
        """Percentiles, and the mean time on a processor."""
        return {**percentiles(self.times), "cpu": round(self.cpu / len(self.times), 3)}


def _question(text: str) -> Session:
    return Session("question", (Turn("question.0", "user", "User", text, _START + timedelta(days=400)),))
