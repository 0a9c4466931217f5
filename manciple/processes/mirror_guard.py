"""The guard beside a mirror (`manciple.mirror.guard`): what it is made of, started and stopped in order."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from manciple.api import certificates
from manciple.api.certificates import ServingCertificate
from manciple.mirror.client import Remote
from manciple.mirror.guard import keeping
from manciple.mirror.guard.judging import Guard, ask_cluster, knowledge
from manciple.mirror.guard.listener import PATH, GuardListener
from manciple.mirror.guard.options import ENFORCE, GuardOptions
from manciple.processes.listeners import Address, AddressInUse, bind
from manciple.refusals import StartRefused

#: What a token may be: a part of the path of a webhook's Service, not to be guessed.
_TOKEN: Final = re.compile(r"[a-z0-9][-a-z0-9]{14,199}[a-z0-9]")


class MirrorGuard:
    """Listens from the beginning. remote: one that gives up soon. folder: of the mirror's own certificate.

    Raises: StartRefused.
    """

    def __init__(self, options: GuardOptions, remote: Remote, *, folder: Path) -> None:
        if (options.certificate is None) != (options.key is None):
            raise StartRefused("--guard-tls-cert and --guard-tls-key belong together")
        self._guard = Guard(enforce=options.mode == ENFORCE, ask=ask_cluster(remote), know=knowledge)
        try:
            address = Address.parse(options.listen)
            token = options.token.read_text().strip() if options.token is not None else ""
            if options.token is not None and not _TOKEN.fullmatch(token):
                raise StartRefused(f"{options.token} does not hold a token: 16 to 201 characters of a-z, 0-9 and -")
            if not token and not address.is_loopback:
                raise StartRefused("--guard-token-file is required where the guard listens beyond loopback")
            serving = ServingCertificate(*self._files(options, folder))
            self._listener = GuardListener(bind(address), serving, self._guard, token=token)
        except (ValueError, OSError, AddressInUse) as error:
            raise StartRefused(f"the guard cannot start: {error}") from error
        self._host, self._has_token = address.url_host, bool(token)

    def _files(self, options: GuardOptions, folder: Path) -> tuple[Path, Path]:
        if options.certificate is not None and options.key is not None:
            return options.certificate, options.key
        own = certificates.ensure(folder)
        return own.certificate, own.key

    @property
    def description(self) -> str:
        path = f"{PATH}/TOKEN" if self._has_token else PATH
        does = "refuses" if self._guard.mode == ENFORCE else "only reports"
        return f"The guard {does} devices given twice: https://{self._host}:{self._listener.port}{path}"

    @contextmanager
    def running(self) -> Iterator[None]:
        stopping = threading.Event()
        keeper = threading.Thread(
            target=partial(keeping.run, self._guard, stopping, ready=self._listener.ready), name="guard-keeper"
        )
        self._listener.start()
        keeper.start()
        try:
            yield
        finally:
            self._listener.stop()
            stopping.set()
            keeper.join()
            self._guard.close()
