"""CDI files are JSON or YAML; what the specification's library refuses to read defines nothing here either."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from nodeagent.cdi import ContainerEdits, DeviceNode, Spec, parse_spec

DOCUMENT: dict[str, Any] = {
    "cdiVersion": "0.5.0",
    "kind": "vendor.com/gpu",
    "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/x", "fileMode": 0o666}]}}],
}
YAML = """
cdiVersion: 0.5.0
kind: vendor.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - {path: /dev/x, fileMode: 0666}
"""


def test_json_and_yaml_say_the_same() -> None:
    found = parse_spec(YAML.encode(), suffix=".yaml")

    assert isinstance(found, Spec)
    assert found == parse_spec(json.dumps(DOCUMENT).encode(), suffix=".json")
    assert found == parse_spec(json.dumps(DOCUMENT).encode(), suffix=".yaml")
    assert found.devices[0].container_edits.device_nodes[0].file_mode == 0o666


LOOSE = """
cdiVersion: 0.6.0
kind: vendor.com/gpu
annotations: {vendor.com/made: 2026-01-31, vendor.com/tested: true, vendor.com/load: 1.50}
containerEdits:
devices:
- name: 0
  containerEdits:
    deviceNodes:
    - &node {path: /dev/x, hostPath: , uid: , fileMode: 0o666}
    - {<<: *node, major: 7}
    mounts:
- name: 1:0
  annotations: null
  containerEdits:
    hooks:
    - {hookName: createContainer, path: /bin/ctl, args: [ctl, =, 5, on]}
"""


def test_what_go_reads_without_quotes_or_values_is_read() -> None:
    """By hand one writes so, and podman and containerd take it."""
    spec = parse_spec(LOOSE.encode(), suffix=".yaml")

    assert [device.name for device in spec.devices] == ["0", "1:0"]
    assert list(spec.annotations.values()) == ["2026-01-31", "true", "1.5"]
    first, second = (device.container_edits for device in spec.devices)
    node = DeviceNode(path="/dev/x", file_mode=0o666)
    assert first == ContainerEdits(device_nodes=(node, structs.replace(node, major=7)))
    assert second.hooks[0].args == ("ctl", "=", "5", "true")


def test_null_and_numbers_for_texts_are_read_in_json_too() -> None:
    edits = {**DOCUMENT["devices"][0]["containerEdits"], "mounts": None}
    document = {**DOCUMENT, "devices": [{"name": 0, "containerEdits": edits}]}

    found = parse_spec(json.dumps(document).encode(), suffix=".json")

    assert found == parse_spec(json.dumps(DOCUMENT).encode(), suffix=".json")


WRONG = {
    "nothing": (b"", ".json", "is not JSON"),
    "nothing in YAML": (b"", ".yaml", "document: is not an object"),
    "cut off": (json.dumps(DOCUMENT).encode()[:40], ".json", "is not JSON"),
    "not text": (b"\xff\xfe\xfa", ".json", "is not JSON"),
    "not text in YAML": (b"\xff\xfe\xfa", ".yaml", "is not YAML"),
    "not YAML": (b"a: [", ".yaml", "is not YAML"),
    "too deep": (b"[" * 100_000, ".json", "is not JSON"),
    "deep": (b"[" * 700 + b"]" * 700, ".json", "document: is not an object"),
    "a key twice": (b'{"kind": "a/b", "kind": "a/c"}', ".json", "duplicate key 'kind'"),
    "a key twice in YAML": (b"kind: a/b\nkind: a/c\n", ".yaml", "duplicate key 'kind'"),
    "two documents": (b"kind: a/b\n---\nkind: a/c\n", ".yaml", "is not YAML"),
    "a tag that would run code": (b"!!python/object/apply:os.getcwd []", ".yaml", "is not YAML"),
    "a rule broken": (b'{"cdiVersion": "0.5.0", "kind": "a/b", "devices": []}', ".json", "devices:"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_file_is_said(case: str) -> None:
    content, suffix, problem = WRONG[case]

    with pytest.raises(ValueError, match=problem):
        parse_spec(content, suffix=suffix)
