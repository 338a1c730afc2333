"""`localmem chat`: a conversation on the terminal, or line by line from a pipe; `localmem serve`: the server.

Only input and output. The conversation takes place in a running server on the same data directory (`server_chat`), else
in this process (`process_chat`). A session ends with /end, or at the next start when its last turn is long past.
"""

import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Protocol

import click

from localmem.cli.conversations import print_sessions
from localmem.cli.local_server import find_server
from localmem.cli.memory import describe_memory, note_unread
from localmem.cli.options import Moment, SettingsFlags, note, open_runtime, settings_options
from localmem.cli.server_chat import Messages, ServerConversation
from localmem.cli.terminal import open_screen
from localmem.errors import BadInput, BadSettings, LocalmemError, MissingExtra

if TYPE_CHECKING:
    from localmem.runtime.tracing import Tracing

_HELP = """/end          close the session; it is remembered in the background
/memory       show the memory
/sessions     list the sessions
/forget TEXT  hide what TEXT names; it is not recalled again
/incognito    chat without memory, and leave no trace; again to return
/set NAME N   set temperature, max_tokens or seed for this chat; /set alone shows them
/why          show what the last reply recalled and the prompt that was sent
/quit         leave; the session stays open
Ctrl-C stops a reply. Enter sends, Alt-Enter begins a new line, and a paste is one message."""

_SAMPLING = {"temperature": float, "max_tokens": int, "seed": int}


@click.command()
@settings_options("user", "system", "model", "data_dir", "config")
@click.option("--now", type=Moment(), help="Start the clock at this time (default: now).", metavar="TIME")
def chat(flags: SettingsFlags, now: datetime | None) -> None:
    """Chat with memory of past sessions.

    A session is remembered once it is over. Commands: /end, /memory, /sessions, /forget TEXT, /incognito, /set NAME
    VALUE, /why, /help, /quit. Ctrl-C stops a reply and keeps the words so far. On a terminal lines can be edited, a
    paste of several lines is one message, and replies are shown as Markdown; from a pipe each line is a message. A
    server that runs on the same data directory with the same settings replies; it takes the time from its own clock.
    """
    server = None if now else find_server(flags, replies=True)
    if server:
        _TerminalChat(ServerConversation(server), server.data).run()
        return
    settings = flags.load()
    if settings.llm.url is None:
        from localmem.weights.folder import model_path

        model_path(settings.model)  # what is wrong with it is said before anything is typed and stored
    with open_runtime(settings) as runtime:
        from localmem.cli.process_chat import ProcessConversation

        _TerminalChat(ProcessConversation(runtime, _clock(now, settings.chat.zone)), settings.data).run()


def _clock(start: datetime | None, zone: tzinfo | None) -> Callable[[], datetime]:
    """The present in the user's zone, or a clock that starts at `start`."""
    if start is None:
        from localmem.times.zones import in_zone

        return lambda: in_zone(datetime.now(UTC), zone)
    origin = time.monotonic()
    return lambda: start + timedelta(seconds=time.monotonic() - origin)


def _read_sampling(name: str, text: str) -> float:
    """The value of /set. Raises BadInput for what is no number, or none that the setting takes."""
    try:
        value: float = _SAMPLING[name](text)
    except ValueError as error:
        raise BadInput(f"{text!r} is not a number for {name}; write for example /set {name} 1") from error
    from pydantic import ValidationError

    from localmem.files import validation_line
    from localmem.settings_sections import ChatSettings

    try:
        if name in ChatSettings.model_fields:
            ChatSettings.model_validate({name: value})
    except ValidationError as error:
        raise BadInput(validation_line(error, ChatSettings, "setting")) from error
    return value


class _Conversation(Protocol):
    """Where the replies come from: ServerConversation or ProcessConversation."""

    sampling: dict[str, float]

    def resume(self) -> datetime | None: ...
    def say(self, text: str) -> Generator[str, None, int]: ...
    def say_incognito(self, dialogue: Messages, text: str) -> Generator[str, None, int]: ...
    def end(self) -> bool: ...
    def forget(self, text: str) -> str: ...
    def list_sessions(self) -> list[dict[str, Any]]: ...
    def read_memory(self) -> dict[str, Any]: ...
    def explain(self) -> Iterator[str]: ...
    def finish(self) -> None: ...


