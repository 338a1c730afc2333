"""Serve the app on a socket until it is interrupted: uvicorn and signals.

On Ctrl-C no new request is accepted, replies get a few seconds to end and are then broken off, and the caller goes on
to close the runtime.
"""

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

from localmem.config import decisive_settings, default_settings, reply_settings
from localmem.errors import LocalmemError
from localmem.runtime import Runtime
from localmem.server.app import create_app, utc_now
from localmem.server.auth import is_loopback
from localmem.server.dependencies import Clock, Services
from localmem.server.local_access import LocalServer, remove_local_server, write_local_server
from localmem.server.slow_clients import header_limit
from localmem.server.workers import stop_signals

if TYPE_CHECKING:
    from localmem.runtime.tracing import Tracing

_ALL_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # each with the loopback address that it includes


def serve(
    runtime: Runtime,
    listener: socket.socket,
    notify: Callable[[str], None],
    token: str,
    tracing: "Tracing | None" = None,
) -> None:
    """Serve on this socket until a signal stops it; `token` is the key of this start. Raises loading errors."""
    if runtime.settings.server.access_log:
        _show_access_log()
    runtime.remember_in_background()  # in uvicorn's start an error, of a damaged store perhaps, would be a traceback
    server = Server(runtime, notify, token=token, tracing=tracing)
    server.run_on(listener)
    if server.load_error:
        raise server.load_error


def _show_access_log() -> None:
    """Write the lines of requests to stderr, each with its time."""
    handler, access = logging.StreamHandler(), logging.getLogger("localmem.access")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    access.addHandler(handler)
    access.setLevel(logging.INFO)
    access.propagate = False


class Server(uvicorn.Server):
    """uvicorn, with replies that end before it does, and a backbone that loads while requests are already answered."""

    def __init__(
        self,
        runtime: Runtime,
        notify: Callable[[str], None],
        *,
        now: Clock = utc_now,
        token: str | None = None,
        tracing: "Tracing | None" = None,
    ) -> None:
        app = create_app(runtime, now=now, token=token, tracing=tracing)
        self.services: Services = app.state.services
        self._grace_seconds = runtime.settings.server.grace_seconds
        self._notify = notify
        self.load_error: LocalmemError | None = None
        super().__init__(
            uvicorn.Config(
                app,
                http=header_limit(runtime.settings.server.slow_seconds),
                log_level="warning",
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="on",
                timeout_graceful_shutdown=int(self._grace_seconds) + 5,
            )
        )

    def run_on(self, listener: socket.socket) -> None:
        """Serve on this socket until interrupted; a second interrupt does not wait for replies."""
        self._listener = listener
        with _signals_as_sigint():
            try:
                self.run([listener])
            except KeyboardInterrupt:
                pass  # raised again by uvicorn; `shutdown` has said so
            finally:
                remove_local_server(self.services.settings.data, self.services.local_token)
                self.services.sessions.stop_all()  # after a second interrupt, replies may still be in progress

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce_locally()
        self._notify(self._address_line())
        threading.Thread(target=self._warm_up, name="warm", daemon=True).start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if not self.load_error:
            count, seconds = self.services.pool.count, self._grace_seconds
            replies = f": waiting for replies in progress ({count}), which are broken off after {seconds:g} s"
            self._notify(f"stopping{replies if count else ''}")
        stop_replies = asyncio.get_running_loop().call_later(self._grace_seconds, self.services.sessions.stop_all)
        try:
            await super().shutdown(sockets)
        finally:
            stop_replies.cancel()

    def _announce_locally(self) -> None:
        """Let commands of this machine find the server, if it listens on loopback."""
        settings = self.services.settings
        host, port = self._listener.getsockname()[:2]
        host = _ALL_ADDRESSES.get(host, host)
        if is_loopback(host):
            values = decisive_settings(settings), default_settings(), reply_settings(settings)
            server = LocalServer(host, port, os.getpid(), self.services.local_token, *values)
            try:
                write_local_server(settings.data, server)
            except OSError as error:
                self._notify(f"cannot write to {settings.data} ({error}); commands will not use this server")

    def _address_line(self) -> str:
        settings = self.services.settings
        host, port = self._listener.getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        location = self.services.runtime.store.where
        return f"serving http://{host}:{port}/v1: model {settings.model}, system {settings.system}, data {location}"

    def _warm_up(self) -> None:
        """Load what the first reply would wait for. An error of loading stops the server."""
        try:
            warm_up(self.services)
        except LocalmemError as error:
            self.load_error = error
            self.should_exit = True


def warm_up(services: Services) -> None:
    """Load the backbone, and the encoder where the memory searches with one."""
    runtime = services.runtime
    memory = runtime.agent(services.settings.user).memory
    if memory.keeps_units and services.settings.retrieval.retriever != "bm25":
        runtime.encoder().encode(["ready"], "query")
    runtime.llm.count_tokens(["ready"])
    services.warm.set()


@contextmanager
def _signals_as_sigint() -> Iterator[None]:
    """Handle what stops a server like Ctrl-C, so that a backbone started by this process is stopped as well."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    others = set(stop_signals()) - {signal.SIGINT}
    previous = {each: signal.signal(each, lambda *_: signal.raise_signal(signal.SIGINT)) for each in others}
    try:
        yield
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)
