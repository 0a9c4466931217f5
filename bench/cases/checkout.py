"""An installation of any checkout of Manciple, started by its own commands: this process needs no Django for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from manciple.api import kubeconfig
from tests import services
from tests.e2e.processes import Process, answers, wait_for

#: Seconds that everything has to start.
PATIENCE = 60.0
#: The options of the units in deploy/systemd.
WORKER = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "INFO")
#: Statements are counted, and a checkpoint during a measurement would add whole pages to the log of one of two builds.
POSTGRESQL = {
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.max": "10000",
    "checkpoint_timeout": "1h",
    "max_wal_size": "8GB",
    "wal_keep_size": "2GB",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """An installation that is ready. roles: process -> what it is. postgresql, redis: URLs, "" where embedded."""

    name: str
    api: str
    token: str
    authority: Path
    roles: Mapping[int, str]
    postgresql: str = ""
    redis: str = ""


@contextmanager
def production(folder: Path, *, name: str, workers: int, without: str = "") -> Iterator[Running]:
    """PostgreSQL, Redis, an API process, beat and workers. without: guards that are left out (bench/without)."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        postgresql = stack.enter_context(services.postgresql(**POSTGRESQL))
        redis = stack.enter_context(services.redis_server())
        environment = _environment(home) | {
            "MANCIPLE_DATABASE_URL": postgresql.url,
            "MANCIPLE_REDIS_URL": redis.url,
        }
        if without:
            environment |= {
                "DJANGO_SETTINGS_MODULE": "without.settings",
                "MANCIPLE_BENCH_WITHOUT": without,
                "PYTHONPATH": str(folder / "bench"),
            }
        python, api, web = _python(folder), *(f"127.0.0.1:{services.free_port()}" for _ in range(2))
        _call([python, "manage.py", "migrate", "--verbosity", "0"], folder, environment)
        _call([python, "manage.py", "bootstrap", "--server", f"https://{api}"], folder, environment)
        celery = [python, "-m", "celery", "-A", "manciple"]
        commands = {"api": [python, "manage.py", "serve", "--api", api, "--web", web], "beat": [*celery, "beat"]}
        for number in range(1, workers + 1):
            commands[f"worker-{number}"] = [*celery, "worker", *WORKER, "--hostname", f"worker-{number}"]
        processes = {
            role: stack.enter_context(_process(command, folder, environment)) for role, command in commands.items()
        }
        wait_for("the API to be ready", lambda: answers(f"http://{web}/readyz"), timeout=PATIENCE)
        for number in range(1, workers + 1):
            processes[f"worker-{number}"].line(r"ready\.")
        roles = {process.pid: "workers" if role.startswith("worker") else role for role, process in processes.items()}
        yield Running(
            name=name,
            api=f"https://{api}",
            token=_token(home),
            authority=home / "ca.crt",
            roles=roles | {postgresql.pid: "postgresql", redis.pid: "redis"},
            postgresql=postgresql.url,
            redis=redis.url,
        )


@contextmanager
def embedded(folder: Path, *, name: str) -> Iterator[Running]:
    """`manage.py up`: everything in one process, on SQLite."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        api, web = (f"127.0.0.1:{services.free_port()}" for _ in range(2))
        addresses = ("--api", api, "--web", web, "--home", str(home))
        command = [_python(folder), "manage.py", "up", *addresses, "--nodes", "0", "--no-demo"]
        process = stack.enter_context(_process(command, folder, _environment(home)))
        process.line(r"Stop with Ctrl-C")
        yield Running(
            name=name,
            api=f"https://{api}",
            token=_token(home),
            authority=home / "ca.crt",
            roles={process.pid: "the process"},
        )


def _environment(home: Path) -> dict[str, str]:
    return {
        "DJANGO_SETTINGS_MODULE": "manciple.settings",
        "MANCIPLE_HOME": str(home),
        "MANCIPLE_SECRET_KEY": "of a benchmark, forty characters long....",
        "MANCIPLE_ENCRYPTION_KEYS": "of a benchmark and not a secret",
        "MANCIPLE_LOG_LEVEL": "WARNING",
        # All agents and clients come as the administrator here.
        "MANCIPLE_IDENTITY_RATE": "0",
    }


def _python(folder: Path) -> str:
    own = folder / ".venv" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def _token(home: Path) -> str:
    return kubeconfig.read_token((home / "kubeconfig").read_text()) or ""


@contextmanager
def _process(command: list[str], folder: Path, environment: Mapping[str, str]) -> Iterator[Process]:
    process = Process(command, env=environment, folder=folder, forked=False).start()
    try:
        yield process
    finally:
        if process.running:
            process.kill()


def _call(command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
