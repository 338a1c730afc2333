"""The status of a response, for middleware that notes it. Does not look at what is sent."""

from starlette.types import Message, Send


class ResponseStatus:
    """Passes a response's messages on; `value` is its status, 499 if the client leaves before the response."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.value = 499

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.value = message["status"]
        await self._send(message)
