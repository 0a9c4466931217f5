"""Who asks: the answer of authentication, the author of every write, and the argument of every rule on both. PURE."""

from __future__ import annotations

from dataclasses import dataclass, field

from manciple.wire.limits import short_text_cache
from manciple.wire.validation import check_dns_subdomain

#: Every identity that showed a valid token belongs to this group.
AUTHENTICATED = "system:authenticated"
#: Whoever showed no credential is this user, in this group, and may do what is granted to them.
ANONYMOUS_USER, UNAUTHENTICATED = "system:anonymous", "system:unauthenticated"
#: Every service account belongs to this group, and to one of its namespace.
SERVICE_ACCOUNTS = "system:serviceaccounts"
#: Members may do everything.
MASTERS = "system:masters"
#: Machines that are to become nodes, and have nothing but a bootstrap token.
BOOTSTRAPPERS = "system:bootstrappers"
#: Everybody who may sign in to the pages, and those of them whom an administrator lets see every namespace.
PEOPLE, VIEWERS = "manciple:people", "manciple:viewers"
#: Begins the name of a group whose members work in the namespace that the rest of it names.
NAMESPACE_GROUP = "namespace:"
#: The agents of nodes, each under the name "system:node:NAME".
NODES = "system:nodes"
NODE_PREFIX = "system:node:"
_ACCOUNT_PREFIX = "system:serviceaccount:"
#: Where the control plane's own service accounts are.
SYSTEM_NAMESPACE = "kube-system"


@dataclass(frozen=True, slots=True)
class Identity:
    """A name ("admin", "system:node:n1") and the groups it belongs to ("system:masters", "system:authenticated").

    uid: of the service account, where it is one. extra: what else its credential says, each key once, such as the node
    that a token is bound to.
    admitted: what it is about to do was allowed at the API's door, so nobody needs to ask again on the way. No part of
    who it is.
    remote: a user of the cluster that is mirrored here, whatever they are called: only that cluster knows their rights.
    """

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    admitted: bool = field(default=False, compare=False, repr=False)
    remote: bool = False

    def let_in(self) -> Identity:
        """The same, once it was allowed to do what it is about to do."""
        return Identity(self.name, self.groups, self.uid, self.extra, admitted=True, remote=self.remote)

    def extras(self, key: str) -> tuple[str, ...]:
        """The values of one extra; () where the credential does not say."""
        return next((values for known, values in self.extra if known == key), ())

    @property
    def is_authenticated(self) -> bool:
        """What DRF asks of a user; an identity only exists once a token was recognised."""
        return True


def service_account_name(namespace: str, name: str) -> str:
    """The user that a service account is (upstream: apiserver/pkg/authentication/serviceaccount/util.go)."""
    return f"{_ACCOUNT_PREFIX}{namespace}:{name}"


def account_of(user: str) -> tuple[str, str] | None:
    """(namespace, name) of the service account that `user` is; None for any other user."""
    namespace, separator, name = user.removeprefix(_ACCOUNT_PREFIX).partition(":")
    is_account = user.startswith(_ACCOUNT_PREFIX) and namespace and separator and name and ":" not in name
    return (namespace, name) if is_account else None


def node_of(user: str) -> str | None:
    """The node whose agent `user` is; None for any other user.

    Raises: ValueError if the rest of the name is not a valid node name. Node names become paths on the node.
    """
    if not user.startswith(NODE_PREFIX):
        return None
    name = user.removeprefix(NODE_PREFIX)
    check_node_name(name)
    return name


def check_node_name(name: str) -> None:
    """Raises: ValueError."""
    if wrong := check_dns_subdomain(name):
        raise ValueError(f'invalid node name "{name}": {"; ".join(wrong)}')


#: The names of the scheduler, the controllers and the installation itself begin so.
CONTROL_PLANE = ("system:kube-", "system:manciple", f"{_ACCOUNT_PREFIX}{SYSTEM_NAMESPACE}:")


def is_control_plane(user: str) -> bool:
    """Whether this user is the scheduler, a controller or the installation itself."""
    return user.startswith(CONTROL_PLANE)


def account_groups(namespace: str) -> tuple[str, ...]:
    """The groups of the service accounts of a namespace."""
    return (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}")


def service_account(namespace: str, name: str) -> Identity:
    """The identity of a service account."""
    return Identity(service_account_name(namespace, name), (*account_groups(namespace), AUTHENTICATED))


def controller(name: str) -> Identity:
    """The identity under which a controller of the control plane writes; names are those of kube-controller-manager."""
    return service_account(SYSTEM_NAMESPACE, name)


#: Bytes of the name of a manager of fields: it is in every document that the manager writes.
MANAGER_MAX = 128
#: The manager of what controllers write: upstream they are one program.
_CONTROLLERS = "kube-controller-manager"


def manager_of(identity: Identity) -> str:
    """The manager of the fields that somebody writes without naming one."""
    return _manager_named(identity.name)


@short_text_cache(512)
def _manager_named(name: str) -> str:
    if name.startswith(f"{_ACCOUNT_PREFIX}{SYSTEM_NAMESPACE}:"):
        return _CONTROLLERS
    return name.removeprefix("system:").encode(errors="replace")[:MANAGER_MAX].decode(errors="ignore")


#: The installation itself: migrations, demo data, whatever no person and no controller asked for.
SYSTEM = Identity("system:manciple", (MASTERS, AUTHENTICATED))
ANONYMOUS = Identity(ANONYMOUS_USER, (UNAUTHENTICATED,))
SCHEDULER = Identity("system:kube-scheduler", (AUTHENTICATED,))
