"""The guard of the `localmem` command: this process reaches no machine but its own and those that its settings name.

It sees every socket and name look-up of Python, whoever opens them, by an audit hook (PEP 578), which cannot be taken
back; a host program that imports localmem is left alone. Native code opens sockets past it: of that there is none here
but PostgreSQL's driver, which reaches the database of the settings, and the vLLM server, which is told by variables of
its own. Depends on no other part.
"""

import socket
import sys
from collections.abc import Iterable
from ipaddress import ip_address

from localmem.errors import NetworkRefused

_CURE = "`localmem models pull` and the hosts of llm.url and database are the only ways out"


class _Guard:
    """What may be reached besides this machine. `is_sealed`: nothing, whatever the settings say."""

    def __init__(self) -> None:
        self.hosts: set[str] = set()
        self.is_armed = self.is_open = self.is_sealed = False

    def check(self, event: str, arguments: tuple[object, ...]) -> None:
        """The audit hook. Raises NetworkRefused."""
        if self.is_open or not event.startswith("socket."):
            return
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            address = arguments[1]
            host = address[0] if isinstance(address, tuple) else None  # a path is a socket of this machine
        elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
            host = arguments[0]
        else:
            return
        name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
        if isinstance(name, str) and not is_local(name) and not self._is_named(name):
            raise NetworkRefused(f"refused to reach {name!r}, another machine: {_CURE}")

    def _is_named(self, name: str) -> bool:
        """Whether it is a host of the settings, or an address of one as its name resolves now."""
        hosts = () if self.is_sealed else self.hosts
        return name in hosts or any(name in _addresses(host) for host in hosts)


_guard = _Guard()


def arm() -> None:
    """Refuse other machines from now on, in this process."""
    if not _guard.is_armed:
        _guard.is_armed = True
        sys.addaudithook(_guard.check)


def allow(hosts: Iterable[str]) -> None:
    """Let these hosts be reached by name and by address, unless sealed."""
    _guard.hosts.update(hosts)


def open_network() -> None:
    """Let everything be reached, for a download that the user asked for. Raises NetworkRefused once sealed."""
    if _guard.is_sealed:
        raise NetworkRefused("a download needs the network; omit --offline")
    _guard.is_open = True


def seal() -> None:
    """Allow nothing beyond this machine from now on."""
    _guard.is_sealed = True


def is_local(host: str) -> bool:
    """Whether a name or address is this machine; an empty one is."""
    if host in ("", "localhost", socket.gethostname()):
        return True
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _addresses(host: str) -> set[str]:
    try:
        return {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return set()
