"""`localmem chat`: a conversation on the terminal, or line by line from a pipe; `localmem serve`: the server.

Only input and output; the agent does the work. A session ends with /end, or at the next start when its last turn is
long past.
"""

import sys
import time
import uuid
from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

import click

from localmem.cli.options import Moment, SettingsFlags, note, open_runtime, settings_options
from localmem.cli.terminal import open_screen

if TYPE_CHECKING:
    from localmem.chat.conversation import Conversation
    from localmem.runtime import Runtime
    from localmem.types import Completion, Prompt, Reply, Session


_HELP = """/end          close the session; it is remembered in the background
/memory       show the memory
/sessions     list the sessions
/forget TEXT  put away what TEXT names; it is not recalled again
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
    paste of several lines is one message, and replies are shown as Markdown; from a pipe each line is a message.
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
        self._incognito: Session | None = None  # the dialogue that is stored nowhere
        self._sampling: dict[str, float] = {}
        self._screen = open_screen(runtime.settings.data / "chat_history")
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
        """Read messages until the end of input or /quit."""
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

    def finish(self) -> None:
        """Remember closed sessions before leaving. If Ctrl-C interrupts this, the next start continues it."""
        waiting = len(self._runtime.waiting_jobs(self._user))
        if waiting:
            note(f"remembering {waiting} session{'s' if waiting > 1 else ''}")
            self._runtime.remember_all(self._user)

    def _reply(self, text: str) -> None:
        pieces = self._stream_incognito(text) if self._incognito is not None else self._stream(text)
        try:
            self._screen.show(pieces)
        except KeyboardInterrupt:
            note("\n(stopped; the words so far are kept)" if self._incognito is None else "\n(stopped)")
        finally:
            pieces.close()
            click.echo()

    def _stream(self, text: str) -> Generator[str, None, None]:
        """The reply, logged and remembered."""
        from localmem.chat.conversation import hear_and_prepare, not_before_last

        now = not_before_last(self._clock(), *self._agent.sessions)
        session, prepared = hear_and_prepare(
            lambda announce: self._agent.hear(text, now, None, announce), self._agent.responder.prepare
        )
        self._last_reply = yield from self._agent.reply(
            session.id, dialogue=session, prepared=prepared, adjust=self._adjust
        )
        self._note_limit(self._last_reply.completion)

    def _stream_incognito(self, text: str) -> Generator[str, None, None]:
        """The reply without memory; the dialogue lasts as long as this mode."""
        from localmem.chat.responder import Responder
        from localmem.types import Recall, Session, Turn

        own, llm = self._agent.responder, self._runtime.llm
        responder = Responder(memory=own.memory, llm=llm, speakers=own.speakers, sampling=own.sampling)
        earlier = self._incognito or Session(uuid.uuid4().hex[:12])
        now = self._clock()
        question = Turn(f"{earlier.id}.{len(earlier.turns)}", "user", own.speakers.user, text, now)
        dialogue = replace(earlier, turns=(*earlier.turns, question))
        prepared = responder.prepare(dialogue, self._runtime.settings.chat.instructions, Recall())
        completion = yield from llm.stream(self._adjust(prepared.prompt))
        turn = Turn(f"{earlier.id}.{len(dialogue.turns)}", "assistant", own.speakers.assistant, completion.text, now)
        self._incognito = replace(dialogue, turns=(*dialogue.turns, turn))
        self._note_limit(completion)

    def _adjust(self, prompt: "Prompt") -> "Prompt":
        return replace(prompt, **self._sampling)  # type: ignore[arg-type]  # /set checks names and types

    def _note_limit(self, completion: "Completion") -> None:
        if completion.finish == "length":
            note(f"\n(cut after {completion.usage.output} tokens; the setting chat.max_tokens is the limit)")

    # -- commands --------------------------------------------------------------------------------------------------

    def _toggle_incognito(self, _argument: str) -> None:
        from localmem.types import Session

        if self._incognito is None:
            self._incognito = Session(uuid.uuid4().hex[:12])
            note("incognito: nothing is recalled or stored; /incognito again to return")
        else:
            self._incognito = None
            note("memory is used again")

    def _set(self, argument: str) -> None:
        name, _, value = argument.partition(" ")
        if name and name not in _SAMPLING:
            note(f"/set knows {', '.join(_SAMPLING)}, not {name!r}")
        elif name:
            try:
                self._sampling[name] = _SAMPLING[name](value)
            except ValueError:
                note(f"{value!r} is not a number for {name}; write for example /set {name} 1")
        note(", ".join(f"{key} {value}" for key, value in self._sampling.items()) or "nothing is set")

    def _forget(self, argument: str) -> None:
        from localmem.text.forget_requests import request_about
        from localmem.types import Session, Turn

        if not argument:
            note("say what to forget, such as /forget my old address")
            return
        name = f"forget-{uuid.uuid4().hex[:12]}"
        turn = Turn(name, "user", self._agent.responder.speakers.user, argument, self._clock())
        answer = self._agent.writer.forgetting.forget(request_about(argument), turn, Session(name, (turn,)))
        self._agent.writer.forget(answer)
        click.echo(answer.reply)

    def _list_sessions(self, _argument: str) -> None:
        from localmem.cli.conversations import print_sessions, session_rows

        print_sessions(session_rows(self._runtime, self._user, 20))

    def _end_session(self, _argument: str) -> None:
        if self._agent.close() is None:
            note("no session is open; say something first")
            return
        self._runtime.nudge()
        note("session closed; it is being remembered")

    def _document(self) -> dict[str, object]:
        from localmem.runtime.inspection import memory_document

        return memory_document(self._runtime.store, self._user, self._runtime.settings.system, self._clock())

    def _show_memory(self, _argument: str) -> None:
        from localmem.cli.memory import describe_memory

        click.echo(describe_memory(self._document()))

    def _explain_reply(self, _argument: str) -> None:
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

    def _show_help(self, _argument: str) -> None:
        click.echo(_HELP)


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
