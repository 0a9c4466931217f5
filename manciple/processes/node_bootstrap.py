"""What machines find that want to become nodes: where the API is and how it is known, for anybody to read.

As `kubeadm init` leaves a cluster; what the machines may ask for, with a bootstrap token, is among the default roles.
Source: kubeadm/app/phases/bootstraptoken/clusterinfo of Kubernetes 1.36.
"""

from __future__ import annotations

from msgspec.structs import replace

from manciple.access.kinds import roles
from manciple.access.kinds.roles import PolicyRule, Role, RoleBinding, RoleRef, Subject
from manciple.access.kinds.secrets import CONFIG_MAP, ConfigMap
from manciple.api import kubeconfig
from manciple.api.kubeconfig import Server
from manciple.store import objects
from manciple.wire.base import ApiObject, ObjectMeta
from manciple.wire.identity import ANONYMOUS_USER, SYSTEM
from manciple.wire.registry import Kind

NAMESPACE, CLUSTER_INFO = "kube-public", "cluster-info"


def ensure(server: Server) -> None:
    """Make what is missing, and bring the rest up to date."""
    wanted = _wanted(server)
    reads = objects.to_read(*((kind, [one.key]) for kind, one in wanted))
    with objects.writing(identity=SYSTEM, reads=reads) as writer:
        for kind, one in wanted:
            current = writer.get(kind, one.metadata.namespace, one.metadata.name)
            if current is None:
                writer.create(kind, one)
            else:
                writer.update(kind, replace(one, metadata=current.metadata))


def _wanted(server: Server) -> list[tuple[Kind, ApiObject]]:
    info = ConfigMap(metadata=_named(CLUSTER_INFO), data={"kubeconfig": kubeconfig.render_cluster(server)})
    reads = Role(
        metadata=_named("manciple:cluster-info"),
        rules=(
            PolicyRule(verbs=("get",), api_groups=("",), resources=("configmaps",), resource_names=(CLUSTER_INFO,)),
        ),
    )
    anybody = RoleBinding(
        metadata=_named("manciple:cluster-info"),
        subjects=(Subject(kind=roles.USER, api_group=roles.GROUP, name=ANONYMOUS_USER),),
        role_ref=RoleRef(api_group=roles.GROUP, kind=roles.ROLE_KIND, name="manciple:cluster-info"),
    )
    return [(CONFIG_MAP, info), (roles.ROLE, reads), (roles.ROLE_BINDING, anybody)]


def _named(name: str) -> ObjectMeta:
    return ObjectMeta(namespace=NAMESPACE, name=name)