class _TerminalChat:
    """One user's conversation at this terminal; the typed lines are kept in the data directory, if it is plain."""

    def __init__(self, conversation: _Conversation, data: Path) -> None:
        self._conversation = conversation
        self._incognito: Messages | None = None  # the dialogue that is stored nowhere
        self._last_incognito = False  # whether the last reply was
        self._failed = False
        is_encrypted = (data / "memory.keys").exists()  # then nothing that was typed may be on the disk
        self._screen = open_screen(None if is_encrypted else data / "chat_history")
        self._commands: dict[str, Callable[[str], None]] = {
            "/end": self._end_session,
            "/memory": self._show_memory,
            "/sessions": self._list_sessions,
            "/forget": self._forget,
            "/incognito": self._toggle_incognito,
            "/set": self._set,
            "/why": self._explain_reply,
            "/help": self._show_help,
        }

    def run(self) -> None:
        """Read messages until the end of input or /quit."""
        self._start()
        while (text := self._screen.read()) is not None and text != "/quit":
            name, _, argument = text.partition(" ")
            if name in self._commands:
                self._commands[name](argument.strip())
            elif text.startswith("/") and "\n" not in text:
                note(f"unknown command {text!r}; /help lists them")
            elif text:
                self._reply(text)
        if text is None and sys.stdin.isatty():
            note("the session stays open; /end closes it next time")
        self._conversation.finish()
        if self._failed and not sys.stdin.isatty():
            sys.exit(1)

    def _start(self) -> None:
        if last := self._conversation.resume():
            note(f"continuing the session of {last:%d %B %Y, %H:%M}")
        note_unread(self._conversation.read_memory())
        if sys.stdin.isatty():
            note("/help lists the commands")

    def _reply(self, text: str) -> None:
        pieces = self._stream(text)
        self._last_incognito = self._incognito is not None
        try:
            self._screen.show(pieces)
        except LocalmemError as error:
            self._failed = True
            note(f"localmem: {error}")
        except KeyboardInterrupt:
            note("\n(stopped; the words so far are kept)" if self._incognito is None else "\n(stopped)")
        finally:
            pieces.close()
            click.echo()

    def _stream(self, text: str) -> Generator[str]:
        talk = self._conversation
        limit = yield from talk.say(text) if self._incognito is None else talk.say_incognito(self._incognito, text)
        if limit:
            note(f"\n(cut after {limit} tokens; the setting chat.max_tokens is the limit)")

    # -- commands --------------------------------------------------------------------------------------------------

    def _toggle_incognito(self, _argument: str) -> None:
        if self._incognito is None:
            self._incognito = []
            note("incognito: nothing is recalled or stored; /incognito again to return")
        else:
            self._incognito = None
            note("memory is used again")

    def _set(self, argument: str) -> None:
        name, _, value = argument.partition(" ")
        sampling = self._conversation.sampling
        if name and name not in _SAMPLING:
            note(f"/set knows {', '.join(_SAMPLING)}, not {name!r}")
        elif name:
            try:
                sampling[name] = _read_sampling(name, value)
            except BadInput as error:
                note(str(error))
        note(", ".join(f"{key} {value}" for key, value in sampling.items()) or "nothing is set")

    def _forget(self, argument: str) -> None:
        if argument:
            click.echo(self._conversation.forget(argument))
        else:
            note("say what to forget, such as /forget my old address")

    def _list_sessions(self, _argument: str) -> None:
        print_sessions(self._conversation.list_sessions())

    def _end_session(self, _argument: str) -> None:
        is_closed = self._conversation.end()
        note("session closed; it is being remembered" if is_closed else "no session is open; say something first")

    def _show_memory(self, _argument: str) -> None:
        click.echo(describe_memory(self._conversation.read_memory()))

    def _explain_reply(self, _argument: str) -> None:
        if self._last_incognito:
            note("the last reply was incognito: nothing was recalled, and its prompt is not kept")
            return
        lines = list(self._conversation.explain())
        if not lines:
            note("there is no reply yet")
        for line in lines:
            click.echo(line)

    def _show_help(self, _argument: str) -> None:
        click.echo(_HELP)


@click.command()
@click.option(
    "--host", help="Address to listen on; others than loopback need keys. [default: 127.0.0.1]", metavar="HOST"
)
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on. [default: 8321]", metavar="PORT")
@click.option("--workers", type=click.IntRange(1), help="Processes that serve; needs llm.url.", metavar="N")
@settings_options("system", "model", "data_dir", "config")
def serve(host: str | None, port: int | None, workers: int | None, flags: SettingsFlags) -> None:
    """Serve clients of OpenAI, Anthropic and Ollama with memory.

    Runs until Ctrl-C. Without keys in the settings only this machine is served, and everything belongs to the default
    user.

    A request's header X-Localmem says what memory does with it: `write` (the default) recalls and stores, `read`
    recalls and stores nothing, `off` does neither. "store": false in the body means `read`. Requests that clients make
    by themselves, such as for a title, are handled as `off`. X-Localmem-Timezone: Europe/Berlin dates its
    turns by that zone instead of the setting chat.timezone.
    """
    from localmem.config import system_options

    settings = flags.read(server={"host": host, "port": port, "workers": workers})
    if settings.server.workers > 1 and not settings.llm.urls:
        raise BadSettings(
            f"server.workers is {settings.server.workers}, and each worker would load a backbone; set llm.url"
        )
    system_options(settings.system, settings.options)  # before anything listens
    try:
        from localmem.server.auth import check_binding
        from localmem.server.local_access import open_listener
        from localmem.server.workers import start_workers
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is not installed; run `pip install 'localmem[serve]'`") from error
    check_binding(settings)
    with open_listener(settings.server.host, settings.server.port) as listener:
        token = token_urlsafe(32)
        if settings.server.workers > 1:
            start_workers(settings.server.workers, note)
        flags.load()  # gives up the network; the listener keeps its own
        from localmem.server.listen import serve as run

        with _tracing(settings.server.traces) as tracing, open_runtime(settings, tracing) as runtime:
            run(runtime, listener, note, token, tracing)


@contextmanager
def _tracing(url: str | None) -> "Iterator[Tracing | None]":
    if not url:
        yield None
        return
    from localmem.runtime.tracing import Tracing

    with closing(Tracing(url)) as tracing:
        yield tracing
