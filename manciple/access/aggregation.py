"""ClusterRoles that gather their rules from others: admin, edit and view, and whatever an administrator makes so.

Their rules are written by the system: at its start, and by a controller whenever a ClusterRole is written. Roles that
gather may gather from each other (admin from edit from view), so it is worked out in as many rounds as it takes.
Source: pkg/controller/clusterroleaggregation/clusterroleaggregation_controller.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from manciple.access import rbac
from manciple.access.kinds import roles
from manciple.access.kinds.policy_rules import gathered
from manciple.access.kinds.roles import ClusterRole
from manciple.store import objects
from manciple.store.objects import Writer
from manciple.wire.identity import controller

#: Who writes (upstream: the service account of that name in kube-controller-manager).
IDENTITY = controller("clusterrole-aggregation-controller")


def reconcile() -> int:
    """Returns how many roles were written."""
    with rbac.FOLLOWER.view() as view:
        stored = view.cluster_roles()
    if not outdated(stored):
        return 0
    with objects.writing(identity=IDENTITY) as writer:
        return gather(writer)


def gather(writer: Writer) -> int:
    """Write what is out of date by now; returns how many roles that were."""
    stored = [role for role in writer.list(roles.CLUSTER_ROLE) if isinstance(role, ClusterRole)]
    following = outdated(stored)
    for role in following:
        writer.update(roles.CLUSTER_ROLE, role)
    return len(following)


def outdated(stored: Iterable[ClusterRole]) -> list[ClusterRole]:
    """Those whose rules are not what they gather, as they should be."""
    now = {role.metadata.name: role for role in stored}
    gathering = [role.metadata.name for role in now.values() if role.aggregation_rule is not None]
    before = {name: now[name] for name in gathering}
    for _ in gathering:  # a chain is no longer than there are such roles
        known = dict(now)
        for name in gathering:
            rules = gathered(known[name], known.values())
            now[name] = known[name] if rules == known[name].rules else replace(known[name], rules=rules)
        if all(now[name] is known[name] for name in gathering):
            break
    return [now[name] for name in gathering if now[name].rules != before[name].rules]
