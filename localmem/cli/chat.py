"""`localmem chat`: a conversation on the terminal, or line by line from a pipe.

Knows how a conversation looks to a person; the agent does the rest. Sessions end with /end, or by themselves when the
last turn is long past at the next start.
"""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.options import Moment, common, model_option, note, runtime_of, settings_of

if TYPE_CHECKING:
    from localmem.chat.agent import ChatAgent
    from localmem.runtime import Runtime
    from localmem.types import Reply

_HELP = """/end     close the session: it is remembered in the background
/memory  show what is remembered
/why     show what the last reply recalled and the prompt that was sent
/quit    leave; the session stays open"""


@click.command()
@common(
    model_option,
    click.option("--now", type=Moment(), help="Start the clock at this time instead of the present.", metavar="TIME"),
)
def chat(
    user: str | None,
    system: str | None,
    data: Path | None,
    config: Path | None,
    model: str | None,
    now: datetime | None,
) -> None:
    """Talk to the model; it remembers what was said once a session is over.

    Commands while talking: /end, /memory, /why, /help, /quit. Ctrl-C stops a reply and keeps what was said.
    """
    settings = settings_of(config, data, user, system, model=model)
    with runtime_of(settings) as runtime:
        talk = _Talk(runtime, settings.user, _clock(now))
        talk.begin(timedelta(minutes=settings.server.idle_minutes))
        runtime.remember_in_background()
        talk.listen()
        talk.finish()


def _clock(start: datetime | None) -> Callable[[], datetime]:
    """The time of day, or the time that has passed since `start` was given."""
    if start is None:
        return lambda: datetime.now(UTC)
    began = time.monotonic()
    return lambda: start + timedelta(seconds=time.monotonic() - began)


class _Talk:
    """One user's conversation at this terminal."""

    def __init__(self, runtime: "Runtime", user: str, clock: Callable[[], datetime]) -> None:
        self._runtime = runtime
        self._user = user
        self._agent: ChatAgent = runtime.agent(user)
        self._clock = clock
        self._last: Reply | None = None
        self._commands = {"/end": self._end, "/memory": self._memory, "/why": self._why, "/help": self._help}

    def begin(self, idle: timedelta) -> None:
        """Sessions left open long ago are over; a recent one goes on."""
        for session in self._agent.sessions:
            if self._clock() - session.turns[-1].time > idle:
                self._agent.close(session.id)
        if self._agent.session:
            note(f"going on with the session of {self._agent.session.turns[-1].time:%d %B %Y, %H:%M}")
        from localmem.cli.memory import tell_unread

        tell_unread(self._runtime)
        if sys.stdin.isatty():
            note("/help lists the commands")

    def listen(self) -> None:
        """Until the end of input or /quit."""
        while (said := _ask()) is not None and said != "/quit":
            if said in self._commands:
                self._commands[said]()
            elif said.startswith("/"):
                note(f"there is no command {said!r}; /help lists them")
            elif said:
                self._reply(said)

    def finish(self) -> None:
        """Sessions that are over are remembered before the command ends; the next start does what Ctrl-C cuts off."""
        waiting = len(self._runtime.waiting_jobs(self._user))
        if waiting:
            note(f"remembering {waiting} session{'s' if waiting > 1 else ''}")
            self._runtime.remember_all(self._user)

    def _reply(self, said: str) -> None:
        pieces = self._agent.stream(said, self._clock())
        try:
            while True:
                click.echo(next(pieces), nl=False)
        except StopIteration as end:
            self._last = end.value
        except KeyboardInterrupt:
            note("\n(stopped; what was said is kept)")
        finally:
            pieces.close()
            click.echo()

    def _end(self) -> None:
        if self._agent.close() is None:
            note("no session is open; say something first")
            return
        self._runtime.nudge()
        note("the session is over and is being remembered")

    def _memory(self) -> None:
        from localmem.cli.memory import describe

        click.echo(describe(self._agent.memory.bank) or "nothing is remembered yet")

    def _why(self) -> None:
        if self._last is None:
            note("nothing was said yet")
            return
        for hit in self._last.recall.hits:
            click.echo(f"recalled {hit.unit.id} ({hit.score:.3f}): {hit.unit.text}")
        click.echo(f"the prompt {self._last.prompt.name}, as it was sent:")
        for message in self._last.prompt.messages:
            click.echo(f"[{message.role}]\n{message.content}\n")

    def _help(self) -> None:
        click.echo(_HELP)


def _ask() -> str | None:
    """The next line of the user, None at the end of input."""
    try:
        return input("you: " if sys.stdin.isatty() else "").strip()
    except EOFError:
        return None
    except KeyboardInterrupt:
        note("\nthe session stays open; /end closes it next time")
        return None
