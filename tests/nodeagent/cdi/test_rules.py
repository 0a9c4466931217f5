"""The strict validator: one document that is right, and what happens when one thing of it is wrong."""

from __future__ import annotations

import ast
import copy
import inspect
import re
from typing import Any

import pytest

from nodeagent import cdi
from nodeagent.cdi import validate_spec

RIGHT: dict[str, Any] = {
    "cdiVersion": "0.7.0",
    "kind": "k8s.gpu.example.com/claim",
    "annotations": {"owner": "alice", "Example.com/Team": ""},
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
    set_at(document, path, value)
    return document


def set_at(document: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    target: Any = document
    for part in parents:
        target = target[part]
    if value is ...:
        del target[last]
    else:
        target[last] = value


EDIT = {"env": ["A=1"]}
EDITS = "devices.0.containerEdits"
#: what is wrong -> (where it is, the value, the field that is named where it is another one)
WRONG: dict[str, tuple[str, Any] | tuple[str, Any, str]] = {
    "an unknown version": ("cdiVersion", "9.9.9"),
    "no version": ("cdiVersion", ...),
    "a version below what is used": ("cdiVersion", "0.5.0"),
    "a kind without class": ("kind", "vendor"),
    "a vendor that starts with a digit": ("kind", "0v/c"),
    "a class that ends with a dash": ("kind", "v/c-"),
    "an unknown field at the top": ("device", []),
    "no devices": ("devices", []),
    "devices that are no list": ("devices", {}),
    "the devices missing": ("devices", ...),
    "a name used twice": ("devices.1.name", "0b1-gpu-0", "devices"),
    "an empty name": ("devices.1.name", ""),
    "a name with a slash": ("devices.1.name", "a/b"),
    "a name that ends with a dot": ("devices.1.name", "a."),
    "a device that does nothing": ("devices.1.containerEdits", {}),
    "a device without edits": ("devices.1.containerEdits", ...),
    "an unknown field of a device": ("devices.0.labels", {}),
    "a vendor of 254 characters": ("kind", f"{'v' * 254}/c"),
    "a class of 64 characters": ("kind", f"v/{'c' * 64}"),
    "annotations with numbers": ("annotations", {"a": 1}),
    "annotations of a device with numbers": ("devices.0.annotations", {"a": 1}),
    "an annotation's key that ends with a dash": ("annotations", {"a-": "b"}),
    "annotations beyond 256 KiB": ("annotations", {"a": "b" * 2**18}),
    "edits that are a list": ("containerEdits", []),
    "environment with a NUL": (f"{EDITS}.env", ["A=\0"], "devices[0].containerEdits.env[0]"),
    "environment without =": (f"{EDITS}.env", ["GPU"], "devices[0].containerEdits.env[0]"),
    "environment without name": (f"{EDITS}.env", ["=1"], "devices[0].containerEdits.env[0]"),
    "an unknown edit": (f"{EDITS}.environment", []),
    "a relative device node": (f"{EDITS}.deviceNodes.0.path", "dev/a"),
    "a relative device node of the host": (f"{EDITS}.deviceNodes.0.hostPath", "dev/a"),
    "a negative minor": (f"{EDITS}.deviceNodes.0.minor", -1),
    "a mode that is text": (f"{EDITS}.deviceNodes.0.fileMode", "0666"),
    "a group beyond 32 bits": (f"{EDITS}.deviceNodes.0.gid", 2**32),
    "a relative target of a mount": (f"{EDITS}.mounts.0.containerPath", "b"),
    "mount options as one text": (f"{EDITS}.mounts.0.options", "ro,bind"),
    "a mount type that is no text": (f"{EDITS}.mounts.0.type", 1),
    "a relative hook": (f"{EDITS}.hooks.0.path", "x"),
    "hook arguments as one text": (f"{EDITS}.hooks.0.args", "x"),
    "a hook's environment without =": (f"{EDITS}.hooks.0.env", ["A"], "devices[0].containerEdits.hooks[0].env[0]"),
    "a hook without time": (f"{EDITS}.hooks.0.timeout", 0),
    "a class of service that is a directory": (f"{EDITS}.intelRdt.closID", ".."),
    "a class of service of 4096 bytes": (f"{EDITS}.intelRdt.closID", "ä" * 2048),
    "a cache schema that is no text": (f"{EDITS}.intelRdt.l3CacheSchema", 1),
    "a bandwidth schema that is no text": (f"{EDITS}.intelRdt.memBwSchema", 1),
    "schemata as one text": (f"{EDITS}.intelRdt.schemata", "L3:0=f"),
    "monitoring as text": (f"{EDITS}.intelRdt.enableMonitoring", "yes"),
    "cache monitoring as text": (f"{EDITS}.intelRdt.enableCMT", "yes"),
    "bandwidth monitoring as text": (f"{EDITS}.intelRdt.enableMBM", "yes"),
    "schemata before 1.1.0": (f"{EDITS}.intelRdt.schemata", [], "cdiVersion"),
    "cache monitoring since 1.1.0": ("cdiVersion", "1.1.0", "devices[0].containerEdits.intelRdt.enableCMT"),
    "network devices before 1.1.0": (
        f"{EDITS}.netDevices",
        [{"hostInterfaceName": "eth1", "name": "net1"}],
        "cdiVersion",
    ),
    "a network device from nowhere": (
        f"{EDITS}.netDevices",
        [{"name": "n"}],
        "devices[0].containerEdits.netDevices[0].hostInterfaceName",
    ),
    "a network device without name": (
        f"{EDITS}.netDevices",
        [{"hostInterfaceName": "eth1", "name": ""}],
        "devices[0].containerEdits.netDevices[0].name",
    ),
    "a device node without path": (f"{EDITS}.deviceNodes.0.path", ...),
    "a device node of type d": (f"{EDITS}.deviceNodes.0.type", "d"),
    "permission to execute": (f"{EDITS}.deviceNodes.0.permissions", "rx"),
    "a negative major": (f"{EDITS}.deviceNodes.0.major", -1),
    "a boolean as minor": (f"{EDITS}.deviceNodes.0.minor", True),
    "a uid beyond 32 bits": (f"{EDITS}.deviceNodes.0.uid", 2**32),
    "a mount without target": (f"{EDITS}.mounts.0.containerPath", ...),
    "a mount from nowhere": (f"{EDITS}.mounts.0.hostPath", ""),
    "an unknown hook": (f"{EDITS}.hooks.0.hookName", "onStart"),
    "a hook without path": (f"{EDITS}.hooks.0.path", ""),
    "a class of service with a slash": (f"{EDITS}.intelRdt.closID", "a/b"),
    "device nodes that are no list": (f"{EDITS}.deviceNodes", {}),
    "network devices that are no list": (f"{EDITS}.netDevices", {}),
    "mounts that are no list": (f"{EDITS}.mounts", "/a:/b"),
    "a hook that is no list": (f"{EDITS}.hooks", {}),
    "cache allocation that is a list": (f"{EDITS}.intelRdt", []),
    "a group that is text": (f"{EDITS}.additionalGids", ["video"], "devices[0].containerEdits.additionalGids[0]"),
}


def test_the_right_document_has_no_problem() -> None:
    assert validate_spec(RIGHT) == []


@pytest.mark.parametrize("case", WRONG)
def test_one_wrong_thing_is_named_with_its_path(case: str) -> None:
    path, value, *others = WRONG[case]
    (problem,) = validate_spec(changed(path, value))
    assert [problem.partition(": ")[0]] == (others or [re.sub(r"\.(\d+)", r"[\1]", path)])


MOVED = [{"hostInterfaceName": "eth1", "name": "net1"}, {"hostInterfaceName": "eth2", "name": "net2"}]


@pytest.mark.parametrize("where", ["containerEdits", "devices.1.containerEdits"])
@pytest.mark.parametrize("field", ["hostInterfaceName", "name"])
def test_an_interface_moves_once_and_to_a_name_of_its_own(where: str, field: str) -> None:
    document = {"cdiVersion": "1.1.0", "kind": "v/c", "devices": [{"name": n, "containerEdits": EDIT} for n in "ab"]}
    right = copy.deepcopy(document)
    set_at(right, where, {"netDevices": MOVED})
    assert validate_spec(right) == []

    wrong = copy.deepcopy(document)
    set_at(wrong, where, {"netDevices": [MOVED[0], {**MOVED[1], field: MOVED[0][field]}]})

    (problem,) = validate_spec(wrong)
    assert problem.startswith(f"{where.replace('.1', '[1]')}.netDevices: {field} ")


def test_every_field_has_a_case_that_only_its_rule_refuses() -> None:
    covered = {re.sub(r"\[\d+\]", "", path).rpartition(".")[2] for path in problem_paths()}
    unknown = {"device", "labels", "environment"}

    assert covered - unknown >= fields_of_the_grammar()


def problem_paths() -> list[str]:
    return [problem.partition(": ")[0] for case in WRONG for problem in validate_spec(changed(*WRONG[case][:2]))]


def fields_of_the_grammar() -> set[str]:
    """The names in the tables that `fields` is called with."""
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(cdi))) if isinstance(node, ast.Call)]
    tables = [table for call in calls if ast.unparse(call.func) == "fields" for table in call.args]
    keys = [key for table in tables if isinstance(table, ast.Dict) for key in table.keys]
    return {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


@pytest.mark.parametrize(
    "path",
    ["deviceNodes.0.hostPath", "deviceNodes.0.type", "deviceNodes.0.permissions", "mounts.0.type", "intelRdt.closID"],
)
def test_an_empty_text_is_as_good_as_none(path: str) -> None:
    assert validate_spec(changed(f"{EDITS}.{path}", "")) == []


@pytest.mark.parametrize("name", ["/", "c" * 4095])
def test_a_class_of_service_is_the_root_or_a_name_of_a_directory(name: str) -> None:
    assert validate_spec(changed(f"{EDITS}.intelRdt.closID", name)) == []


@pytest.mark.parametrize("document", [None, [], "text", 3])
def test_what_is_no_object_is_no_spec(document: Any) -> None:
    (problem,) = validate_spec(document)
    assert problem.startswith("document:")


def test_every_problem_is_reported() -> None:
    document = changed("kind", "x")
    document["devices"][0]["containerEdits"]["env"] = ["A", "B"]

    assert len(validate_spec(document)) == 3
