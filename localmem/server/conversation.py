"""Where a client's messages belong. Clients resend the whole dialogue each time; only what is new is written.

Pure: knows turns and messages, no store, no clock, no HTTP. The rules, in the order in which they are tried:

1. Goes on: the messages before the last one are the end of a session's log, or the whole log is the end of them
   (clients cut old messages; a dialogue may have begun in a session that is over). The last message is new.
2. Asks again: the last message is the user turn that the log ends with, answered or not. Nothing is new. The log keeps
   the reply it has, gets the new one behind it unless the words are the same, and the model is not shown the old one.
3. Edited: the messages are found in the log in order, with turns in between that the client gave up (it edited an
   earlier message, or chose another reply). A reply that differs from the log's at its place counts as edited by the
   client: the model sees the client's text, the log keeps what was said. What is not found is new.
4. Nothing fits: a new session, in which all messages are new.

Rule 3 asks that a user message before the last one was found; a lone first message that equals the first of a longer
session is therefore a new session. Messages are compared without regard to white space. The session that shares most
messages wins, then the latest.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from localmem.types import Message, Role, Session, Turn

Word = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Fit:
    """How sent messages stand in a session's log.

    `places` has one entry for each sent message that is not new: its index in the log, or None for one that the log
    does not hold in these words.
    """

    session: Session
    places: tuple[int | None, ...]

    @property
    def shared(self) -> int:
        """How many sent messages the log holds."""
        return sum(place is not None for place in self.places)

    def place(self, sent: Sequence[Message]) -> "Place":
        """To go on in this session."""
        return Place(self.session.id, sent[len(self.places) :], self._shown(sent))

    def place_behind(self, sent: Sequence[Message], session_id: str) -> "Place":
        """To go on in a new session with what was said in this one, which is over.

        A reply that is asked for again needs its user turn in the session that goes on, so that turn is new there.
        """
        shown = self._shown(sent)
        if len(self.places) == len(sent):
            return Place(session_id, sent[-1:], shown[:-1])
        return Place(session_id, sent[len(self.places) :], shown)

    def _shown(self, sent: Sequence[Message]) -> tuple[Turn, ...]:
        """The log before the client's first message, then the client's messages."""
        log = self.session.turns
        first = next((place for place in self.places if place is not None), len(log))
        told = (
            log[place] if place is not None else _as_sent(self.session, index, sent[index])
            for index, place in enumerate(self.places)
        )
        return (*_current(log[:first]), *told)


@dataclass(frozen=True, slots=True)
class Place:
    """What is written where: `new` messages in the session, behind the turns that the model is shown before them."""

    session_id: str
    new: Sequence[Message]
    shown: tuple[Turn, ...] = ()


def best(sessions: Iterable[Session], sent: Sequence[Message]) -> Fit | None:
    """The session that the messages belong to, or None when they begin a new one."""
    fits = [found for session in sessions if (found := fit(session, sent)) is not None]
    return max(fits, key=lambda found: (found.shared, found.session.turns[-1].time), default=None)


def fit(session: Session, sent: Sequence[Message], *, named: bool = False) -> Fit | None:
    """How the messages stand in this session, or None when they do not belong there.

    `named`: the client said that it is this session; then whatever is not found is new, and the answer is never None.
    """
    log, words = [_word(turn.role, turn.text) for turn in session.turns], _words(sent)
    places = _goes_on(log, words)
    if places is None or words == log[: len(words)]:
        places = _asks_again(log, words, named=named) or places
    if places is None:
        places = _edited(log, words, named=named)
    if places is None and named:
        places = ()
    return None if places is None else Fit(session, places)


def _goes_on(log: list[Word], words: list[Word]) -> tuple[int | None, ...] | None:
    return _tails(log, words[:-1])


def _asks_again(log: list[Word], words: list[Word], *, named: bool) -> tuple[int | None, ...] | None:
    asked = len(log)
    while asked and log[asked - 1][0] == "assistant":
        asked -= 1
    unanswered = asked == len(log)
    if len(words) == 1 and asked != 1 and not (named and unanswered):
        return None
    return _tails(log[:asked], words)


def _tails(log: list[Word], words: list[Word]) -> tuple[int | None, ...] | None:
    """The places of `words` when the shorter of the two is the end of the longer."""
    size = min(len(log), len(words))
    if not size or log[-size:] != words[-size:]:
        return None
    return (*(None for _ in words[size:]), *range(len(log) - size, len(log)))


def _edited(log: list[Word], words: list[Word], *, named: bool) -> tuple[int | None, ...] | None:
    first = next((index for index, word in enumerate(words) if word in log), len(words))
    if first and not named and not (first == 1 and words[0][0] == "assistant"):  # an edited reply, at the client's cut
        return None
    places: list[int | None] = [None] * first
    start, edited = 0, False
    for index in range(first, len(words)):
        place = _find(log, words[index], start)
        if place is None and not _is_edited_reply(log, words, index, places):
            break
        edited = edited or place is None
        start = start if place is None else place + 1
        places.append(place)
    left = words[len(places) :]
    if edited and any(role == "assistant" for role, _ in left):
        return None
    told = any(place is not None and words[index][0] == "user" for index, place in enumerate(places[: len(words) - 1]))
    return tuple(places) if told else None


def _find(log: list[Word], word: Word, start: int) -> int | None:
    return next((index for index in range(start, len(log)) if log[index] == word), None)


def _is_edited_reply(log: list[Word], words: list[Word], index: int, places: list[int | None]) -> bool:
    """The user message before was found in the log, and it was answered there."""
    before = places[index - 1] if index else None
    if words[index][0] != "assistant" or before is None or words[index - 1][0] != "user":
        return False
    return before + 1 < len(log) and log[before + 1][0] == "assistant"


def _current(turns: Sequence[Turn]) -> Iterable[Turn]:
    """The turns without replies that a later reply stands in for."""
    for turn, after in zip_longest(turns, turns[1:]):
        if not (after is not None and turn.role == after.role == "assistant"):
            yield turn


def _as_sent(session: Session, index: int, message: Message) -> Turn:
    """A turn that is shown to the model and written nowhere."""
    last = session.turns[-1]
    role: Role = "assistant" if message.role == "assistant" else "user"
    speaker = next((turn.speaker for turn in session.turns if turn.role == role), role.capitalize())
    return Turn(f"{session.id}.sent{index}", role, speaker, message.content, last.time)


def _words(sent: Sequence[Message]) -> list[Word]:
    return [_word(message.role, message.content) for message in sent]


def _word(role: str, text: str) -> Word:
    return role, " ".join(unicodedata.normalize("NFC", text).split())
