"""The guard beside a mirror (`manciple.mirror.guard`): checked, started, and kept running.

On PostgreSQL it is a process of its own (`guard_process`): within the mirror's, the threads that copy the cluster or
render pages would have the interpreter for a millisecond at each step of an answer. The mirror keeps the listening
socket, so a taken port is a refusal to start, and API servers that ask while the guard is started again wait for it.

With SQLite it is threads of the mirror: writers of two processes would wait for the database's file by trying again
and again, those of one have turns.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from prometheus_client.core import Metric

from manciple.api import certificates
from manciple.api.certificates import ServingCertificate
from manciple.mirror.client import Remote
from manciple.mirror.guard.options import ENFORCE, PATH, GuardOptions
from manciple.per_process import PerProcess
from manciple.processes.listeners import Address, AddressInUse, bind
from manciple.refusals import StartRefused
from manciple.store import sql
from manciple.telemetry import metrics, processes

log = logging.getLogger(__name__)

#: What a token may be: a part of the path of a webhook's Service, not to be guessed.
_TOKEN: Final = re.compile(r"[a-z0-9][-a-z0-9]{14,199}[a-z0-9]")
#: Seconds until a guard whose process has ended is started again, and that one which is to end may take.
AGAIN, STOPPED_WITHIN = 1.0, 10.0
GUARD_PROCESS: Final = (sys.executable, "-m", "manciple.processes.guard_process")

#: What the guard's process reported last.
_reported = PerProcess[Sequence[Metric]](lambda: ())
metrics.OnDemand(lambda: _reported.value)


class MirrorGuard:
    """Listens from the beginning. remote: one that gives up soon. folder: of the mirror's own certificate.

    arguments: of the mirror's command, which its process reads as well. Raises: StartRefused.
    """

    def __init__(self, options: GuardOptions, remote: Remote, *, folder: Path, arguments: Sequence[str] = ()) -> None:
        if (options.certificate is None) != (options.key is None):
            raise StartRefused("--guard-tls-cert and --guard-tls-key belong together")
        self._mode, self._remote, self._arguments = options.mode, remote, arguments
        try:
            address = Address.parse(options.listen)
            self._token = token_of(options)
            if not self._token and not address.is_loopback:
                raise StartRefused("--guard-token-file is required where the guard listens beyond loopback")
            self._certificate = certificate_of(options, folder)
            self._certificate.load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            self._listener = bind(address)
        except (ValueError, OSError, AddressInUse) as error:
            raise StartRefused(f"the guard cannot start: {error}") from error
        self._host = address.url_host

    @property
    def description(self) -> str:
        path = f"{PATH}/TOKEN" if self._token else PATH
        does = "refuses" if self._mode == ENFORCE else "only reports"
        return f"The guard {does} devices given twice: https://{self._host}:{self._listener.getsockname()[1]}{path}"

    @contextmanager
    def running(self) -> Iterator[None]:
        if sql.on_postgresql():
            with GuardProcess(self._listener, self._arguments).kept():
                yield
            return
        from manciple.mirror.guard import serving  # noqa: PLC0415 - its metrics are of the process that serves

        with serving.running(self._listener, self._certificate, self._remote, mode=self._mode, token=self._token):
            yield


class GuardProcess:
    """The guard as a process of its own, started again when it ends by itself."""

    def __init__(
        self, listener: socket.socket, arguments: Sequence[str], *, program: Sequence[str] = GUARD_PROCESS
    ) -> None:
        self._listener, self._arguments, self._program = listener, arguments, program
        #: guards the start and the stop of the process
        self._lock, self._stopping = threading.Lock(), threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        keeper = threading.Thread(target=self._keep, name="guard-process")
        keeper.start()
        try:
            yield
        finally:
            self._stop()
            keeper.join()

    @property
    def pid(self) -> int | None:
        """None while there is none."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def _keep(self) -> None:
        while (started := self._started()) is not None:
            process, reports = started
            with reports:
                for line in reports:
                    _reported.value = processes.unpacked(line)
            _reported.reset()
            status = process.wait()
            if not self._stopping.is_set():
                log.error("the process of the guard ended with status %d, and is started again", status)
            self._stopping.wait(AGAIN)

    def _started(self) -> tuple[subprocess.Popen[bytes], IO[bytes]] | None:
        """The process, and what it reports: a line each second. None once it is to end."""
        with self._lock:
            if self._stopping.is_set():
                return None
            reports, theirs = os.pipe()
            inherited = (self._listener.fileno(), theirs)
            # Imports as this process does, wherever that was started.
            path = os.pathsep.join(one for one in sys.path if one)
            try:
                self._process = process = subprocess.Popen(
                    [*self._program, *map(str, inherited), *self._arguments],
                    stdin=subprocess.PIPE,  # its end is the sign to stop, also where this process is killed
                    pass_fds=inherited,
                    env={**os.environ, "PYTHONPATH": path},
                )
            finally:
                os.close(theirs)
            return process, os.fdopen(reports, "rb")

    def _stop(self) -> None:
        with self._lock:
            self._stopping.set()
            process = self._process
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            process.wait(STOPPED_WITHIN)
        except subprocess.TimeoutExpired:
            log.warning("the process of the guard does not end, and is killed")
            process.kill()


def token_of(options: GuardOptions) -> str:
    """ "" for none. Raises: StartRefused, OSError."""
    if options.token is None:
        return ""
    token = options.token.read_text().strip()
    if not _TOKEN.fullmatch(token):
        raise StartRefused(f"{options.token} does not hold a token: 16 to 201 characters of a-z, 0-9 and -")
    return token


def certificate_of(options: GuardOptions, folder: Path) -> ServingCertificate:
    """Raises: OSError, CertificatesRefused."""
    if options.certificate is not None and options.key is not None:
        return ServingCertificate(options.certificate, options.key)
    own = certificates.ensure(folder)
    return ServingCertificate(own.certificate, own.key)
