"""Serves the app on a socket until it is interrupted.

Knows uvicorn and signals. On Ctrl-C no new request is taken, replies get a few seconds to end and are then broken off,
and whoever called goes on to close the runtime.
"""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from localmem.errors import BadSettings, LocalmemError
from localmem.runtime import Runtime
from localmem.server.app import create_app, utc_now
from localmem.server.auth import check_binding
from localmem.server.dependencies import Services
from localmem.server.session_manager import Clock

log = logging.getLogger(__name__)

Say = Callable[[str], None]


def serve(runtime: Runtime, say: Say) -> None:
    """Serve until SIGINT or SIGTERM. Raises BadSettings for a door that may not be opened, and what loading raised."""
    check_binding(runtime.settings)
    with listening(runtime) as listener:
        server = Server(runtime, say)
        server.run_on(listener)
    if server.failed:
        raise server.failed


@contextmanager
def listening(runtime: Runtime) -> Iterator[socket.socket]:
    """The socket that the settings name. Raises BadSettings when it cannot be had."""
    host, port = runtime.settings.server.host, runtime.settings.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise BadSettings(
            f"cannot listen on {host}:{port} ({error.strerror}); choose another --host or --port"
        ) from error
    with listener:
        yield listener


class Server(uvicorn.Server):
    """uvicorn, with replies that end before it does, and a backbone that loads while it already answers."""

    def __init__(self, runtime: Runtime, say: Say, *, now: Clock = utc_now) -> None:
        app = create_app(runtime, now=now)
        self.services: Services = app.state.services
        self._grace = runtime.settings.server.grace_seconds
        self._say = say
        self.failed: LocalmemError | None = None
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="on",
                timeout_graceful_shutdown=int(self._grace) + 5,
            )
        )

    def run_on(self, listener: socket.socket) -> None:
        """Serve on this socket until interrupted; a second interrupt does not wait for replies."""
        self._listener = listener
        with _terminated_as_interrupted():
            try:
                self.run([listener])
            except KeyboardInterrupt:
                self._say("stopping")
            finally:
                self.services.desk.stop_all()  # a second interrupt left replies that are being given

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._say(self._line())
        threading.Thread(target=self._warm, name="warm", daemon=True).start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        patience = asyncio.get_running_loop().call_later(self._grace, self.services.desk.stop_all)
        try:
            await super().shutdown(sockets)
        finally:
            patience.cancel()

    def _line(self) -> str:
        settings = self.services.settings
        host, port = self._listener.getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        where = self.services.runtime.store.where
        return f"serving http://{host}:{port}/v1: model {settings.model}, system {settings.system}, data {where}"

    def _warm(self) -> None:
        """Load what the first reply would wait for; what cannot be loaded ends the server."""
        try:
            warm_up(self.services)
        except LocalmemError as error:
            self.failed = error
            self.should_exit = True


def warm_up(services: Services) -> None:
    """The backbone is loaded, and the encoder where the memory searches with one."""
    runtime = services.runtime
    memory = runtime.agent(services.settings.user).memory
    if memory.keeps_units and services.settings.retrieval.retriever != "bm25":
        runtime.encoder().encode(["ready"], "query")
    runtime.llm.count_tokens(["ready"])
    services.warm.set()


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends the server as Ctrl-C does, so that the backbone it started is stopped as well."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
