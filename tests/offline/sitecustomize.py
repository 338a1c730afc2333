"""Refuses every connection and every name look-up but loopback, in this process and in the Pythons it starts.

tests/conftest.py puts this folder on PYTHONPATH, so that the interpreter of a child process loads it first thing. An
audit hook cannot be taken back and sees all sockets of the standard library, whoever opens them.
"""

import sys

_LOOPBACK = ("127.", "::1", "localhost", "0.0.0.0")  # noqa: S104 - an address to bind or to reach oneself


def _refuse_the_network(event: str, args: tuple[object, ...]) -> None:
    if event in {"socket.connect", "socket.sendto"}:
        address = args[1]
        host = address[0] if isinstance(address, tuple) else None
    elif event in {"socket.getaddrinfo", "socket.gethostbyname"}:
        host = args[0]
    else:
        return
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    # Unix sockets have a path for an address; an empty host means this machine.
    if isinstance(host, str) and host and not host.startswith(_LOOPBACK):
        raise RuntimeError(f"a test tried to reach {host!r}: only loopback is allowed")


sys.addaudithook(_refuse_the_network)
