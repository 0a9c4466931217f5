"""What a driver's service account may do: publish its driver's devices on its node, and read its pods' claims.

A driver is a service account that a role lets create ResourceSlices. RBAC cannot tie it to a node or to a driver name.
This does, by two things that the account cannot choose: the node that its token is bound to, and the names in its
roles' rules for `resourceclaims/driver` (as in `claims.access.claim_status`).

    slices            create, update, delete: those of the token's node, with "associated-node:update" or "…:patch" on
                      `resourceclaims/driver` for `spec.driver`; with "arbitrary-node:…" all of that driver
    resourceclaims    one by its name, that a pod of the token's node names; with "arbitrary-node:…" as RBAC says

Slices are checked for every service account. Claims are the authorizer's: admission never sees a list or a watch.
`MANCIPLE_DRIVER_RESTRICTION=0` turns all of this off, as in Kubernetes, where charts bring a policy for the first half.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings

from claims.access.claim_status import NODE_NAME
from claims.access.node_authorizer import NODE_SLICES, is_related
from claims.access.node_restriction import SLICES, why_not_in_pool
from inventory.drafts.structured.values import NodeResourceSlice
from inventory.kinds.devices import ResourceSlice
from manciple.access import authorization, rbac
from manciple.access.attributes import Attributes, Decision
from manciple.access.kinds.policy_rules import CompiledRules, places_of
from manciple.api import first_stage
from manciple.store.hooks import Write
from manciple.wire.errors import Forbidden
from manciple.wire.identity import Identity, account_of

GROUP = "resource.k8s.io"
_OWN_NODE = ("associated-node:update", "associated-node:patch")
_ANY_NODE = ("arbitrary-node:update", "arbitrary-node:patch")
_CREATE_SLICES = Attributes(verb="create", group=GROUP, version="v1", resource="resourceslices")


def register() -> None:
    authorization.register_authorizer("driver", authorize)
    # Neither the driver nor the node of a slice ever changes, so the transaction has nothing left to check.
    first_stage.register_check(check_slice, resources=(SLICES, NODE_SLICES), first=True)


def node_of_token(identity: Identity) -> str:
    """The node that a service account's token is bound to; "" if it is bound to none."""
    nodes = identity.extras(NODE_NAME)
    return nodes[0] if len(nodes) == 1 else ""


# Slices ---------------------------------------------------------------------------------------------------------------


def check_slice(write: Write) -> None:
    """Raises: Forbidden for a slice of another node or driver."""
    if account_of(write.identity.name) is None or not settings.DRIVER_RESTRICTION:
        return
    if why := _slice_refusal(write):
        meta = (write.old if write.new is None else write.new).metadata
        raise Forbidden.of(write.kind.resource, meta.name or meta.generate_name, why)


def _slice_refusal(write: Write) -> str:
    published: Any = write.new if write.old is None else write.old
    driver, node = _driver_and_node(published)
    if write.new is not None and _driver_and_node(write.new) != (driver, node):
        return ""  # validation refuses to change either
    if _may_report(write.identity, driver, _ANY_NODE):
        return ""
    own = node_of_token(write.identity)
    if not own or node != own:
        where = f'on node "{node}"' if node else "that are not on a single node"
        bound = f'bound to node "{own}"' if own else "not bound to a node"
        return f"{_requires('arbitrary-node:update', driver)} to write slices {where}: the token is {bound}"
    if not _may_report(write.identity, driver, _OWN_NODE):
        return f"{_requires('associated-node:update', driver)} to write slices of that driver"
    if write.old is None and isinstance(write.new, ResourceSlice):
        return why_not_in_pool(own, write.new)
    return ""


def _driver_and_node(published: Any) -> tuple[str, str]:
    spec = published.spec
    driver = spec.driver_name if isinstance(published, NodeResourceSlice) else spec.driver
    return driver, spec.node_name or ""


def _requires(verb: str, driver: str) -> str:
    return f'requires resource="resourceclaims/driver", resourceName="{driver}", verb="{verb}" permission'


def _may_report(identity: Identity, driver: str, verbs: tuple[str, ...]) -> bool:
    return any(
        authorization.decide(
            identity,
            Attributes(
                verb=verb, group=GROUP, version="v1", resource="resourceclaims", subresource="driver", name=driver
            ),
        ).allowed
        for verb in verbs
    )


# Claims ---------------------------------------------------------------------------------------------------------------


def authorize(identity: Identity, wanted: Attributes) -> Decision:
    """The authorizer; register it before RBAC's. It denies or has no opinion."""
    is_claim = (wanted.group, wanted.resource) == (GROUP, "resourceclaims") and wanted.subresource in ("", "status")
    if not is_claim or wanted.verb == "create":
        return Decision(False)
    if account_of(identity.name) is None or not settings.DRIVER_RESTRICTION:
        return Decision(False)
    if not rbac.authorize(identity, _CREATE_SLICES).allowed or _reports_anywhere(identity, wanted.namespace):
        return Decision(False)
    why = _claim_refusal(node_of_token(identity), wanted)
    return Decision(False, f"a driver can only access claims of its node's pods: {why}" if why else "", bool(why))


def _claim_refusal(node: str, wanted: Attributes) -> str:
    if not node:
        return "the token is not bound to a node"
    if not wanted.name or not wanted.namespace:
        return "only single claims by their name"
    if is_related(node, (f"resourceclaims.{GROUP}", wanted.namespace, wanted.name)):
        return ""
    return f"no pod on node '{node}' names this one"


def _reports_anywhere(identity: Identity, namespace: str) -> bool:
    """Whether roles let it report on devices of any driver wherever they are: then it needs claims of other nodes."""
    rules = CompiledRules(rbac.known_rules(identity, namespace).rules)
    wanted = Attributes(verb="", group=GROUP, resource="resourceclaims", subresource="driver")
    verbs = {verb for place in places_of(wanted) for verb in rules.resources.get(place, ())}
    return not verbs.isdisjoint({*_ANY_NODE, "*"})
