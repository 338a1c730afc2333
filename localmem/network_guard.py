"""The guard of the `localmem` command: this process reaches no machine but its own and those that its settings name.

In Python it sees every socket and name look-up, whoever opens them, by an audit hook (PEP 578), which cannot be taken
back. Below Python, and for the processes that this one starts, `isolate` takes the network itself away: in a network
namespace of its own there is nothing but loopback. That is done where the settings name no host; where they do, native
code is on its own. (A seccomp filter sees no addresses, so it could only refuse loopback as well, which vLLM needs.) A
host program that imports localmem is left alone. Depends on no other part.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path

from localmem.errors import NetworkRefused

_CURE = "only `localmem models pull` and connections to the hosts of llm.url and database are allowed"


_NEW_NETWORK, _NEW_USER = 0x40000000, 0x10000000  # flags of unshare(2)
_SET_FLAGS, _UP = 0x8914, 1  # SIOCSIFFLAGS, IFF_UP of netdevice(7)


class _Guard:
    """What may be reached besides this machine. `is_sealed`: nothing, whatever the settings say."""

    def __init__(self) -> None:
        self.hosts: set[str] = set()
        self.is_armed = self.is_open = self.is_sealed = self.is_isolated = False

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


def isolate() -> str:
    """Leave this process, and those that it starts, no network but a loopback of their own; a no-op unless armed.

    Sockets that are open keep their network. Returns why it cannot be done here, or "".
    """
    if not _guard.is_armed or _guard.is_isolated:
        return ""
    reason = why_not_isolated()
    if not reason:
        _leave_network()
        _guard.is_isolated = True
    return reason


def why_not_isolated() -> str:
    """Why the system lets no process here give up its network, tried in a process that ends at once; "" if it does."""
    if not sys.platform.startswith("linux"):
        return f"{sys.platform} has no network namespaces"
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208  # only the thread that asks would leave
        return "threads are running already"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _leave_network()
            status = 0
        except OSError as error:
            status = error.errno or 1
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return f"the kernel refuses network namespaces here ({os.strerror(status)})" if status else ""


def _leave_network() -> None:
    """Enter a new network namespace, without rights in a user namespace of our own, and bring its loopback up."""
    user, group, libc = os.geteuid(), os.getegid(), ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NETWORK) != 0:
        if libc.unshare(_NEW_USER | _NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        for name, line in (
            ("setgroups", b"deny"),
            ("uid_map", b"%d %d 1" % (user, user)),
            ("gid_map", b"%d %d 1" % (group, group)),
        ):
            Path(f"/proc/self/{name}").write_bytes(line)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))


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
