"""PostgreSQL as deploy/postgresql makes it: a primary, a synchronous standby, an archived log."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from tests.e2e.processes import ROOT
from tests.services import Server, find_binary, free_port, postgresql_answers, unprivileged_user

SCRIPTS = ROOT / "deploy" / "postgresql"


@dataclass
class Databases:
    """PostgreSQL servers that are made, started and stopped as the scripts of deploy/postgresql have it."""

    folder: Path
    user: str | None
    ports: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in ("a", "b")})
    servers: dict[str, Server] = field(default_factory=dict)

    @property
    def archive(self) -> Path:
        return self.folder / "archive"

    def data(self, name: str) -> Path:
        return self.folder / name

    def url(self, name: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.ports[name]}/postgres"

    @property
    def either(self) -> str:
        servers = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        return f"postgresql://postgres@{servers}/postgres"

    @property
    def path(self) -> str:
        """A PATH with PostgreSQL's programs."""
        return f"{Path(find_binary('postgres')).parent}:{os.environ['PATH']}"

    def run(self, *command: str) -> str:
        """As the server's own user."""
        env = {"PATH": self.path}
        done = subprocess.run(
            command, user=self.user, cwd=self.folder, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def script(self, name: str, *arguments: object) -> str:
        copy = self.folder / f"run-{name}"  # where every user may read it
        shutil.copy(SCRIPTS / name, copy)
        return self.run("sh", str(copy), *map(str, arguments))

    def make_primary(self, name: str) -> None:
        self.run("initdb", "-D", str(self.data(name)), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        settings = (SCRIPTS / "primary.conf").read_text().replace("/var/lib/postgresql/archive", str(self.archive))
        with (self.data(name) / "postgresql.conf").open("a") as file:
            file.write(f"\n{settings}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{self.folder}'\n")

    def start(self, name: str, *, at: str = "") -> Server:
        """at: whose port it has."""
        port = self.ports[at or name]
        command = [find_binary("postgres"), "-D", str(self.data(name)), "-c", f"port={port}", "-c", "fsync=off"]
        server = Server(
            command, url=self.url(at or name), folder=self.folder, answers=postgresql_answers, user=self.user
        )
        server.start()
        self.servers[name] = server
        return server

    def ask(self, name: str, statement: str) -> object:
        with psycopg.connect(self.url(name), autocommit=True) as connection:
            (found,) = connection.execute(statement).fetchone() or (None,)
        return found

    def stop(self) -> None:
        for server in self.servers.values():
            server.kill()


@contextmanager
def databases() -> Iterator[Databases]:
    user = unprivileged_user()
    folder = Path(tempfile.mkdtemp(prefix="manciple-ha-"))
    made = Databases(folder, user)
    made.archive.mkdir()
    for path in (folder, made.archive):
        if user is not None:
            shutil.chown(path, user)
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)
