"""The proof that tests stay on this machine: the guards refuse what they should, here and in a child process."""

import os
import socket
import subprocess
import sys

import pytest
from pytest_socket import SocketConnectBlockedError

# Addresses kept for documentation (RFC 5737, RFC 2606): nothing answers there, with or without a guard.
NOWHERE = ("192.0.2.1", 9)


@pytest.mark.filterwarnings("ignore:A test tried to use socket")
def test_a_connection_beyond_loopback_is_refused() -> None:
    with socket.socket() as client, pytest.raises(SocketConnectBlockedError):
        client.connect(NOWHERE)


def test_a_name_is_not_looked_up() -> None:
    with pytest.raises(RuntimeError, match="only loopback"):
        socket.getaddrinfo("example.invalid", 443)


def test_loopback_works() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            accepted.sendall(b"here")
            assert client.recv(4) == b"here"


@pytest.mark.parametrize("call", [f"socket.socket().connect({NOWHERE})", "socket.gethostbyname('example.invalid')"])
def test_a_child_process_is_guarded_too(call: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", f"import socket; {call}"], capture_output=True, text=True, check=False
    )
    assert child.returncode != 0
    assert "only loopback is allowed" in child.stderr


def test_hub_libraries_are_not_kept_offline_by_a_variable() -> None:
    """Otherwise passing tests would prove nothing about what a user without these variables meets."""
    assert not {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"} & set(os.environ)
