"""Who may come in: the dashboard's administrator, and tokens with kubeconfig files for admin, user and nodes.

The administrator sets their password by a link, which is made anew at each start until they have (`first_link`).

Made once; a later start on the same home finds them again. A kubeconfig whose token the database no longer knows (a
removed database, a revoked token) is written anew.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import CommandError

from manciple import declared_settings as declared
from manciple import layout
from manciple.access.authentication import tokens
from manciple.access.authentication.chain import is_closed
from manciple.access.bootstrap import let_edit
from manciple.access.invitations import invite
from manciple.api import kubeconfig
from manciple.api.kubeconfig import Server
from manciple.declared_settings import read
from manciple.processes.home import Home, write_private
from manciple.wire.identity import AUTHENTICATED, NODE_PREFIX, NODES, check_node_name

ADMIN = "admin"
USER = "user"


def serves_pages(home: Home, url: str) -> None:
    """The dashboard is served there: unless a setting says where browsers reach it, links lead there, also those that
    other commands print.
    """
    with suppress(OSError):  # of a home that cannot be written to, links lead where the setting says
        write_private(home.pages_url, f"{url}\n")
    settings.PAGES_URL = read(declared.PAGES_URL, default=url)


def first_link(web_url: str) -> str:
    """The link by which the dashboard's administrator sets their password; "" where that has happened, or where their
    account is closed.

    web_url: where the dashboard is reached.
    """
    known = get_user_model().objects.filter(username=ADMIN).first()
    if known is not None and (known.has_usable_password() or not known.is_active):
        return ""
    return web_url.rstrip("/") + invite(ADMIN, administers=True).path


def how_to_sign_in(link: str) -> str:
    """What the person at the terminal is told. link: of `first_link`."""
    if is_closed(ADMIN):
        return (
            f"as another administrator: the account {ADMIN} is closed, and HOME/kubeconfig with it\n"
            f"             (nobody left: {layout.COMMAND} invite NAME --administrator)"
        )
    if not link:
        return f"as {ADMIN}, with the password that was set (forgotten: {layout.COMMAND} invite {ADMIN})"
    return f"{link}\n             sets the password of {ADMIN}; it works once, within {link_hours():g} hours"


def link_hours() -> float:
    """Hours for which such a link is good."""
    return settings.PASSWORD_RESET_TIMEOUT / 3600


def server_named(url: str | None) -> Server:
    """The API as HOME/kubeconfig names it, at `url` where one is given. Raises: CommandError."""
    own = Home(Path(settings.HOME)).kubeconfig
    known = kubeconfig.read_server(own.read_text()) if own.exists() else None
    if url is None and known is None:
        raise CommandError(f"{own} names no server: give --server URL, as clients reach the API")
    return Server(url=url or (known.url if known else ""), ca_pem=known.ca_pem if known else "")


def node_identity(node: str) -> tuple[str, tuple[str, ...]]:
    """The name and groups that Kubernetes gives a node. Raises: ValueError for an invalid name."""
    check_node_name(node)
    return f"{NODE_PREFIX}{node}", (NODES, AUTHENTICATED)


def write_kubeconfigs(home: Home, *, server: Server, nodes: list[str]) -> None:
    """One file each for the administrator, an ordinary user, and every node.

    The user may edit what is in the namespace `default`, and look at nodes, devices and classes. What an administrator
    takes away of this stays away, for as long as the user's token does.
    """
    write_kubeconfig(home.kubeconfig, server=server, name=ADMIN, groups=("system:masters", "system:authenticated"))
    if write_kubeconfig(home.kubeconfig_user, server=server, name=USER, groups=("system:authenticated",)):
        let_edit(USER, "default")
    for node in nodes:
        name, groups = node_identity(node)
        write_kubeconfig(home.node_kubeconfig(node), server=server, name=name, groups=groups)


def write_kubeconfig(path: Path, *, server: Server, name: str, groups: tuple[str, ...]) -> bool:
    """One file for `name`, made where there is none that still holds. Returns whether its token is a new one.

    While the account of that name is closed there is no new one: the file then only says where the API is.
    """
    if is_closed(name):
        write_private(path, kubeconfig.render(server, user=name))
        return False
    kept = _kept_token(path, name)
    write_private(path, kubeconfig.render(server, user=name, token=kept or tokens.issue(name, groups)))
    return kept is None


def _kept_token(path: Path, name: str) -> str | None:
    """The token in an existing kubeconfig, if the database still knows it as `name`'s."""
    token = kubeconfig.read_token(path.read_text()) if path.exists() else None
    known = tokens.identify(token) if token else None
    return token if known and known.name == name else None
