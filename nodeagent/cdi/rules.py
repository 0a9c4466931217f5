"""A strict validator of CDI files.

The JSON schema that the specification ships lets unknown fields pass; the Go library refuses them, and so do we. The
grammar below is a table of the fields of each object; on top come the rules between fields: names unique, version not
below what the fields need, no device without edits. Source: CDI SPEC.md v1.1.0, pkg/cdi and pkg/parser.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from nodeagent.cdi.spec import VERSIONS, ContainerEdits, Spec, minimum_version

#: (value, path) -> one sentence per problem
Check = Callable[[Any, str], Iterator[str]]

_CLASS_PART = r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
KIND = re.compile(rf"{_CLASS_PART}/{_CLASS_PART}")
DEVICE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
HOOK_NAMES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
UINT32_MAX = 2**32 - 1


def text(pattern: str | re.Pattern[str] = ".+", expected: str = "a non-empty string") -> Check:
    compiled = re.compile(pattern, re.DOTALL) if isinstance(pattern, str) else pattern

    def check(value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            yield f"{path}: {value!r} is not {expected}"

    return check


def integer(lowest: int = 0, highest: int = 2**63 - 1) -> Check:
    def check(value: Any, path: str) -> Iterator[str]:
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            yield f"{path}: {value!r} is not an integer from {lowest} to {highest}"

    return check


def boolean(value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, bool):
        yield f"{path}: {value!r} is not true or false"


def listing(item: Check) -> Check:
    def check(value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, list):
            yield f"{path}: is not a list"
            return
        for index, element in enumerate(value):
            yield from item(element, f"{path}[{index}]")

    return check


def string_map(value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict) or not all(isinstance(part, str) for pair in value.items() for part in pair):
        yield f"{path}: is not a map of strings"


def fields(required: Mapping[str, Check], optional: Mapping[str, Check]) -> Check:
    known = {**required, **optional}

    def check(value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{path or 'document'}: is not an object"
            return
        yield from (f"{_join(path, name)}: is missing" for name in required if name not in value)
        for name, part in value.items():
            if name not in known:
                yield f"{_join(path, str(name))}: is not a field of CDI"
            else:
                yield from known[name](part, _join(path, name))

    return check


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


ENV = listing(text("[^=]+=.*", "NAME=value"))
DEVICE_NODE = fields(
    {"path": text()},
    {
        "hostPath": text(),
        "type": text("[bcup]", 'one of "b", "c", "u", "p"'),
        "major": integer(),
        "minor": integer(),
        "fileMode": integer(0, 0o7777),
        "permissions": text("[rwm]+|none", 'letters of "rwm"'),
        "uid": integer(0, UINT32_MAX),
        "gid": integer(0, UINT32_MAX),
    },
)
MOUNT = fields({"hostPath": text(), "containerPath": text()}, {"options": listing(text()), "type": text()})
HOOK = fields(
    {"hookName": text("|".join(HOOK_NAMES), "the name of an OCI hook"), "path": text()},
    {"args": listing(text(".*", "a string")), "env": ENV, "timeout": integer(1)},
)
INTEL_RDT = fields(
    {},
    {
        "closID": text(r"/|(?!\.{1,2}$)[^/\n]{1,4095}", "a file name"),
        "l3CacheSchema": text(),
        "memBwSchema": text(),
        "schemata": listing(text()),
        "enableMonitoring": boolean,
        "enableCMT": boolean,
        "enableMBM": boolean,
    },
)
CONTAINER_EDITS = fields(
    {},
    {
        "env": ENV,
        "deviceNodes": listing(DEVICE_NODE),
        "netDevices": listing(fields({"hostInterfaceName": text(), "name": text()}, {})),
        "mounts": listing(MOUNT),
        "hooks": listing(HOOK),
        "intelRdt": INTEL_RDT,
        "additionalGids": listing(integer(0, UINT32_MAX)),
    },
)
DEVICE = fields(
    {"name": text(DEVICE_NAME, "a CDI device name"), "containerEdits": CONTAINER_EDITS}, {"annotations": string_map}
)
SPEC = fields(
    {
        "cdiVersion": text("|".join(map(re.escape, VERSIONS)), "a version of CDI"),
        "kind": text(KIND, "vendor/class"),
        "devices": listing(DEVICE),
    },
    {"containerEdits": CONTAINER_EDITS, "annotations": string_map},
)


def validate_spec(document: Any) -> list[str]:
    """Everything that is wrong with a CDI document (as parsed from JSON); an empty list means valid."""
    problems = list(SPEC(document, ""))
    return problems or list(_relations(msgspec.convert(document, Spec)))


def _relations(spec: Spec) -> Iterator[str]:
    """The rules between fields, for a document whose fields are right one by one."""
    needed = minimum_version(spec)
    if VERSIONS.index(needed) > VERSIONS.index(spec.cdi_version):
        yield f"cdiVersion: {spec.cdi_version!r} is below {needed!r}, which its fields need"
    if not spec.devices:
        yield "devices: is empty"
    names = Counter(device.name for device in spec.devices)
    yield from (f"devices: the name {name!r} is used {count} times" for name, count in names.items() if count > 1)
    for index, device in enumerate(spec.devices):
        if device.container_edits == ContainerEdits():
            yield f"devices[{index}].containerEdits: is empty"
