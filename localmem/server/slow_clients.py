"""A protocol for uvicorn that does not wait for ever for a request's headers, nor read them without end.

uvicorn limits only the pause between two requests. Bodies are limited by `body_limit`.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

_MOST_HEADERS = 64 << 10  # bytes of a request's headers


def header_limit(seconds: float) -> type[asyncio.Protocol]:
    """Uvicorn's protocol, which closes a connection whose next request's headers did not all come in `seconds`."""

    class HeaderLimit(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # chosen when it is imported
        cycle: Any
        _timer: asyncio.TimerHandle | None = None
        _received = 0

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self._transport = transport
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop_waiting()
                return
            self._received += len(data)
            if self._received > _MOST_HEADERS:
                self._transport.close()
            elif self._timer is None:
                self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _wait(self) -> None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._transport.close)

        def _stop_waiting(self) -> None:
            self._received = 0
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return HeaderLimit
