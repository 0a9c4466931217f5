"""Changes of a pod's requests, to be rehearsed or made: as an address names them, and where the pod is replaced."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Protocol
from urllib.parse import urlencode

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from dashboard.templatetags.kit import page_url
from manciple.people import Person
from manciple.wire.quantity import whole
from scheduling.allocator.problem import MAX_RESULTS
from scheduling.rehearsal.workload import Changes, asked_of

_CONSTRAINT = re.compile(r"(?P<entry>[^/:]+):(?P<number>[1-9]\d{0,2})")
_WITHOUT = re.compile(r"(?P<request>[^/]+/[^/:]+(?:/[^/:]+)?):(?P<number>[1-9]\d{0,2})")


class QueryValues(Protocol):
    """The part of Django's QueryDict that is used here."""

    def __iter__(self) -> Iterator[str]: ...
    def get(self, key: str, default: str, /) -> str: ...
    def getlist(self, key: str, /) -> list[str]: ...


def changes_of(query: QueryValues) -> Changes:
    """The changes to try. What cannot be read is ignored, because an address may be old.

    without=ENTRY/REQUEST:2      without its second selector; may be repeated
    class.ENTRY/REQUEST=NAME     with another class
    count.ENTRY/REQUEST=4        with another number of devices
    unconstrained=ENTRY:2        without its second constraint; may be repeated
    attribute.ENTRY:2=NAME       with another attribute in its second constraint
    Of an alternative REQUEST is REQUEST/ALTERNATIVE.
    anywhere=1                   without the pod's nodeSelector and required node affinity
    tolerate=devices             tolerating every taint of a device; tolerate=nodes: of nodes
    """
    tolerated = query.getlist("tolerate")
    named = [(*name.partition(".")[::2], query.get(name, "").strip()) for name in query]
    return Changes(
        without=frozenset(
            (match["request"], int(match["number"]) - 1)
            for match in map(_WITHOUT.fullmatch, query.getlist("without"))
            if match
        ),
        classes={key: value for word, key, value in named if word == "class" and key and value},
        counts={
            key: int(value)
            for word, key, value in named
            if word == "count" and key and 1 <= (whole(value) or 0) <= MAX_RESULTS
        },
        unconstrained=frozenset(filter(None, map(_constraint, query.getlist("unconstrained")))),
        attributes={
            at: value for word, key, value in named if word == "attribute" and value and (at := _constraint(key))
        },
        tolerate_devices="devices" in tolerated,
        tolerate_nodes="nodes" in tolerated,
        anywhere=query.get("anywhere", "") == "1",
    )


def _constraint(key: str) -> tuple[str, int] | None:
    match = _CONSTRAINT.fullmatch(key)
    return (match["entry"], int(match["number"]) - 1) if match else None


def as_query(changes: Changes) -> list[tuple[str, str]]:
    """The changes as the parameters of an address."""
    tolerated = {"devices": changes.tolerate_devices, "nodes": changes.tolerate_nodes}
    return [
        *(("without", f"{request}:{index + 1}") for request, index in sorted(changes.without)),
        *((f"class.{key}", name) for key, name in sorted(changes.classes.items())),
        *((f"count.{key}", str(count)) for key, count in sorted(changes.counts.items())),
        *(("unconstrained", f"{entry}:{index + 1}") for entry, index in sorted(changes.unconstrained)),
        *((f"attribute.{entry}:{index + 1}", name) for (entry, index), name in sorted(changes.attributes.items())),
        *([("anywhere", "1")] if changes.anywhere else []),
        *(("tolerate", name) for name, tolerates in tolerated.items() if tolerates),
    ]


def as_text(changes: Changes) -> str:
    """`without=gpu/gpu:2&tolerate=nodes`."""
    return urlencode(as_query(changes), safe="/:")


def meant(changes: Changes, claims: Mapping[str, ResourceClaim]) -> Changes:
    """Only what changes these claims (by entry): the form sends each class and count, also as they are."""
    requests = {key: one for entry, claim in claims.items() for key, one in asked_of(claim, entry)}
    constraints = {
        (entry, index): one.match_attribute or one.distinct_attribute
        for entry, claim in claims.items()
        for index, one in enumerate(claim.spec.devices.constraints)
    }
    return Changes(
        unconstrained=frozenset(key for key in changes.unconstrained if key in constraints),
        attributes={key: name for key, name in changes.attributes.items() if constraints.get(key, name) != name},
        anywhere=changes.anywhere,
        without=frozenset(
            (key, index) for key, index in changes.without if key in requests and index < len(requests[key].selectors)
        ),
        classes={
            key: name
            for key, name in changes.classes.items()
            if key in requests and requests[key].device_class_name != name
        },
        counts={
            key: count
            for key, count in changes.counts.items()
            if key in requests and (requests[key].allocation_mode == "All" or max(requests[key].count, 1) != count)
        },
        tolerate_devices=changes.tolerate_devices,
        tolerate_nodes=changes.tolerate_nodes,
    )


def replace_url(pod: Pod, changes: Changes, person: Person) -> str:
    """Where the pod is replaced by one with these changes; "" if it cannot be, or the person may not."""
    if not person.may_edit(pod.metadata.namespace) or kept_as_it_is(pod):
        return ""
    return f"{page_url('pod-replace', *pod.key)}?{as_text(changes)}"


def kept_as_it_is(pod: Pod) -> str:
    """Why a pod cannot be replaced here; "" if it can."""
    if pod.spec.node_name:
        return f"it now has a node, {pod.spec.node_name}"
    if pod.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    owner = next((one for one in pod.metadata.owner_references if one.controller), None)
    return f"{owner.kind} {owner.name} created it and would create the same again; change that instead" if owner else ""
