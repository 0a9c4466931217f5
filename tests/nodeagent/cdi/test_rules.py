"""The strict validator: one document that is right, and what happens when one thing of it is wrong."""

from __future__ import annotations

import ast
import copy
import inspect
import re
from typing import Any

import pytest

from nodeagent.cdi import spec, validate_spec

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
    "the devices missing": ("devices", ..., "devices:"),
    "a name used twice": ("devices.1.name", "0b1-gpu-0", "devices: the name '0b1-gpu-0' is used 2 times"),
    "an empty name": ("devices.1.name", "", "devices[1].name:"),
    "a name with a slash": ("devices.1.name", "a/b", "devices[1].name:"),
    "a name that ends with a dot": ("devices.1.name", "a.", "devices[1].name:"),
    "a device that does nothing": ("devices.1.containerEdits", {}, "devices[1].containerEdits:"),
    "a device without edits": ("devices.1.containerEdits", ..., "devices[1].containerEdits:"),
    "an unknown field of a device": ("devices.0.labels", {}, "devices[0].labels:"),
    "a vendor of 254 characters": ("kind", f"{'v' * 254}/c", "kind:"),
    "a class of 64 characters": ("kind", f"v/{'c' * 64}", "kind:"),
    "annotations with numbers": ("annotations", {"a": 1}, "annotations: is not a map of strings"),
    "annotations of a device with numbers": ("devices.0.annotations", {"a": 1}, "devices[0].annotations:"),
    "an annotation's key that ends with a dash": ("annotations", {"a-": "b"}, "annotations: the key 'a-': name part"),
    "annotations beyond 256 KiB": ("annotations", {"a": "b" * 2**18}, "262145 bytes are more than 262144"),
    "edits that are a list": ("containerEdits", [], "containerEdits: is not an object"),
    "environment with a NUL": (f"{EDITS}.env", ["A=\0"], "is not NAME=value"),
    "environment without =": (f"{EDITS}.env", ["GPU"], "devices[0].containerEdits.env[0]: 'GPU' "),
    "environment without name": (f"{EDITS}.env", ["=1"], "devices[0].containerEdits.env[0]:"),
    "an unknown edit": (f"{EDITS}.environment", [], "devices[0].containerEdits.environment:"),
    "a relative device node": (
        f"{EDITS}.deviceNodes.0.path",
        "dev/a",
        "deviceNodes[0].path: 'dev/a' is not an absolute",
    ),
    "a relative device node of the host": (f"{EDITS}.deviceNodes.0.hostPath", "dev/a", "deviceNodes[0].hostPath:"),
    "a negative minor": (f"{EDITS}.deviceNodes.0.minor", -1, "deviceNodes[0].minor:"),
    "a mode that is text": (f"{EDITS}.deviceNodes.0.fileMode", "0666", "deviceNodes[0].fileMode:"),
    "a group beyond 32 bits": (f"{EDITS}.deviceNodes.0.gid", 2**32, "deviceNodes[0].gid:"),
    "a relative target of a mount": (f"{EDITS}.mounts.0.containerPath", "b", "mounts[0].containerPath:"),
    "mount options as one text": (f"{EDITS}.mounts.0.options", "ro,bind", "mounts[0].options:"),
    "a mount type that is no text": (f"{EDITS}.mounts.0.type", 1, "mounts[0].type:"),
    "a relative hook": (f"{EDITS}.hooks.0.path", "x", "hooks[0].path: 'x' "),
    "hook arguments as one text": (f"{EDITS}.hooks.0.args", "x", "hooks[0].args:"),
    "a hook's environment without =": (f"{EDITS}.hooks.0.env", ["A"], "hooks[0].env[0]:"),
    "a hook without time": (f"{EDITS}.hooks.0.timeout", 0, "hooks[0].timeout:"),
    "a class of service that is a directory": (f"{EDITS}.intelRdt.closID", "..", "intelRdt.closID:"),
    "a class of service of 4096 bytes": (f"{EDITS}.intelRdt.closID", "ä" * 2048, "intelRdt.closID:"),
    "a cache schema that is no text": (f"{EDITS}.intelRdt.l3CacheSchema", 1, "intelRdt.l3CacheSchema:"),
    "a bandwidth schema that is no text": (f"{EDITS}.intelRdt.memBwSchema", 1, "intelRdt.memBwSchema:"),
    "schemata as one text": (f"{EDITS}.intelRdt.schemata", "L3:0=f", "intelRdt.schemata:"),
    "monitoring as text": (f"{EDITS}.intelRdt.enableMonitoring", "yes", "is not true or false"),
    "cache monitoring as text": (f"{EDITS}.intelRdt.enableCMT", "yes", "intelRdt.enableCMT:"),
    "bandwidth monitoring as text": (f"{EDITS}.intelRdt.enableMBM", "yes", "intelRdt.enableMBM:"),
    "schemata before 1.1.0": (f"{EDITS}.intelRdt.schemata", [], "cdiVersion: '0.7.0'"),
    "cache monitoring since 1.1.0": ("cdiVersion", "1.1.0", "intelRdt.enableCMT: was removed from CDI in 1.1.0"),
    "network devices before 1.1.0": (
        f"{EDITS}.netDevices",
        [{"hostInterfaceName": "eth1", "name": "net1"}],
        "cdiVersion: '0.7.0'",
    ),
    "a network device from nowhere": (f"{EDITS}.netDevices", [{"name": "n"}], "hostInterfaceName:"),
    "a network device without name": (
        f"{EDITS}.netDevices",
        [{"hostInterfaceName": "eth1", "name": ""}],
        "netDevices[0].name:",
    ),
    "a device node without path": (f"{EDITS}.deviceNodes.0.path", ..., "deviceNodes[0].path:"),
    "a device node of type d": (f"{EDITS}.deviceNodes.0.type", "d", "deviceNodes[0].type:"),
    "permission to execute": (f"{EDITS}.deviceNodes.0.permissions", "rx", "deviceNodes[0].permissions:"),
    "a negative major": (f"{EDITS}.deviceNodes.0.major", -1, "deviceNodes[0].major:"),
    "a boolean as minor": (f"{EDITS}.deviceNodes.0.minor", True, "deviceNodes[0].minor:"),
    "a uid beyond 32 bits": (f"{EDITS}.deviceNodes.0.uid", 2**32, "deviceNodes[0].uid:"),
    "a mount without target": (f"{EDITS}.mounts.0.containerPath", ..., "mounts[0].containerPath:"),
    "a mount from nowhere": (f"{EDITS}.mounts.0.hostPath", "", "mounts[0].hostPath:"),
    "an unknown hook": (f"{EDITS}.hooks.0.hookName", "onStart", "hooks[0].hookName:"),
    "a hook without path": (f"{EDITS}.hooks.0.path", "", "hooks[0].path:"),
    "a class of service with a slash": (f"{EDITS}.intelRdt.closID", "a/b", "intelRdt.closID:"),
    "device nodes that are no list": (f"{EDITS}.deviceNodes", {}, "deviceNodes:"),
    "network devices that are no list": (f"{EDITS}.netDevices", {}, "netDevices:"),
    "mounts that are no list": (f"{EDITS}.mounts", "/a:/b", "mounts:"),
    "a hook that is no list": (f"{EDITS}.hooks", {}, "hooks:"),
    "cache allocation that is a list": (f"{EDITS}.intelRdt", [], "intelRdt:"),
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

    assert validate_spec(wrong) == [
        f"{where.replace('.1', '[1]')}.netDevices: {field} {MOVED[0][field]!r} is used 2 times"
    ]


