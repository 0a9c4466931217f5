"""What repeats is kept once, and says what it said before."""

from __future__ import annotations

from claims.kinds.resource_claims import ResourceClaim
from manciple.wire import codec
from manciple.wire.base import Alike, shared_texts
from tests.builders import make_allocation, make_claim, make_node, make_request, make_result


def test_documents_say_what_they_said_before() -> None:
    allocation = make_allocation(make_result("gpu-0", pool="rack-1"), node="rack-1")
    requests = [make_request(name="one"), make_request(name="two", expressions=["true"])]
    for obj in (make_claim("a", requests=requests, allocation=allocation), make_node("rack-1", labels={"zone": "a"})):
        before = codec.encode(obj)
        read = codec.decode_text(type(obj), before.decode())
        assert shared_texts(read) is read
        assert read == obj
        assert codec.encode(read) == before


def test_equal_texts_and_empty_maps_of_two_documents_are_one() -> None:
    def read(name: str) -> ResourceClaim:
        made = make_claim(name, allocation=make_allocation(make_result("gpu-0", pool="rack-1")))
        return shared_texts(codec.decode_text(ResourceClaim, codec.encode(made).decode()))

    first, second = read("a"), read("b")
    assert first.metadata.labels is second.metadata.labels
    assert first.api_version is second.api_version
    assert pool_of(first) is pool_of(second)


def pool_of(claim: ResourceClaim) -> str:
    assert claim.status.allocation is not None
    return claim.status.allocation.devices.results[0].pool


def test_the_first_of_equal_values_stands_for_all_until_there_are_too_many() -> None:
    known = Alike[list[int]](most=2)
    first = known.first("a", [1])
    assert known.first("a", [1]) is first
    known.first("b", [2])
    known.first("c", [3])
    assert known.get("a") is None
