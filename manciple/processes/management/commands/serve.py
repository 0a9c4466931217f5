"""`manage.py serve`: an API process with the dashboard, for production. Any number of them may run.

Workers (`manciple worker`) are processes of their own, or with `--with-worker` threads of this one: the smallest
installation is one such process and PostgreSQL. Node agents are processes of their own.
"""

from __future__ import annotations

import contextlib
import logging
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from manciple import layout, memory
from manciple.api import certificates
from manciple.api.streams import close_streams
from manciple.asgi import application
from manciple.audit import trail
from manciple.controllers import coordination
from manciple.processes import accounts, keys
from manciple.processes.home import Home
from manciple.processes.listeners import Address, AddressInUse, Listeners, Tls, bind, warm
from manciple.store.event_log import Tail
from manciple.telemetry import processes

log = logging.getLogger(__name__)


class Command(BaseCommand):
    """Listens until SIGINT or SIGTERM. The database must be migrated (`manage.py migrate`, `manage.py bootstrap`)."""

    help = "Serve the API (TLS) and the dashboard from this process."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--api", default="0.0.0.0:6443", metavar="HOST:PORT", help="where the API listens (TLS)")
        parser.add_argument(
            "--web", default="", metavar="HOST:PORT", help="where the dashboard listens, behind a proxy"
        )
        parser.add_argument(
            "--tls-cert", type=Path, metavar="FILE", help="certificate chain; created in HOME if absent"
        )
        parser.add_argument("--tls-key", type=Path, metavar="FILE", help="its key")
        parser.add_argument(
            "--host", action="append", default=[], help="a name that the created certificate is valid for"
        )
        parser.add_argument("--with-worker", action="store_true", help="work as well, as `worker` does")
        parser.add_argument(
            "--with-beat", action="store_true", help="does nothing: workers keep the intervals themselves"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        keys.check_sealed()
        tls = _tls(options["tls_cert"], options["tls_key"], hosts=options["host"])
        listeners = Listeners(application, on_stop=close_streams)
        try:
            listeners.add(bind(Address.parse(options["api"])), tls=tls)
            if options["web"]:
                web = Address.parse(options["web"])
                listener = bind(web)
                listeners.add(listener)
                url = f"http://{web.url_host}:{listener.getsockname()[1]}"
                accounts.serves_pages(Home(Path(settings.HOME)), url)
        except (AddressInUse, ValueError) as error:
            raise CommandError(str(error)) from error
        memory.settle()
        if options["web"]:
            warm()
        if not settings.REDIS_URL and coordination.is_held(coordination.LEADERSHIP):
            log.warning(
                "another process works on this database: while MANCIPLE_REDIS_URL is not set, they learn of each "
                "other's writes a second later, by reading the log"
            )
        role: processes.Role = "embedded" if options["with_worker"] else "api"
        processes.begin(role, version=layout.version(), redis_url=settings.REDIS_URL, **settings.TRACES)
        try:
            with _working() if options["with_worker"] else contextlib.nullcontext():
                listeners.run()
        finally:
            processes.end()
            Tail.instance().stop()
            trail.close()


def _working() -> contextlib.AbstractContextManager[None]:
    """A worker in threads of this process."""
    from manciple.processes import embedded_worker  # noqa: PLC0415 - other API processes need no Celery

    return embedded_worker.running()


def _tls(certificate: Path | None, key: Path | None, *, hosts: list[str]) -> Tls:
    if (certificate is None) != (key is None):
        raise CommandError("--tls-cert and --tls-key belong together")
    clients: Path = settings.CLIENT_CA_FILE
    # Beside a certificate of the operator's own, the authority's key may be kept with the workers alone.
    if clients.parent == Path(settings.HOME) and not (certificate and clients.exists()):
        certificates.ensure_authority(clients.parent)
    if certificate and key:
        return Tls(certificate=certificate, key=key, clients=clients)
    made = certificates.ensure(Path(settings.HOME), hosts=hosts)
    return Tls(certificate=made.certificate, key=made.key, clients=clients)
