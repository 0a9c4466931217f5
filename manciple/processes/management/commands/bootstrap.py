"""`manage.py bootstrap`: what a new production installation needs once: namespaces, an administrator, kubeconfig files.

Safe to run again: what exists is kept, and a kubeconfig with a valid token is not replaced.
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from manciple.api import certificates
from manciple.api.kubeconfig import Server
from manciple.processes import accounts, node_bootstrap
from manciple.processes.home import Home
from manciple.processes.standing import ensure_standing_objects


class Command(BaseCommand):
    """Writes HOME/kubeconfig, HOME/kubeconfig-user and HOME/nodes/NODE/kubeconfig."""

    help = "Create the namespaces, the administrator, and kubeconfig files for admin, user and the named nodes."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--server", required=True, metavar="URL", help="the API's URL, as clients reach it")
        parser.add_argument("--node", action="append", default=[], metavar="NAME", help="a node to create a token for")
        parser.add_argument("--ca", type=Path, metavar="FILE", help="the CA's certificate (default HOME/ca.crt)")

    def handle(self, *_args: Any, **options: Any) -> None:
        home = Home(Path(settings.HOME))
        ca_pem = options["ca"].read_text() if options["ca"] else certificates.ensure(home.path).ca_pem
        ensure_standing_objects()
        server = Server(url=options["server"], ca_pem=ca_pem)
        accounts.write_kubeconfigs(home, server=server, nodes=options["node"])
        node_bootstrap.ensure(server)
        told = accounts.how_to_sign_in(accounts.first_link(settings.PAGES_URL))
        self.stdout.write(f"kubeconfig: {home.kubeconfig}\nsign in:    {told}")
