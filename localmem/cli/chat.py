"""`localmem chat`: a conversation on the terminal, or line by line from a pipe; `localmem serve`: the server.

Only input and output; the agent does the work. A session ends with /end, or at the next start when its last turn is
long past.
"""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

import click

from localmem.cli.options import Moment, SettingsFlags, note, open_runtime, settings_options

if TYPE_CHECKING:
    from localmem.chat.conversation import Conversation
    from localmem.runtime import Runtime
    from localmem.types import Reply


_HELP = """/end     close the session; it is remembered in the background
/memory  show the memory
/why     show what the last reply recalled and the prompt that was sent
/quit    leave; the session stays open"""


@click.command()
@settings_options("user", "system", "model", "data_dir", "config")
@click.option("--now", type=Moment(), help="Start the clock at this time (default: now).", metavar="TIME")
def chat(flags: SettingsFlags, now: datetime | None) -> None:
    """Chat with memory of past sessions.

    A session is remembered once it is over. Commands: /end, /memory, /why, /help, /quit. Ctrl-C stops a reply and keeps
    the words so far.
    """
    settings = flags.load()
    if settings.llm.url is None:
        from localmem.weights.manifest import Manifest

        Manifest.load().entry(settings.model)  # a wrong name is said before anything is typed
    with open_runtime(settings) as runtime:
        terminal = _TerminalChat(runtime, settings.user, _clock(now, settings.chat.zone))
        terminal.start(timedelta(minutes=settings.server.idle_minutes))
        runtime.remember_in_background()
        terminal.run()
        terminal.finish()


def _clock(start: datetime | None, zone: tzinfo | None) -> Callable[[], datetime]:
    """The present in the user's zone, or a clock that starts at `start`."""
    if start is None:
        from localmem.times.zones import in_zone

        return lambda: in_zone(datetime.now(UTC), zone)
    origin = time.monotonic()
    return lambda: start + timedelta(seconds=time.monotonic() - origin)


class _TerminalChat:
    """One user's conversation at this terminal."""

    def __init__(self, runtime: "Runtime", user: str, clock: Callable[[], datetime]) -> None:
        self._runtime = runtime
        self._user = user
        self._agent: Conversation = runtime.agent(user)
        self._clock = clock
        self._last_reply: Reply | None = None
        self._commands = {
            "/end": self._end_session,
            "/memory": self._show_memory,
            "/why": self._explain_reply,
            "/help": self._show_help,
        }

    def start(self, idle: timedelta) -> None:
        """Close idle sessions; a recent one continues."""
        for session in self._agent.sessions:
            if self._clock() - session.turns[-1].time > idle:
                self._agent.close(session.id)
        if self._agent.sessions:
            note(f"continuing the session of {self._agent.sessions[-1].turns[-1].time:%d %B %Y, %H:%M}")
        from localmem.cli.memory import note_unread

        note_unread(self._document())
        if sys.stdin.isatty():
            note("/help lists the commands")

    def run(self) -> None:
        """Read lines until the end of input or /quit."""
        while (line := _read_line()) is not None and line != "/quit":
            if line in self._commands:
                self._commands[line]()
            elif line.startswith("/"):
                note(f"unknown command {line!r}; /help lists them")
            elif line:
                self._reply(line)

    def finish(self) -> None:
        """Remember closed sessions before leaving. If Ctrl-C interrupts this, the next start continues it."""
        waiting = len(self._runtime.waiting_jobs(self._user))
        if waiting:
            note(f"remembering {waiting} session{'s' if waiting > 1 else ''}")
            self._runtime.remember_all(self._user)

    def _reply(self, text: str) -> None:
        from localmem.chat.conversation import not_before_last

        pieces = self._agent.stream(text, not_before_last(self._clock(), *self._agent.sessions))
        try:
            while True:
                click.echo(next(pieces), nl=False)
        except StopIteration as end:
            self._last_reply = reply = end.value
            if reply.completion.finish == "length":
                note(f"\n(cut after {reply.completion.usage.output} tokens; the setting chat.max_tokens is the limit)")
        except KeyboardInterrupt:
            note("\n(stopped; the words so far are kept)")
        finally:
            pieces.close()
            click.echo()

    def _end_session(self) -> None:
        if self._agent.close() is None:
            note("no session is open; say something first")
            return
        self._runtime.nudge()
        note("session closed; it is being remembered")

    def _document(self) -> dict[str, object]:
        from localmem.runtime.inspection import memory_document

        return memory_document(self._runtime.store, self._user, self._runtime.settings.system, self._clock())

    def _show_memory(self) -> None:
        from localmem.cli.memory import describe_memory

        click.echo(describe_memory(self._document()))

    def _explain_reply(self) -> None:
        if self._last_reply is None:
            note("there is no reply yet")
            return
        for hit in self._last_reply.recall.hits:
            click.echo(f"recalled {hit.unit.id} ({hit.score:.3f}): {hit.unit.text}")
        for working in self._last_reply.recall.workings:
            click.echo(f"worked out: {working.text} [turns {', '.join(working.sources)}]")
        click.echo(f"prompt {self._last_reply.prompt.name}, as it was sent:")
        for message in self._last_reply.prompt.messages:
            click.echo(f"[{message.role}]\n{message.content}\n")

    def _show_help(self) -> None:
        click.echo(_HELP)


def _read_line() -> str | None:
    """The next line of the user, or None at the end of input."""
    try:
        return input("you: " if sys.stdin.isatty() else "").strip()
    except EOFError:
        return None
    except KeyboardInterrupt:
        note("\nthe session stays open; /end closes it next time")
        return None


@click.command()
@click.option("--host", help="Address to listen on; others than loopback need keys.", metavar="HOST")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on.", metavar="PORT")
@settings_options("system", "model", "data_dir", "config")
def serve(host: str | None, port: int | None, flags: SettingsFlags) -> None:
    """Serve clients of OpenAI, Anthropic and Ollama with memory.

    Runs until Ctrl-C. Without keys in the settings only this machine is served, and everything belongs to the default
    user.

    A request's header X-Localmem says what memory does with it: `write` (the default) recalls and stores, `read`
    recalls and stores nothing, `off` does neither. "store": false in the body means `read`. What clients send on their
    own account, such as requests for a title, is answered as with `off`. X-Localmem-Timezone: Europe/Berlin dates its
    turns by that zone instead of the setting chat.timezone.
    """
    settings = flags.load(server={"host": host, "port": port})
    try:
        from localmem.server.auth import check_binding
        from localmem.server.listen import serve as run
    except ModuleNotFoundError as error:
        from localmem.errors import MissingExtra

        raise MissingExtra(f"{error.name} is not installed; run `pip install 'localmem[serve]'`") from error
    check_binding(settings)
    with open_runtime(settings) as runtime:
        run(runtime, note)
