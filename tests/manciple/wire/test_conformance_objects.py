"""One object of every kind and version with every field set, as the reference writes it, comes back unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from manciple.wire import codec, protobuf
from tests.conformance import objects
from tests.manciple.wire.kinds import TYPES, make_kind

DOCUMENTS = objects()


@pytest.fixture(params=sorted(DOCUMENTS))
def document(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(DOCUMENTS[request.param])


def test_json_comes_back_without_loss(document: dict[str, Any]) -> None:
    kind = make_kind(document["apiVersion"], document["kind"])
    body = codec.encode(document)
    decoded = codec.decode(kind, body, content_type="application/json", strictness="Strict")
    assert codec.to_builtins(decoded.object) == document


def test_protobuf_comes_back_without_loss(document: dict[str, Any]) -> None:
    kind = make_kind(document["apiVersion"], document["kind"])
    body = protobuf.encode_object(codec.decode_value(kind.type, document))
    decoded = codec.decode(kind, body, content_type="application/vnd.kubernetes.protobuf", strictness="Strict")
    assert codec.to_builtins(decoded.object) == document


def test_the_stored_text_comes_back_without_loss(document: dict[str, Any]) -> None:
    type_ = TYPES[document["apiVersion"], document["kind"]]
    value = codec.decode_value(type_, document)
    assert codec.decode_text(type_, codec.encode(value)) == value
