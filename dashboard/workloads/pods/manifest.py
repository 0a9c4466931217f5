"""A pod, and the templates and claims that it names, as somebody would write them: without what the API filled in.

For a pod that is made anew, duplicated, or made like one that was rehearsed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from claims.admission import VOLUME_PREFIX
from claims.kinds.pod_strategy import EVICTION_TOLERATION_SECONDS, NODE_TROUBLES
from claims.kinds.pods import Pod
from dashboard.kit.differences import written
from manciple.wire import codec
from manciple.wire.base import ApiObject

#: What the API writes where a pod says nothing.
_OF_SPEC: Mapping[str, Any] = {
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "enableServiceLinks": True,
    "securityContext": {},
    "serviceAccountName": "default",
    "serviceAccount": "default",
    "preemptionPolicy": "PreemptLowerPriority",
    "priorityClassName": "",
    "restartPolicy": "Always",
}
_OF_CONTAINER: Mapping[str, Any] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}
#: What says who made it, where it runs and what became of it.
_OF_META = ("ownerReferences", "generateName", "finalizers", "deletionTimestamp", "deletionGracePeriodSeconds")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NUMBERED = re.compile(r"^(.*?)-(\d+)$")


def manifest(obj: ApiObject) -> dict[str, Any]:
    """The document with what a person writes; of a pod, without what admission added."""
    document = written(codec.to_builtins(obj))
    document.pop("status", None)
    meta = {name: value for name, value in document["metadata"].items() if name not in _OF_META}
    notes = {name: value for name, value in meta.pop("annotations", {}).items() if name != _LAST_APPLIED}
    document["metadata"] = meta | ({"annotations": notes} if notes else {})
    if isinstance(obj, Pod):
        document["spec"] = _spec(document["spec"])
    return document


def _spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in spec.items() if _OF_SPEC.get(name, _NOTHING) != value}
    for name in ("nodeName", "priority", "preemptionPolicy"):  # its class says the last two
        found.pop(name, None)
    if found.get("serviceAccountName"):
        found.pop("serviceAccount", None)
    tokens = {one["name"] for one in spec.get("volumes", ()) if one["name"].startswith(VOLUME_PREFIX)}
    for name in ("containers", "initContainers"):
        if name in found:
            found[name] = [_container(one, tokens) for one in found[name]]
    _keep(found, "volumes", [one for one in spec.get("volumes", ()) if one["name"] not in tokens])
    _keep(found, "tolerations", [one for one in spec.get("tolerations", ()) if not _is_of_admission(one)])
    return found


_NOTHING = object()


def _container(container: Mapping[str, Any], tokens: Collection[str]) -> dict[str, Any]:
    found = {name: value for name, value in container.items() if _OF_CONTAINER.get(name, _NOTHING) != value}
    if found.get("imagePullPolicy") == _pulled(str(found.get("image", ""))):
        del found["imagePullPolicy"]
    _keep(found, "volumeMounts", [one for one in container.get("volumeMounts", ()) if one["name"] not in tokens])
    return found


def _pulled(image: str) -> str:
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    return "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent"


def _keep(found: dict[str, Any], name: str, values: list[Any]) -> None:
    found.pop(name, None)
    if values:
        found[name] = values


def _is_of_admission(toleration: Mapping[str, Any]) -> bool:
    return (
        toleration.get("key") in NODE_TROUBLES
        and toleration.get("operator") == "Exists"
        and toleration.get("tolerationSeconds") == EVICTION_TOLERATION_SECONDS
    )


def stem_of(name: str) -> str:
    """The name without the number that `free_name` puts behind it."""
    numbered = _NUMBERED.match(name)
    return numbered[1] if numbered else name


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, or the first one with a number behind it that nobody has."""
    if name not in taken:
        return name
    numbered = _NUMBERED.match(name)
    stem, number = (numbered[1], int(numbered[2])) if numbered else (name, 1)
    while (found := f"{stem}-{number + 1}") in taken:
        number += 1
    return found
