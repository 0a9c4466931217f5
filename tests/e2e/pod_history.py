"""What has happened to the pods of workloads, as the log tells it afterwards: was one created that must not be?

`History.since(api, revision, namespace)` reads what a watch from that revision would have seen. `creations` plays it
again and says of each pod that was created what was there at that moment.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.e2e.api_client import Api, Document

PLACES = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
}
INDEX = "batch.kubernetes.io/job-completion-index"
ENDED = ("Succeeded", "Failed")


def revision_of(api: Api) -> str:
    """The newest."""
    return str(api.find("/api/v1/pods?limit=1")["metadata"]["resourceVersion"])  # type: ignore[index]  # a list


def events_since(api: Api, revision: str, namespace: str) -> list[tuple[str, Document]]:
    """(what happened, the object) of everything in `PLACES`, in the order in which it was written."""
    found: list[tuple[str, Document]] = []
    for place in PLACES.values():
        params = {"watch": "true", "resourceVersion": revision, "timeoutSeconds": "2"}
        with api.stream(place.format(namespace), **params) as answer:
            events = [json.loads(line) for line in answer.iter_lines() if line]
        found += [(event["type"], event["object"]) for event in events]
    assert not any(type_ in ("ERROR", "BOOKMARK") for type_, _ in found)
    return sorted(found, key=lambda one: int(one[1]["metadata"]["resourceVersion"]))


def is_active(pod: Document) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and pod.get("status", {}).get("phase") not in ENDED


def owner_of(document: Document) -> str:
    """The uid of its controller; "" without one."""
    references = document["metadata"].get("ownerReferences", ())
    return next((str(one["uid"]) for one in references if one.get("controller")), "")


def node_of(pod: Document) -> str:
    """Which node it is for, of a DaemonSet's."""
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


@dataclass
class Cluster:
    """What there is at some moment. uid -> object"""

    objects: dict[str, Document] = field(default_factory=dict)

    def apply(self, type_: str, document: Document) -> None:
        uid = document["metadata"]["uid"]
        if type_ == "DELETED":
            self.objects.pop(uid, None)
        else:
            self.objects[uid] = document

    def pods_of(self, owner: str) -> list[Document]:
        return [one for one in self.objects.values() if one["kind"] == "Pod" and owner_of(one) == owner]

    def active_of(self, owner: str) -> list[Document]:
        return [one for one in self.pods_of(owner) if is_active(one)]

    def children_of(self, owner: str) -> list[Document]:
        return [one for one in self.objects.values() if owner_of(one) == owner]


def creations(events: Iterable[tuple[str, Document]]) -> Iterator[tuple[Document, Cluster]]:
    """Each pod when it was created, and what there was then, with it."""
    cluster = Cluster()
    for type_, document in events:
        cluster.apply(type_, document)
        if type_ == "ADDED" and document["kind"] == "Pod":
            yield document, cluster


def wrongly_created(events: Iterable[tuple[str, Document]]) -> list[str]:
    """What each pod says that was one too many when it was created."""
    found: list[str] = []
    for pod, cluster in creations(events):
        (owner,) = pod["metadata"]["ownerReferences"]
        name, uid = pod["metadata"]["name"], owner["uid"]
        active = cluster.active_of(uid)
        if owner["kind"] == "ReplicaSet":
            found += [f"{name}: {why}" for why in _beyond_bounds(cluster, cluster.objects[uid], len(active))]
        elif owner["kind"] == "Job":
            index = pod["metadata"]["annotations"][INDEX]
            same = [one for one in cluster.pods_of(uid) if one["metadata"]["annotations"][INDEX] == index]
            done = [one for one in same if one.get("status", {}).get("phase") == "Succeeded"]
            if done or sum(map(is_active, same)) > 1:
                found.append(f"{name}: index {index} has {[one['metadata']['name'] for one in same]}")
        elif owner["kind"] == "DaemonSet":
            nodes = Counter(map(node_of, active))
            found += [f"{name}: {number} on {node}" for node, number in nodes.items() if number > 1]
    return found


def _beyond_bounds(cluster: Cluster, replica_set: Document, active: int) -> Iterator[str]:
    if active > replica_set["spec"]["replicas"]:
        yield f"{active} of {replica_set['spec']['replicas']}"
    deployment = cluster.objects.get(owner_of(replica_set))
    if deployment is not None:
        siblings = cluster.children_of(deployment["metadata"]["uid"])
        total = sum(len(cluster.active_of(one["metadata"]["uid"])) for one in siblings)
        most = deployment["spec"]["replicas"] + deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"]
        if total > most:
            yield f"{total} of {most} of its Deployment"
