"""The workload that a pod belongs to as people know it: of a ReplicaSet's pods its Deployment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from claims.kinds.pods import Pod as PodObject
from claims.models import Pod, Reservation
from dashboard.templatetags.kit import page_url
from manciple.people import Person
from manciple.wire.base import ApiObject
from workloads.kinds.jobs import JOB
from workloads.kinds.registration import KINDS
from workloads.kinds.replica_sets import REPLICA_SET
from workloads.models import Workload

#: No resource of the API: a role grants it to whoever may extend time limits without changing Jobs otherwise.
TIME_LIMITS = f"{JOB.resource}/timelimit"
#: `deployments.apps` -> `Deployment`
WORDS: Mapping[str, str] = {kind.resource: kind.kind for kind in KINDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A workload. kind: `Deployment`."""

    kind: str
    namespace: str
    name: str
    url: str

    @classmethod
    def of(cls, row: Workload) -> Owner:
        return cls(
            kind=WORDS[row.resource],
            namespace=row.namespace,
            name=row.name,
            url=page_url("workload", row.resource.partition(".")[0], row.namespace, row.name),
        )

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}"


def may_extend(person: Person, owner: Owner) -> bool:
    """Whether they may extend the time limit of this Job."""
    place = (owner.namespace, owner.name)
    return owner.kind == JOB.kind and any(person.may("patch", one, *place) for one in (JOB.resource, TIME_LIMITS))


def owners_of(controllers: Iterable[str], person: Person) -> Mapping[str, Owner]:
    """uid of what controls pods -> the workload. Without those that the person may not list. Two queries."""
    uids = set(controllers) - {""}
    if not uids:
        return {}
    seen = Workload.objects.restrict(person)
    rows = {row.uid: row for row in seen.filter(uid__in=uids)}
    above = {row.controller_uid for row in rows.values() if row.resource == REPLICA_SET.resource} - {""}
    parents = {row.uid: row for row in seen.filter(uid__in=above)} if above else {}
    return {uid: Owner.of(parents.get(row.controller_uid, row)) for uid, row in rows.items()}


def makers_of(address: str) -> Sequence[str]:
    """uids of the workload at PLURAL/NAMESPACE/NAME and of what it controls, such as ReplicaSets."""
    plural, _, key = address.partition("/")
    namespace, _, name = key.partition("/")
    rows = Workload.objects.filter(resource__startswith=f"{plural}.", namespace=namespace, name=name)
    uids = list(rows.values_list("uid", flat=True))
    return [*uids, *Workload.objects.filter(controller_uid__in=uids).values_list("uid", flat=True)] if uids else []


def owner_of(obj: ApiObject, person: Person) -> Owner | None:
    """Of a pod, or of a workload that another one controls."""
    controller = next((one.uid for one in obj.metadata.owner_references if one.controller), "")
    return owners_of([controller], person).get(controller)


def owners_of_pods(pods: Iterable[PodObject], person: Person) -> Sequence[Owner]:
    """Each once, by name."""
    controllers = {one.uid for pod in pods for one in pod.metadata.owner_references if one.controller}
    return sorted(set(owners_of(controllers, person).values()), key=lambda owner: (owner.kind, owner.name))


def owners_of_claims(claims: Iterable[str], person: Person) -> Mapping[str, Owner]:
    """uid of a claim -> the workload whose pods may use it. Four queries."""
    reserved = list(Reservation.objects.filter(claim__in=list(claims)).values_list("claim_id", "uid"))
    pods = dict(Pod.objects.filter(uid__in=[pod for _, pod in reserved]).values_list("uid", "controller_uid"))
    owners = owners_of(pods.values(), person)
    found = ((claim, owners.get(pods.get(pod, ""))) for claim, pod in reserved)
    return {claim: owner for claim, owner in found if owner is not None}
