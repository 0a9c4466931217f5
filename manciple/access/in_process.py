"""What the parts of the system may write: each has an identity, and that identity has roles like any other.

The scheduler and the controllers write in this process, past the API's door. So a rule of the writer asks for them: a
controller that writes what none of its roles allows gets the same 403 over which a client would stumble. Whoever came
through the API's door was asked there; who writes by a page is asked here. The installation itself is not asked, nor is
a member of `system:masters`.
"""

from __future__ import annotations

from manciple.access import authorization
from manciple.access.attributes import Attributes, on_object
from manciple.store import hooks
from manciple.store.hooks import Write
from manciple.store.writer import Writer
from manciple.wire.identity import MASTERS

#: The verbs of requests that would do the same; any of them suffices.
_VERBS = {"CREATE": ("create",), "UPDATE": ("update", "patch"), "DELETE": ("delete",)}
#: Of the API's pods/NAME/binding, which creates a Binding.
_BINDING = "binding"


def register() -> None:
    hooks.register_rule(check_writer, operations={"CREATE", "UPDATE", "DELETE"})


def check_writer(_writer: Writer, write: Write) -> None:
    """Raises: Forbidden."""
    identity = write.identity
    if identity.admitted or MASTERS in identity.groups:
        return
    verbs = ("create",) if write.subresource == _BINDING else _VERBS[write.operation]
    if not any(authorization.decide(identity, _wanted(verb, write)).allowed for verb in verbs):
        authorization.demand(identity, _wanted(verbs[0], write))


def _wanted(verb: str, write: Write) -> Attributes:
    """What the write wants, in the words of a request that would do the same."""
    meta = (write.new or write.old).metadata
    return on_object(verb, write.kind, namespace=meta.namespace, name=meta.name, subresource=write.subresource)
