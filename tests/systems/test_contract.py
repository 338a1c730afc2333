"""One contract over every system and every shipped setting of it, built as a user's settings build it."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import islice

import pytest

from localmem import factory
from localmem.bank import Bank
from localmem.chat.conversation import Conversation
from localmem.config import Settings, load_settings, system_names
from localmem.errors import BadReply, LLMError, OutOfOrder, PartialFailure
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.wrappers import LazyLLM
from localmem.memory import Memory
from localmem.store.serialization import ChangeSerializer
from localmem.types import AddUnit, Change, Message, Prompt, Recall, Session, Turn
from tests.fakes import START, MemoryJournal, WordRetriever, obedient, session, turns

SYSTEMS = system_names(variants=True)
NOT_HERE = {
    "secom/denoised": "LLMLingua-2's weights are on no package registry",
    "carecall/gold": "its memory is that of a data set",
}
Script = Callable[[Prompt], str]


@pytest.fixture(params=SYSTEMS)
def settings(request: pytest.FixtureRequest) -> Settings:
    if request.param in NOT_HERE:
        pytest.skip(NOT_HERE[request.param])
    return load_settings(flags={"system": request.param})


def _memory(settings: Settings, bank: Bank | None = None, script: Script = obedient) -> Memory:
    return factory.memory(settings, factory.Parts(ScriptedLLM(script), WordRetriever), bank)


def _agent(settings: Settings, script: Script = obedient) -> tuple[Conversation, MemoryJournal]:
    journal = MemoryJournal()
    llm = ScriptedLLM(script)
    memory = factory.memory(settings, factory.Parts(llm, WordRetriever))
    return Conversation(memory=memory, llm=llm, journal=journal), journal


LIFE = [
    session("My dog is called Bruno.", "A fine name.", "I live in Paris.", "Lovely.", name="s1"),
    session(
        "Bruno is ill.", "Oh no.", "We see the vet on Monday.", "Good.", name="s2", start=START + timedelta(days=3)
    ),
    session("I moved to Lyon.", "How is it?", "Sunny.", "Nice.", name="s3", start=START + timedelta(days=9)),
]
QUESTION = session("Where do I live, and how is Bruno?", name="q", start=START + timedelta(days=10))


def _commits(journal: MemoryJournal) -> list[Change]:
    return [change for _, changes in journal.commits for change in changes]


def _comparable(recall: Recall) -> tuple[str, tuple[str, ...]]:
    return recall.text, tuple(hit.unit.id for hit in recall.hits)


def test_a_memory_is_made_without_its_model(settings: Settings) -> None:
    def load() -> LLM:
        raise LLMError("loaded")

    factory.memory(settings, factory.Parts(LazyLLM(load), WordRetriever))


def test_recall_changes_nothing_and_says_the_same_twice(settings: Settings) -> None:
    agent, journal = _agent(settings)
    agent.writer.read(LIFE)
    bank, commits = agent.memory.bank, len(journal.commits)
    first = agent.memory.recall(QUESTION)
    assert agent.memory.recall(QUESTION) == first
    assert agent.memory.bank is bank
    assert len(journal.commits) == commits


def test_changes_written_out_and_replayed_give_the_same_recall(settings: Settings) -> None:
    agent, journal = _agent(settings)
    agent.writer.read(LIFE)
    serializer = ChangeSerializer()
    replayed = [serializer.decode(serializer.encode(change)) for change in _commits(journal)]
    again = _memory(settings, Bank().apply(replayed))
    assert again.bank == agent.memory.bank
    assert _comparable(again.recall(QUESTION)) == _comparable(agent.memory.recall(QUESTION))


def test_the_same_life_gives_the_same_changes(settings: Settings) -> None:
    (agent, first), (other, second) = _agent(settings), _agent(settings)
    agent.writer.read(LIFE)
    other.writer.read(LIFE)
    assert first.commits == second.commits


def test_a_change_has_the_time_of_its_session_and_a_unit_its_sources(settings: Settings) -> None:
    agent, journal = _agent(settings)
    agent.writer.read(LIFE)
    turns = {turn.id: turn for past in LIFE for turn in past.turns}
    for change in _commits(journal):
        assert START <= change.time <= LIFE[-1].turns[-1].time
        if isinstance(change, AddUnit):
            assert change.unit.sources
            assert all(source in turns for source in change.unit.sources)
            assert change.unit.session in {past.id for past in LIFE}


def _odd_sessions() -> Iterator[Session]:
    yield session("Just this.", name="one-turn")
    yield session(*(f"turn {n} about topic {n % 7} " + "and so on " * 20 for n in range(500)), name="long")
    yield session("제 개 이름은 보리예요.", "좋은 이름이네요.", name="korean")
    yield session("🐶🎂", "🎉", "👩‍👩‍👧", "❤️", name="emoji")
    yield Session("one-name", tuple(Turn(t.id, t.role, "Kim", t.text, t.time) for t in turns("I am Kim.", "So am I.")))
    yield Session("user-only", tuple(islice((t for t in turns(*"abcdef") if t.role == "user"), 3)))
    yield Session("assistant-only", tuple(t for t in turns(*"abcdef") if t.role == "assistant"))
    yield session("   ", "\n", name="blank")


@pytest.mark.parametrize(
    "odd",
    [pytest.param(odd, id=odd.id, marks=pytest.mark.slow if odd.id == "long" else ()) for odd in _odd_sessions()],
)
def test_odd_sessions_are_remembered_and_asked_about(settings: Settings, odd: Session) -> None:
    agent, _ = _agent(settings)
    agent.writer.read([LIFE[0], odd])
    agent.responder.answer(QUESTION)
    agent.responder.answer(
        Session("odd-question", (Turn("odd-question.0", "user", "User", odd.turns[-1].text, START),))
    )


def test_an_empty_session_changes_nothing(settings: Settings) -> None:
    assert _memory(settings).end_session(Session("empty")) == []


def test_an_empty_memory_can_be_asked(settings: Settings) -> None:
    recall = _memory(settings).recall(QUESTION)
    assert recall.hits == ()


def test_an_answer_outside_its_format_is_counted_or_fails_the_whole_job(settings: Settings) -> None:
    """Either a fallback is taken, or the job fails and nothing of it is written: never half."""

    def script(prompt: Prompt) -> str:
        if prompt.name.endswith("/respond"):
            return "I see."
        raise BadReply(f"prompt {prompt.name!r} was answered '{{', which is no JSON")

    agent, journal = _agent(settings, script)
    try:
        agent.writer.read([LIFE[0]])
    except BadReply:
        assert journal.commits == []
        assert agent.memory.bank == Bank()


def test_a_backbone_that_fails_half_way_leaves_nothing_half_written(settings: Settings) -> None:
    calls = 0

    def script(prompt: Prompt) -> str:
        nonlocal calls
        calls += 1
        if calls > 1 and not prompt.name.endswith("/respond"):
            raise LLMError("the backbone is gone")
        return obedient(prompt)

    broken, journal = _agent(settings, script)
    try:
        broken.log_turns([Message(turn.role, turn.text) for turn in LIFE[0].turns], START, "s1")
        broken.end_session()
    except (LLMError, PartialFailure):
        assert not any(cause == "s1" for cause, _ in journal.commits)
        assert [session.id for session in broken._waiting] == ["s1"]


def test_turns_out_of_order_are_refused(settings: Settings) -> None:
    agent, journal = _agent(settings)
    first, second = turns("later", "earlier")
    with pytest.raises(OutOfOrder):
        agent.writer.read([Session("s1", (second, first))])
    assert journal.turns == {}
    assert journal.commits == []


def test_what_was_recalled_is_not_remembered_again(settings: Settings) -> None:
    """Recalled text reaches the reply's prompt only; a session's units come from its own turns."""
    agent, journal = _agent(settings)
    agent.writer.read([session("The password of the shed is ZEBRA.", "Noted.", name="s1")])
    before = len(journal.commits)
    agent.chat("What is the password of the shed?", START + timedelta(days=1))
    agent.end_session()
    for change in (change for _, changes in journal.commits[before:] for change in changes):
        if isinstance(change, AddUnit) and not change.unit.kind.endswith("insight"):
            assert "ZEBRA" not in change.unit.text
