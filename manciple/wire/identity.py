"""Who asks: the answer of authentication, the author of every write, and the argument of every rule on both. PURE."""

from __future__ import annotations

from dataclasses import dataclass

#: Every identity that showed a valid token belongs to this group.
AUTHENTICATED = "system:authenticated"
#: Members may do everything.
MASTERS = "system:masters"
#: The agents of nodes, each under the name "system:node:NAME".
NODES = "system:nodes"
#: Where the control plane's own service accounts are.
SYSTEM_NAMESPACE = "kube-system"


@dataclass(frozen=True, slots=True)
class Identity:
    """A name ("admin", "system:node:n1") and the groups it belongs to ("system:masters", "system:authenticated").

    uid: of the service account, where it is one. extra: what else its credential says, each key once, such as the node
    that a token is bound to.
    """

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def extras(self, key: str) -> tuple[str, ...]:
        """The values of one extra; () where the credential does not say."""
        return next((values for known, values in self.extra if known == key), ())

    @property
    def is_authenticated(self) -> bool:
        """What DRF asks of a user; an identity only exists once a token was recognised."""
        return True


def service_account(namespace: str, name: str) -> Identity:
    """The identity of a service account (upstream: apiserver/pkg/authentication/serviceaccount/util.go)."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return Identity(f"system:serviceaccount:{namespace}:{name}", groups)


def controller(name: str) -> Identity:
    """The identity under which a controller of the control plane writes; names are those of kube-controller-manager."""
    return service_account(SYSTEM_NAMESPACE, name)


#: The installation itself: migrations, demo data, whatever no person and no controller asked for.
SYSTEM = Identity("system:manciple", (MASTERS, AUTHENTICATED))
SCHEDULER = Identity("system:kube-scheduler", (AUTHENTICATED,))
