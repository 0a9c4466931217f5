"""Policies, bindings and webhooks in protobuf, as a Kubernetes 1.36 writes them with every field set."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from manciple.wire import codec, protobuf
from manciple.wire.registry import registry
from tests import conformance

PROTOBUF = "application/vnd.kubernetes.protobuf"
#: Of each of the two requests that recorded the forms.
_OWN = ("uid", "creationTimestamp", "managedFields")


def recorded() -> dict[str, dict[str, Any]]:
    return {case["resource"]: case for case in json.loads(conformance.read("admission_protobuf.json"))}


def settled(document: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in document["metadata"].items() if key not in _OWN}
    return {key: value for key, value in document.items() if value != {}} | {"metadata": metadata}


@pytest.mark.parametrize("case", recorded().values(), ids=recorded().keys())
def test_what_the_reference_writes_is_read_and_written_the_same(case: dict[str, Any]) -> None:
    kind = registry.by_resource(case["resource"])
    body = base64.b64decode(case["protobuf"])
    read = codec.decode(kind, body, content_type=PROTOBUF, strictness="Ignore").object
    assert settled(codec.to_builtins(read)) == settled(case["object"])
    again = codec.decode(kind, protobuf.encode_object(read), content_type=PROTOBUF, strictness="Ignore").object
    assert again == read
