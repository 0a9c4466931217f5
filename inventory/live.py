"""Which live topics the inventory's events touch: the pool of a slice, the class itself, the node, what runs on it.

A lease that is renewed touches nothing, and neither does a node's report that says what the last one said: a node that
falls silent or comes back is written by the node lifecycle controller, and that is what pages hear of.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from inventory.models import PublishedSlice
from manciple.store.records import EventRecord


def pool_topic(driver: str, pool: str) -> str:
    """Of a pool's devices."""
    return f"pool:{driver}/{pool}"


def node_topic(name: str) -> str:
    return f"node:{name}"


def slice_topics(record: EventRecord) -> Iterable[str]:
    """The pool that a ResourceSlice belongs to."""
    spec = json.loads(record.text)["spec"]
    return (pool_topic(spec["driver"], spec["pool"]["name"]), "slices")


def taint_rule_topics(record: EventRecord) -> Iterable[str]:
    """The devices, and the pool that the rule names, if it names one."""
    selector = json.loads(record.text)["spec"].get("deviceSelector", {})
    driver, pool = selector.get("driver"), selector.get("pool")
    return (pool_topic(driver, pool), "slices") if driver and pool else ("slices",)


def class_topics(record: EventRecord) -> Iterable[str]:
    """The list of classes, and this one."""
    return ("classes", f"class:{record.name}")


class NodeTopics:
    """The nodes, and this one; its pools where it becomes unreachable or is heard of again; nothing for a report that
    brings no news. Remembers what each node said last.
    """

    def __init__(self) -> None:
        self._said: dict[str, int] = {}
        self._unreachable: set[str] = set()

    def __call__(self, record: EventRecord) -> Iterable[str]:
        if record.type == "DELETED":
            self._said.pop(record.uid, None)
            self._unreachable.discard(record.uid)
            return ("nodes", node_topic(record.name))
        news = hash(_without_times(record.text))
        known, self._said[record.uid] = self._said.get(record.uid), news
        if known == news:
            return ()
        unreachable, before = _is_unreachable(record.text), record.uid in self._unreachable
        (self._unreachable.add if unreachable else self._unreachable.discard)(record.uid)
        if unreachable == before:
            return ("nodes", node_topic(record.name))
        pools = PublishedSlice.objects.filter(node_name=record.name).values_list("driver", "pool").distinct()
        return ("nodes", node_topic(record.name), "slices", *(pool_topic(driver, pool) for driver, pool in pools))


def _is_unreachable(text: str) -> bool:
    """Whether the node lifecycle controller has marked the Node of this document."""
    conditions = json.loads(text).get("status", {}).get("conditions", ())
    return any(one.get("type") == "Ready" and one.get("status") == "Unknown" for one in conditions)


def _without_times(text: str) -> str:
    """A Node's document without what each report changes."""
    node = json.loads(text)
    for name in ("resourceVersion", "managedFields"):
        node["metadata"].pop(name, None)
    for condition in node.get("status", {}).get("conditions", ()):
        condition.pop("lastHeartbeatTime", None)
    return json.dumps(node)


def node_pod_topics(record: EventRecord) -> Iterable[str]:
    """A namespace's pods on the node that a pod is or was bound to."""
    names = {record.fields.get("spec.nodeName"), (record.previous_fields or {}).get("spec.nodeName")}
    return [f"node-pods:{name}:{record.namespace}" for name in names if name]


def namespace_topics(_record: EventRecord) -> Iterable[str]:
    """The namespaces, all as one."""
    return ("namespaces",)