def test_every_field_has_a_case_that_only_its_rule_refuses() -> None:
    covered = {re.sub(r"\[\d+\]", "", path).rpartition(".")[2] for path in problem_paths()}
    unknown = {"device", "labels", "environment"}

    assert covered - unknown >= fields_of_the_grammar()


def test_every_sentence_of_the_validator_has_a_case() -> None:
    """A rule that somebody adds without a case is found here."""
    said = [problem for case in WRONG for problem in validate_spec(changed(*WRONG[case][:2]))]
    said += validate_spec(None) + [f"{EDITS}: {field} 'x' is used 2 times" for field in ("hostInterfaceName", "name")]

    for sentence in sentences_of_the_validator():
        assert any(re.fullmatch(sentence, problem, re.DOTALL) for problem in said), sentence


def problem_paths() -> list[str]:
    return [problem.partition(": ")[0] for case in WRONG for problem in validate_spec(changed(*WRONG[case][:2]))]


def fields_of_the_grammar() -> set[str]:
    """The names in the tables that `fields` is called with."""
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(spec))) if isinstance(node, ast.Call)]
    tables = [table for call in calls if ast.unparse(call.func) == "fields" for table in call.args]
    keys = [key for table in tables if isinstance(table, ast.Dict) for key in table.keys]
    return {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def sentences_of_the_validator() -> list[str]:
    """Each f-string that the validator yields, as a pattern."""
    yields = [n for n in ast.walk(ast.parse(inspect.getsource(spec))) if isinstance(n, ast.Yield | ast.GeneratorExp)]
    texts = [n.value if isinstance(n, ast.Yield) else n.elt for n in yields]
    return [
        "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".*" for part in text.values)
        for text in texts
        if isinstance(text, ast.JoinedStr)
    ]


EMPTY = {
    "hostPath": f"{EDITS}.deviceNodes.0.hostPath",
    "type": f"{EDITS}.deviceNodes.0.type",
    "permissions": f"{EDITS}.deviceNodes.0.permissions",
    "type of a mount": f"{EDITS}.mounts.0.type",
    "class of service": f"{EDITS}.intelRdt.closID",
}


@pytest.mark.parametrize("case", EMPTY)
def test_an_empty_text_is_as_good_as_none(case: str) -> None:
    assert validate_spec(changed(EMPTY[case], "")) == []


def test_the_root_class_of_service_is_a_slash() -> None:
    assert validate_spec(changed(f"{EDITS}.intelRdt.closID", "/")) == []


@pytest.mark.parametrize("document", [None, [], "text", 3])
def test_what_is_no_object_is_no_spec(document: Any) -> None:
    (problem,) = validate_spec(document)
    assert problem.startswith("document:")


def test_every_problem_is_reported() -> None:
    document = changed("kind", "x")
    document["devices"][0]["containerEdits"]["env"] = ["A", "B"]

    assert len(validate_spec(document)) == 3
