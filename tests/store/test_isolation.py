"""One user's rows never answer another user's question, and no user is nobody."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from localmem.bank import Bank
from localmem.errors import BadInput, NotFound
from localmem.store import SessionJob, Store
from localmem.types import SetNote
from tests.store.lives import START, add_unit, make_turns, remember

_NOBODY = ("", " ", "\n")


@pytest.fixture
def two(store: Store) -> Store:
    """Two users with the same ids everywhere, and their names in every text."""
    for user in ("ann", "bob"):
        remember(
            store,
            user,
            "rsum",
            "s1",
            [add_unit("u1", text=f"{user} said it"), SetNote("n", user, START)],
            f"I am {user}",
        )
        journal = store.journal(user, "rsum")
        journal.add_turns("s2", make_turns("s2", f"{user} again"))
        journal.close("s2")
        journal.add_turns("s3", make_turns("s3", f"{user} goes on"))
    return store


_QUESTIONS: dict[str, Callable[[Store], object]] = {
    "sessions": lambda store: [store.session("ann", info.id) for info in store.sessions("ann")],
    "open_sessions": lambda store: store.open_sessions("ann"),
    "pending_sessions": lambda store: store.pending_sessions("ann", "rsum"),
    "bank": lambda store: store.bank("ann", "rsum"),
    "changes": lambda store: store.changes("ann", "rsum", START),
    "history": lambda store: store.history("ann", "rsum", "u1"),
    "export": lambda store: list(store.export("ann")),
    "journal": lambda store: store.journal("ann", "rsum").bank(),
}


@pytest.mark.parametrize("question", _QUESTIONS)
def test_answers_are_the_users_own(two: Store, question: str) -> None:
    answer = str(_QUESTIONS[question](two))
    assert "ann" in answer
    assert "bob" not in answer


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.undo("ann", "rsum", "s1"),
        lambda store: store.clear("ann", "rsum"),
        lambda store: store.claim(SessionJob("ann", "rsum", "s2", "pending")),
        lambda store: store.journal("ann", "rsum").finish("s2", [add_unit("u2")]),
        lambda store: store.journal("ann", "rsum").fail("s2", "error"),
        lambda store: store.journal("ann", "rsum").close("s3"),
        lambda store: store.delete_units("ann", "rsum", "u1", sources=True),
        lambda store: store.delete_session("ann", "s1"),
        lambda store: store.delete_user("ann"),
    ],
)
def test_changes_leave_others_alone(two: Store, change: Callable[[Store], object]) -> None:
    before, infos = list(two.export("bob")), two.sessions("bob")
    change(two)
    assert list(two.export("bob")) == before
    assert two.sessions("bob") == infos
    assert two.version("bob", "rsum") == 1


def test_the_same_ids_are_free_for_everyone(two: Store) -> None:
    remember(two, "eve", "rsum", "s1", [add_unit("u1")])
    with pytest.raises(NotFound):
        two.history("eve", "rsum", "u2")
    with pytest.raises(NotFound):
        two.session("eve", "s2")


@pytest.mark.parametrize("nobody", _NOBODY)
def test_no_user_is_an_error(two: Store, nobody: str) -> None:
    """Every method with a user refuses an empty one: found by signature, so a new method is tested too."""
    methods = {name: method for name, method in vars(Store).items() if not name.startswith("_")}
    of_user = {name: method for name, method in methods.items() if _takes_user(method)}
    assert len(of_user) >= 15
    for name, method in of_user.items():
        names = list(inspect.signature(method).parameters)[2:]
        values: dict[str, Any] = {
            "system": "rsum", "session_id": "s1", "unit_id": "u1", "cause": "forget:1", "start": 0, "count": 1,
            "ids": ["s1.0"], "texts": ["a"], "bank": Bank(), "until": START,
        }  # fmt: skip
        with pytest.raises(BadInput, match="the name of the user is empty"):
            _consume(getattr(two, name)(nobody, **{key: values[key] for key in names if key in values}))


def _takes_user(method: object) -> bool:
    return callable(method) and list(inspect.signature(method).parameters)[1:2] == ["user"]


def _consume(answer: object) -> None:
    """A generator asks when it is first read."""
    if inspect.isgenerator(answer):
        next(answer)


def test_no_session_and_no_system_are_errors(store: Store) -> None:
    with pytest.raises(BadInput, match="the name of the session is empty"):
        store.journal("ann", "rsum").add_turns("", make_turns("s1", "one"))
    with pytest.raises(BadInput, match="the name of the system is empty"):
        store.journal("ann", "")
