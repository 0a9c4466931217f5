"""CDI files are JSON or YAML; what the specification's library refuses to read defines nothing here either."""

from __future__ import annotations

import json

import pytest

from nodeagent.cdi.documents import parse_spec
from nodeagent.cdi.spec import Spec

DOCUMENT = {
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
    assert found.devices[0].container_edits.device_nodes[0].file_mode == 0o666


def test_json_is_yaml_too() -> None:
    assert parse_spec(json.dumps(DOCUMENT).encode(), suffix=".yaml").kind == "vendor.com/gpu"


WRONG = {
    "nothing": (b"", ".json", "is not JSON"),
    "nothing in YAML": (b"", ".yaml", "document: is not an object"),
    "cut off": (json.dumps(DOCUMENT).encode()[:40], ".json", "is not JSON"),
    "not text": (b"\xff\xfe\xfa", ".json", "is not JSON"),
    "not text in YAML": (b"\xff\xfe\xfa", ".yaml", "is not YAML"),
    "not YAML": (b"a: [", ".yaml", "is not YAML"),
    "too deep": (b"[" * 100_000, ".json", "is not JSON"),
    "a key twice": (b'{"kind": "a/b", "kind": "a/c"}', ".json", "the key 'kind' is there twice"),
    "a key twice in YAML": (b"kind: a/b\nkind: a/c\n", ".yaml", "the key 'kind' is there twice"),
    "two documents": (b"kind: a/b\n---\nkind: a/c\n", ".yaml", "is not YAML"),
    "a tag that would run code": (b"!!python/object/apply:os.getcwd []", ".yaml", "is not YAML"),
    "a rule broken": (b'{"cdiVersion": "0.5.0", "kind": "a/b", "devices": []}', ".json", "devices: is empty"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_file_is_said(case: str) -> None:
    content, suffix, problem = WRONG[case]

    with pytest.raises(ValueError, match=problem):
        parse_spec(content, suffix=suffix)
