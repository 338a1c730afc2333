"""Match the messages of a request to a session's log. Clients resend the whole dialogue; only what is new is written.

Pure functions on turns and messages; no store, no clock, no HTTP. The rules, in the order in which they are tried:

1. Continuation: the messages before the last one are the end of a session's log, or the whole log is the end of them
   (clients cut old messages; a dialogue may have begun in a session that is over). The last message is new.
2. Retry: the last message is the user turn that the log ends with, answered or not. Nothing is new. The log keeps its
   reply, gets the new one after it unless the words are the same, and the model is not shown the old one.
3. Edit: the messages are in the log in order, with turns in between that the client dropped (it edited an earlier
   message, or chose another reply). A reply that differs from the log's at the same position counts as edited by the
   client: the model sees the client's text, the log keeps the original. Messages that are not in the log are new, and
   so is the last one where the user has written more after it: its new reply gets its question again, at the end.
4. No match: a new session, in which all messages are new.

Rule 3 requires that a user message before the last one is in the log; a lone first message that equals the first of a
longer session is therefore a new session. Messages are compared without regard to white space. The session that leaves
the fewest earlier messages new wins, because a dialogue that was resumed is in several; then the one that shares the
most messages, then the latest.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import NamedTuple

from localmem.server.client_tasks import ClientMessage
from localmem.text.dialogue import normalize
from localmem.turns.distinctive_words import find_distinctive_words
from localmem.types import Message, Role, Session, Turn

RoleAndText = tuple[str, str]
Positions = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """How a request's messages correspond to a session's log.

    `positions` has one entry for each message that is not new: its index in the log, or None where the log does not
    hold it in these words.
    """

    session: Session
    positions: Positions

    @property
    def match_count(self) -> int:
        """The number of messages that the log holds."""
        return sum(position is not None for position in self.positions)

    def continuation(self, messages: Sequence[Message]) -> "Continuation":
        """Continue in this session. An earlier reply that is retried needs its user turn at the end, as that is new."""
        last = self.positions[-1] if self.positions else None
        if last is not None and any(turn.role == "user" for turn in self.session.turns[last + 1 :]):
            return self.continuation_in(self.session.id, messages)
        return Continuation(self.session.id, messages[len(self.positions) :], self._context(messages))

    def continuation_in(self, session_id: str, messages: Sequence[Message]) -> "Continuation":
        """Continue in a new session, as this one is over; its turns are the context there.

        A retried reply needs its user turn in the session that continues, so that turn is new there.
        """
        context = self._context(messages)
        if len(self.positions) == len(messages):
            return Continuation(session_id, messages[-1:], context[:-1])
        return Continuation(session_id, messages[len(self.positions) :], context)

    def _context(self, messages: Sequence[Message]) -> tuple[Turn, ...]:
        """The log before the client's first message, then the client's messages."""
        log = self.session.turns
        first = next((position for position in self.positions if position is not None), len(log))
        dialogue = (
            log[position] if position is not None else _unlogged_turn(self.session, index, messages[index])
            for index, position in enumerate(self.positions)
        )
        return (*without_replaced_replies(log[:first]), *dialogue)


@dataclass(frozen=True, slots=True)
class Continuation:
    """Where a request continues: `new` messages are appended to the session; the model sees `context` before them."""

    session_id: str
    new: Sequence[Message]
    context: tuple[Turn, ...] = ()


def best_match(sessions: Iterable[Session], messages: Sequence[Message]) -> Match | None:
    """The session that the messages belong to, or None when they begin a new one."""
    matches = [match for session in sessions if (match := match_session(session, messages)) is not None]
    earlier = len(messages) - 1
    return max(
        matches,
        key=lambda match: (min(len(match.positions), earlier), match.match_count, match.session.turns[-1].time),
        default=None,
    )


def match_session(session: Session, messages: Sequence[Message], *, is_named: bool = False) -> Match | None:
    """How the messages correspond to this session, or None when they do not belong there.

    `is_named`: the client named this session. Whatever the log does not hold is then new, and the result is never None.
    """
    log = [normalize(turn.role, turn.text) for turn in session.turns]
    sent = [normalize(message.role, message.content) for message in messages]
    positions = _match_ends(log, sent[:-1])
    if positions is None or sent == log[: len(sent)]:
        positions = _match_retry(log, sent, is_named=is_named) or positions
    if positions is None:
        positions = _match_edit(log, sent, is_named=is_named)
    if positions is None and is_named:
        positions = ()
    return None if positions is None else Match(session, positions)


def _match_retry(log: list[RoleAndText], sent: list[RoleAndText], *, is_named: bool) -> Positions | None:
    question_end = len(log)
    while question_end and log[question_end - 1][0] == "assistant":
        question_end -= 1
    is_unanswered = question_end == len(log)
    if len(sent) == 1 and question_end != 1 and not (is_named and is_unanswered):
        return None
    return _match_ends(log[:question_end], sent)


def _match_ends(log: list[RoleAndText], sent: list[RoleAndText]) -> Positions | None:
    """The positions of `sent` when the shorter of the two is the end of the longer."""
    size = min(len(log), len(sent))
    if not size or log[-size:] != sent[-size:]:
        return None
    return (*(None for _ in sent[size:]), *range(len(log) - size, len(log)))


def _match_edit(log: list[RoleAndText], sent: list[RoleAndText], *, is_named: bool) -> Positions | None:
    first = next((index for index, message in enumerate(sent) if message in log), len(sent))
    starts_with_edited_reply = first == 1 and sent[0][0] == "assistant"  # the client cut the dialogue just before it
    if first and not is_named and not starts_with_edited_reply:
        return None
    positions: list[int | None] = [None] * first
    start, has_edits = 0, False
    for index in range(first, len(sent)):
        position = next((place for place in range(start, len(log)) if log[place] == sent[index]), None)
        if position is None and not _is_edited_reply(log, sent, index, positions):
            break
        has_edits = has_edits or position is None
        start = start if position is None else position + 1
        positions.append(position)
    new = sent[len(positions) :]
    if has_edits and any(role == "assistant" for role, _ in new):
        return None
    earlier = zip(sent[:-1], positions, strict=False)
    has_user_message = any(role == "user" and position is not None for (role, _), position in earlier)
    return tuple(positions) if has_user_message else None


def _is_edited_reply(
    log: list[RoleAndText], sent: list[RoleAndText], index: int, positions: Sequence[int | None]
) -> bool:
    """Whether the user message before it is in the log and was answered there."""
    question = positions[index - 1] if index else None
    if sent[index][0] != "assistant" or question is None or sent[index - 1][0] != "user":
        return False
    return question + 1 < len(log) and log[question + 1][0] == "assistant"


def without_replaced_replies(turns: Sequence[Turn]) -> list[Turn]:
    """The turns without replies that a later reply to the same turn replaced."""
    pairs = zip_longest(turns, turns[1:])
    return [turn for turn, following in pairs if not (following and turn.role == following.role == "assistant")]


class Unlogged(NamedTuple):
    """For each message whether it is not to be logged, and the telling words that only such ones with words have."""

    flags: Sequence[bool]
    words: Set[str] = frozenset()


def find_unlogged(sent: Sequence[ClientMessage], private_messages: Set[Message], opened: Iterable[Session]) -> Unlogged:
    """What is not to be logged: messages without words, private ones, replies to these, and replies that repeat them.

    Of a reply the client may hold only the beginning, or it may be another one of several. The last message, and words
    that an open session holds anyway, are logged as ever.
    """
    flags = [words is None or Message(message.role, words) in private_messages for message, words in sent[:-1]] + [
        False
    ]
    if not any(flags):
        return Unlogged(flags)
    logged = {normalize(turn.role, turn.text) for session in opened for turn in session.turns}
    has_private = any(flag and words is not None for flag, (_, words) in zip(flags, sent, strict=True))
    private, others = set[str](), set[str]()
    for index, (message, words) in enumerate(sent):
        if words is None:
            continue
        telling = find_distinctive_words(words) if has_private else frozenset[str]()
        if normalize(message.role, words) in logged:
            flags[index] = False
        elif message.role == "assistant":
            is_answer = index > 0 and flags[index - 1] and sent[index - 1].message.role == "user"
            flags[index] |= is_answer or not telling.isdisjoint(private - others)
        (private if flags[index] else others).update(telling)
    return Unlogged(flags, private - others)


def restore_unlogged(dialogue: Session, sent: Sequence[ClientMessage], is_unlogged: Sequence[bool]) -> Session:
    """The dialogue as the client sent it: each message in its place with all of its text.

    The last turns of `dialogue` are the messages that are logged; the others become turns that are written nowhere.
    """
    size = len(is_unlogged) - sum(is_unlogged)
    logged = iter(dialogue.turns[-size:])
    turns = list(dialogue.turns[:-size])
    for index, (message, words) in enumerate(sent):
        if is_unlogged[index]:
            turns.append(_unlogged_turn(dialogue, index, message))
        else:
            turn = next(logged)
            turns.append(turn if words == message.content else replace(turn, text=message.content))
    return Session(dialogue.id, tuple(turns))


def _unlogged_turn(session: Session, index: int, message: Message) -> Turn:
    """A turn that is shown to the model and written nowhere."""
    last = session.turns[-1]
    role: Role = "assistant" if message.role == "assistant" else "user"
    speaker = next((turn.speaker for turn in session.turns if turn.role == role), role.capitalize())
    return Turn(f"{session.id}.sent{index}", role, speaker, message.content, last.time)
