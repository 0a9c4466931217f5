"""Where a mirror listens and whom it lets in: its owner on a laptop, or every user of the cluster that it runs in.

entrance = Laptop(port=0, acts=False)                       # loopback, and a link with a secret
entrance = InCluster(address, reviews=..., tls=None)        # one port for pages and API; the cluster knows its users
entrance.naming, entrance.rights(remote, "default")         # of what pages do in the cluster, where they act
url = entrance.bind(home)       # before anything slow; raises StartRefused
link = entrance.let_in(home)    # after the tables are there
entrance.serve_by(listeners)
"""

from __future__ import annotations

import contextlib
import getpass
import secrets
import socket
from collections.abc import Sequence
from typing import Final, Protocol
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.urls import reverse

from manciple.access import cluster_users
from manciple.access.mirrored import OWNERS, ClusterRights
from manciple.api import certificates
from manciple.api.kubeconfig import Server
from manciple.mirror.client import Remote
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.naming import Naming, impersonating, not_impersonated, own_credential
from manciple.mirror.own_rights import OwnRights
from manciple.mirror.reviews import Reviews
from manciple.processes import accounts
from manciple.processes.home import Home
from manciple.processes.listeners import Address, AddressInUse, Listeners, Tls, bind
from manciple.refusals import StartRefused
from manciple.wire.identity import AUTHENTICATED

LOOPBACK: Final = "127.0.0.1"
#: Ports that are tried where none is named, and the last one is taken.
PORTS: Final = range(8010, 8040)


class Entrance(Protocol):
    #: whether pages change the cluster, and in whose name
    acts: bool

    @property
    def naming(self) -> Naming: ...

    def rights(self, remote: Remote, namespace: str) -> ClusterRights:
        """Of the owner, whose credential it is; of others their cluster is asked anyway."""
        ...

    def lacks(self, remote: Remote) -> Sequence[str]:
        """What it needs for that and does not have, in lines for the terminal. It asks the cluster."""
        ...

    def bind(self, home: Home) -> str:
        """Where the pages are. Raises: StartRefused."""
        ...

    def let_in(self, home: Home) -> str:
        """The path of a link that signs somebody in; "" where they have to show more."""
        ...

    def serve_by(self, listeners: Listeners) -> None: ...

    def words(self, url: str) -> Sequence[str]:
        """Lines for the terminal. url: of the pages, or the link."""
        ...


class Laptop:
    """port: 0 for the last one, or any."""

    def __init__(self, *, port: int, acts: bool = False) -> None:
        self._port, self.acts, self.naming = port, acts, own_credential

    def rights(self, remote: Remote, namespace: str) -> ClusterRights:
        return OwnRights(remote, named=self.naming, namespace=namespace)

    def lacks(self, remote: Remote) -> Sequence[str]:  # noqa: ARG002 - pages offer what the owner may do
        return ()

    def bind(self, home: Home) -> str:
        self._web, self._api = self._bound(home), bind(Address(LOOPBACK, 0))
        settings.API_URL = f"https://{LOOPBACK}:{self._api.getsockname()[1]}"
        return f"http://{LOOPBACK}:{self._web.getsockname()[1]}"

    def _bound(self, home: Home) -> socket.socket:
        """Raises: StartRefused where the port that was named is taken."""
        if self._port:
            try:
                return bind(Address(LOOPBACK, self._port))
            except AddressInUse as error:
                raise StartRefused(f"{error}. Choose another with --port N.") from error
        last = settings.PAGES_URL.rpartition(":")[2] if home.pages_url.is_file() else ""
        for port in (*([int(last)] if last.isdecimal() else []), *PORTS):
            with contextlib.suppress(AddressInUse):
                return bind(Address(LOOPBACK, port))
        return bind(Address(LOOPBACK, 0))

    def let_in(self, home: Home) -> str:
        """The owner, who signs in by the link; HOME/kubeconfig is theirs, too."""
        try:
            name = getpass.getuser()
        except (KeyError, OSError):  # a container's user without a name
            name = "owner"
        person, _ = get_user_model()._default_manager.get_or_create(username=name)
        person.groups.add(Group.objects.get_or_create(name=OWNERS)[0])
        self._files = certificates.ensure(home.path)
        server = Server(url=settings.API_URL, ca_pem=self._files.ca_pem)
        accounts.write_kubeconfig(home.kubeconfig, server=server, name=name, groups=(OWNERS, AUTHENTICATED))
        settings.MIRROR_OWNER, settings.MIRROR_KEY = name, secrets.token_urlsafe(32)
        return f"{reverse('enter')}?key={settings.MIRROR_KEY}"

    def serve_by(self, listeners: Listeners) -> None:
        listeners.add(self._web)
        tls = Tls(certificate=self._files.certificate, key=self._files.key, clients=settings.CLIENT_CA_FILE)
        listeners.add(self._api, tls=tls)

    def words(self, url: str) -> Sequence[str]:
        does = f"What you do on its pages is done in {settings.MIRROR_OF}" if self.acts else "Its pages only read"
        return (
            f"{does}, and it listens on this machine alone.",
            "",
            f"  {url}",
            "",
            "The link signs you in until the mirror stops; so it is for you alone.",
        )


class InCluster:
    """tls: of the one port; without, something in front of it ends TLS."""

    def __init__(self, address: Address, *, reviews: Reviews, tls: Tls | None, acts: bool = False) -> None:
        self._address, self._reviews, self._tls = address, reviews, tls
        self.acts, self.naming = acts, impersonating

    def rights(self, remote: Remote, namespace: str) -> ClusterRights:  # noqa: ARG002 - nobody owns it
        return ClusterRights()

    def lacks(self, remote: Remote) -> Sequence[str]:
        if not self.acts:
            return ()
        try:
            missing = not_impersonated(remote)
        except RemoteFailure as failure:
            return (f"Whether the mirror may impersonate its users is not known: {failure}",)
        if not missing:
            return ()
        return (
            f"The mirror may not impersonate every one of these, so some users cannot act: {', '.join(missing)}.",
            "Its service account needs the ClusterRole of deploy/kubernetes/mirror-act.",
        )

    def bind(self, home: Home) -> str:  # noqa: ARG002 - nothing of it is needed here
        try:
            self._listener = bind(self._address)
        except AddressInUse as error:
            raise StartRefused(f"{error}. Choose another address with --listen HOST:PORT.") from error
        host = f"{self._address.url_host}:{self._listener.getsockname()[1]}"
        settings.API_URL = url = f"{'https' if self._tls else 'http'}://{host}"
        return url

    def let_in(self, home: Home) -> str:  # noqa: ARG002 - as above
        """Users of the cluster, under the name of the settings, or any: cookies count for the name that they are of."""
        known = urlsplit(settings.PAGES_URL)
        if settings.PAGES_URL != settings.API_URL and known.hostname:
            settings.ALLOWED_HOSTS.append(known.hostname)
            settings.CSRF_TRUSTED_ORIGINS = [f"{known.scheme}://{known.netloc}"]
        elif self._address.listens_everywhere:
            settings.ALLOWED_HOSTS.append("*")
        cluster_users.use(self._reviews)
        return ""

    def serve_by(self, listeners: Listeners) -> None:
        listeners.add(self._listener, tls=self._tls)

    def words(self, url: str) -> Sequence[str]:
        plain = not url.startswith("https:") and not self._address.is_loopback
        does = f"What its users do is done in {settings.MIRROR_OF}" if self.acts else "Its pages only read"
        return (
            f"{does}. Users sign in at {url} with a token of the cluster.",
            *(["Tokens are sent in the clear unless something in front of it ends TLS."] if plain else []),
        )
