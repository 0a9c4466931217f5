"""The strict validator: one document that is right, and what happens when one thing of it is wrong."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from nodeagent.cdi import validate_spec

RIGHT: dict[str, Any] = {
    "cdiVersion": "0.7.0",
    "kind": "k8s.gpu.example.com/claim",
    "annotations": {"owner": "alice"},
    "devices": [
        {
            "name": "0b1-gpu-0",
            "annotations": {"a": "b"},
            "containerEdits": {
                "env": ["GPU=0", "EMPTY=", "JSON={\"a\":1}"],
                "deviceNodes": [
                    {"path": "/dev/a", "hostPath": "/dev/b", "type": "c", "major": 1, "minor": 3, "fileMode": 438,
                     "permissions": "rw", "uid": 0, "gid": 44}
                ],
                "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro"], "type": "bind"}],
                "hooks": [{"hookName": "createContainer", "path": "/x", "args": ["x"], "env": ["A=1"], "timeout": 5}],
                "intelRdt": {"closID": "c", "l3CacheSchema": "L3:0=f", "memBwSchema": "MB:0=20", "enableCMT": True},
                "additionalGids": [5],
            },
        },
        {"name": "b:1", "containerEdits": {"env": ["A=1"]}},
    ],
    "containerEdits": {"env": ["ALL=1"]},
}  # fmt: skip


def changed(path: str, value: Any) -> dict[str, Any]:
    """RIGHT with `value` at a dotted path; a value of ... removes it."""
    document = copy.deepcopy(RIGHT)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    target: Any = document
    for part in parents:
        target = target[part]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return document


EDITS = "devices.0.containerEdits"
WRONG: dict[str, tuple[str, Any, str]] = {
    "an unknown version": ("cdiVersion", "9.9.9", "cdiVersion: '9.9.9' is not a version of CDI"),
    "no version": ("cdiVersion", ..., "cdiVersion: is missing"),
    "a version below what is used": ("cdiVersion", "0.5.0", "cdiVersion: '0.5.0' is below '0.7.0'"),
    "a kind without class": ("kind", "vendor", "kind: 'vendor' is not vendor/class"),
    "a vendor that starts with a digit": ("kind", "0v/c", "kind:"),
    "a class that ends with a dash": ("kind", "v/c-", "kind:"),
    "an unknown field at the top": ("device", [], "device: is not a field of CDI"),
    "no devices": ("devices", [], "devices: is empty"),
    "devices that are no list": ("devices", {}, "devices: is not a list"),
    "the devices missing": ("devices", ..., "devices: is missing"),
    "a name used twice": ("devices.1.name", "0b1-gpu-0", "devices: the name '0b1-gpu-0' is used 2 times"),
    "an empty name": ("devices.1.name", "", "devices[1].name:"),
    "a name with a slash": ("devices.1.name", "a/b", "devices[1].name:"),
    "a name that ends with a dot": ("devices.1.name", "a.", "devices[1].name:"),
    "a device that does nothing": ("devices.1.containerEdits", {}, "devices[1].containerEdits: is empty"),
    "a device without edits": ("devices.1.containerEdits", ..., "devices[1].containerEdits: is missing"),
    "an unknown field of a device": ("devices.0.labels", {}, "devices[0].labels: is not a field of CDI"),
    "annotations with numbers": ("annotations", {"a": 1}, "annotations: is not a map of strings"),
    "environment without =": (f"{EDITS}.env", ["GPU"], "devices[0].containerEdits.env[0]: 'GPU' is not NAME=value"),
    "environment without name": (f"{EDITS}.env", ["=1"], "devices[0].containerEdits.env[0]:"),
    "an unknown edit": (f"{EDITS}.environment", [], "devices[0].containerEdits.environment: is not a field of CDI"),
    "a device node without path": (f"{EDITS}.deviceNodes.0.path", ..., "deviceNodes[0].path: is missing"),
    "a device node of type d": (f"{EDITS}.deviceNodes.0.type", "d", "deviceNodes[0].type:"),
    "permission to execute": (f"{EDITS}.deviceNodes.0.permissions", "rx", "deviceNodes[0].permissions:"),
    "a negative major": (f"{EDITS}.deviceNodes.0.major", -1, "deviceNodes[0].major:"),
    "a boolean as minor": (f"{EDITS}.deviceNodes.0.minor", True, "deviceNodes[0].minor:"),
    "a uid beyond 32 bits": (f"{EDITS}.deviceNodes.0.uid", 2**32, "deviceNodes[0].uid:"),
    "a mount without target": (f"{EDITS}.mounts.0.containerPath", ..., "mounts[0].containerPath: is missing"),
    "a mount from nowhere": (f"{EDITS}.mounts.0.hostPath", "", "mounts[0].hostPath:"),
    "an unknown hook": (f"{EDITS}.hooks.0.hookName", "onStart", "hooks[0].hookName:"),
    "a hook without path": (f"{EDITS}.hooks.0.path", "", "hooks[0].path:"),
    "a class of service with a slash": (f"{EDITS}.intelRdt.closID", "a/b", "intelRdt.closID:"),
    "a group that is text": (f"{EDITS}.additionalGids", ["video"], "additionalGids[0]:"),
}


def test_the_right_document_has_no_problem() -> None:
    assert validate_spec(RIGHT) == []


@pytest.mark.parametrize("case", WRONG)
def test_one_wrong_thing_is_named_with_its_path(case: str) -> None:
    path, value, problem = WRONG[case]

    problems = validate_spec(changed(path, value))

    assert len(problems) == 1
    assert problem in problems[0]


@pytest.mark.parametrize("document", [None, [], "text", 3])
def test_what_is_no_object_is_no_spec(document: Any) -> None:
    assert validate_spec(document) == ["document: is not an object"]


def test_every_problem_is_reported() -> None:
    document = changed("kind", "x")
    document["devices"][0]["containerEdits"]["env"] = ["A", "B"]

    assert len(validate_spec(document)) == 3
