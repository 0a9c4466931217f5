"""What somebody asks to do, as the authorizers see it, and how a refusal reads. PURE.

Source: apiserver/pkg/authorization/authorizer/interfaces.go, .../endpoints/handlers/responsewriters/errors.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from manciple.wire.errors import Forbidden
from manciple.wire.identity import Identity
from manciple.wire.registry import Kind
from manciple.wire.selectors import FieldSelector, ParsedLabelSelector

ANY_FIELDS, ANY_LABELS = FieldSelector(), ParsedLabelSelector()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """One thing to be allowed: `verb` on a resource, or on a path that is no resource (then `path` is set).

    verb: get, list, watch, create, update, patch, delete, deletecollection, impersonate, escalate, bind…; for a path
    the HTTP method in lower case. namespace "" means the cluster's scope, or all namespaces; name "" the collection.
    fields, labels: what a list, watch or deletecollection is restricted to.
    """

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    fields: FieldSelector = ANY_FIELDS
    labels: ParsedLabelSelector = ANY_LABELS

    @property
    def combined(self) -> str:
        """`pods` or `pods/status`, as the rules of roles name it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def on_object(verb: str, kind: Kind, *, namespace: str, name: str, subresource: str = "") -> Attributes:
    """`verb` on one object of a kind."""
    return Attributes(
        verb=verb,
        group=kind.group,
        version=kind.version,
        resource=kind.plural,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )


@dataclass(frozen=True, slots=True)
class Decision:
    """reason: why it is allowed (which binding of which role), or what an authorizer that refuses has to say of it.

    denied: refused whatever later authorizers say.
    """

    allowed: bool
    reason: str = ""
    denied: bool = False


def refusal(identity: Identity, wanted: Attributes, reason: str = "") -> Forbidden:
    """The 403 that tells `identity` that it may not do `wanted`."""
    because = f": {reason}" if reason else ""
    if wanted.path:
        return Forbidden(f'forbidden: User "{identity.name}" cannot {wanted.verb} path "{wanted.path}"{because}')
    qualified = f"{wanted.resource}.{wanted.group}" if wanted.group else wanted.resource
    subject = f'{qualified} "{wanted.name}"' if wanted.name else qualified
    scope = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
    details = {"name": wanted.name, "group": wanted.group, "kind": wanted.resource}
    return Forbidden(
        f'{subject} is forbidden: User "{identity.name}" cannot {wanted.verb} resource "{wanted.combined}" in API '
        f'group "{wanted.group}" {scope}{because}',
        details={key: text for key, text in details.items() if text},
    )
