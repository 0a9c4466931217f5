"""Bodies that are made to cost more than they are worth: refused, or judged, in little time and memory."""

from __future__ import annotations

import gzip
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from claims import admission
from claims.kinds.pod_strategy import warnings_of
from claims.kinds.pods import Pod
from claims.kinds.registration import POD
from inventory.kinds.node_rules import validate_node_selector_term
from inventory.kinds.nodes import NodeSelectorTerm
from manciple.api import verbs
from manciple.api.answers import BODY_LIMIT
from manciple.store import records
from manciple.store.hooks import Write
from manciple.wire import codec, managed_fields, patch, protobuf
from manciple.wire.apply import Manager, apply_patch
from manciple.wire.base import ObjectMeta
from manciple.wire.documents import MAX_DEPTH, MAX_VALUES
from manciple.wire.errors import ApiError, BadRequest, Invalid, TooLarge
from manciple.wire.identity import SYSTEM
from manciple.wire.limits import TimeLimitExceeded, time_limit
from manciple.wire.machinery import Namespace
from manciple.wire.managed_fields import track_create, track_update
from manciple.wire.registry import registry
from manciple.wire.selectors import parse_field_selector, parse_label_selector
from manciple.wire.validation import Path, unqualified_finalizers, validate_list
from manciple.wire.wireformat import delimited_field
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import JSON_PATCH, NAMESPACES, PODS, STRATEGIC, Api, pod

__all__ = ["api"]

#: CPU seconds and bytes of memory that one hostile body may take.
SECONDS, BYTES = 4.0, 200_000_000
MANY = MAX_VALUES - 100
NOW = "2026-01-01T00:00:00Z"
YAML = "application/yaml"
MANAGER = Manager(name="m", operation="Apply", api_version="v1", subresource="")


def read(body: bytes, *, media: str = "application/json") -> Callable[[], object]:
    assert len(body) <= BODY_LIMIT
    return lambda: codec.read_document(body, content_type=media)


def yaml(body: bytes) -> Callable[[], object]:
    return read(body, media=YAML)


TEN_SECONDS_OF_YAML = b"".join(b"key-%05d: value\n" % number for number in range(40_000))


def test_yaml_has_a_limit_of_its_own_which_json_under_its_name_has_not() -> None:
    with pytest.raises(TooLarge, match=r"limit of YAML is 524288 bytes; send a larger document as JSON"):
        yaml(TEN_SECONDS_OF_YAML)()
    large = {f"key-{number:05}": "value" for number in range(40_000)}
    assert yaml(json.dumps(large).encode())() == large


class Passed:
    next_look = 0.0
    has_passed = True


LONG = {f"key-{number}": "value" for number in range(100)}
SELECTING = codec.decode_value(
    NodeSelectorTerm, {"matchExpressions": [{"key": "a", "operator": "In", "values": list(LONG)}]}
)
EQUAL_PORTS = codec.decode_value(
    Pod, {"spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}] * 1_000}]}}
)
LOOPS: dict[str, Callable[[], object]] = {
    "the warnings about a pod": lambda: list(warnings_of(EQUAL_PORTS)),
    "objects in JSON": read(b'[{"a": 1}]'),
    "events of YAML": yaml(b"a: b"),
    "operations": lambda: patch.json_patch({}, [{"op": "add", "path": "/a", "value": 1}]),
    "a merge": lambda: patch.merge_patch({}, {"a": 1}),
    "a map": lambda: codec.decode_value(Namespace, {"metadata": {"labels": LONG}}),
    "the validation of items": lambda: validate_list(["a"], Path("spec"), lambda _item, _path: []),
    "the validation of a selector": lambda: validate_node_selector_term(SELECTING, Path("term")),
    "a list": lambda: codec.decode_value(Namespace, {"metadata": {"finalizers": list(LONG)}}),
}


@pytest.mark.parametrize("work", LOOPS.values(), ids=LOOPS.keys())
def test_reading_and_patching_end_with_the_time_of_their_request(work: Callable[[], object]) -> None:
    with time_limit(Passed()), pytest.raises(TimeLimitExceeded):
        work()


def created(spec: dict[str, Any], **meta: Any) -> Callable[[], object]:
    """What a POST of such a pod does, up to the store."""

    def create() -> object:
        metadata = {"name": "p", "namespace": "default", **meta}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        body = json.dumps(document, separators=(",", ":")).encode()
        read_pod = codec.decode(POD, body, content_type="application/json", strictness="Warn").object
        prepared = POD.prepare_create(read_pod)
        verbs.refuse_wrong(POD, prepared, POD.validate_create(prepared))
        return prepared

    return create


MAIN = {"name": "a", "image": "b"}
LAUGHS = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 9)) for i in range(12)
)
USES = [{"name": "b", "request": f"r{i}"} for i in range(30_000)] + [{"name": "a"}] * 30_000
MANY_CLAIMS = [{"name": f"c{i:03}{'x' * 59}", "resourceClaimName": "c"} for i in range(128)]
REFUSED: dict[str, Callable[[], object]] = {
    "laughs in YAML": yaml(LAUGHS),
    "laughs by merging": yaml(
        b"a0: &a0 {x: 1}\n" + b"".join(b"a%d: &a%d {<<: [*a%d, *a%d]}\n" % (i, i, i - 1, i - 1) for i in range(1, 40))
    ),
    "an alias inside itself": yaml(b"a: &a [*a]"),
    "brackets in YAML": yaml(b"[" * 500_000),
    "indentation in YAML": yaml(b"".join(b" " * i + b"a:\n" for i in range(1000))),
    "items in YAML": yaml(b"- a\n" * 700_000),
    "a number in YAML": yaml(b"a: 0x" + b"f" * 500_000),
    "two documents in YAML": yaml(b"a: b\n---\na: b\n"),
    "a tag in YAML": yaml(b"!!python/object/apply:os.system ['true']"),
    "brackets in JSON": read(b"[" * 1_500_000),
    "objects in JSON": read(b'{"a":' * 400_000),
    "items in JSON": read(b"[" + b"1," * 1_000_000 + b"1]"),
    "a number in JSON": read(b"1" * 2_000_000),
    "not a number": read(b'{"a":NaN}'),
    "half a character": read(b'{"a":"\\ud800"}'),
    "no UTF-8": read(b'{"a":"\xff"}'),
    "containers": created({"containers": [{}] * MANY}),
    "variables": created({"containers": [{**MAIN, "env": [{}] * MANY}]}),
    "claims of a container": created(
        {"containers": [{**MAIN, "resources": {"claims": USES}}], "resourceClaims": MANY_CLAIMS}
    ),
    "tolerations": created({"containers": [MAIN], "tolerations": [{}] * MANY}),
    "labels": created({"containers": [MAIN]}, labels={f"{i:x}!": "" for i in range(MANY)}),
    "finalizers": created({"containers": [MAIN]}, finalizers=[""] * MANY),
    "an exponent": created({"containers": [{**MAIN, "resources": {"limits": {"cpu": "1e999999999"}}}]}),
    "digits": created({"containers": [{**MAIN, "resources": {"limits": {"cpu": "0" * 1_000_000 + "!"}}}]}),
    "empty messages": lambda: protobuf.decode(POD.type, delimited_field(2, b"\x12\x00" * 1_400_000)),
    "packed numbers": lambda: protobuf.decode(
        POD.type, delimited_field(2, delimited_field(14, delimited_field(4, b"\x01" * 2_000_000)))
    ),
    "copies of copies": lambda: patch.json_patch(
        {"a": {"x": "y"}}, [{"op": "copy", "from": "/a", "path": f"/a/b{i}"} for i in range(60)]
    ),
    "copies of much": lambda: patch.json_patch(
        {"a": "x" * 1_000_000}, [{"op": "copy", "from": "/a", "path": "/b"} for _ in range(10_000)]
    ),
    "steps down": lambda: patch.json_patch(
        {"a": {}}, [{"op": "add", "path": "/a" * i, "value": {}} for i in range(1, 1500)]
    ),
    "operations": lambda: patch.json_patch({}, [{"op": "add", "path": "/a", "value": 1}] * 10_001),
    "blanks in a selector": lambda: parse_label_selector("a in (b" + " " * 1_000_000),
    "escapes in a selector": lambda: parse_field_selector("\\" * 1_000_001),
}


def measured(work: Callable[[], object]) -> tuple[object, float]:
    """(what it returned or raised, CPU seconds)"""
    began = time.process_time()
    try:
        outcome: object = work()
    except (ApiError, ValueError) as error:
        outcome = error
    return outcome, time.process_time() - began


@pytest.mark.sample(10)
@pytest.mark.parametrize("case", REFUSED)
def test_a_hostile_body_is_refused_at_little_cost(case: str) -> None:
    outcome, seconds = measured(REFUSED[case])
    assert isinstance(outcome, ApiError | ValueError), f"{case}: {type(outcome)}"
    if isinstance(outcome, ApiError):
        assert outcome.code in (400, 413, 422)
        assert len(json.dumps(outcome.status())) < BODY_LIMIT
    assert seconds < SECONDS


BARE_FINALIZERS = tuple(f"x{i}" for i in range(50_000))
ACCEPTED: dict[str, Callable[[], object]] = {
    "a name twice, many times": read(b"{" + b",".join(b'"%x":1,"%x":1' % (i, i) for i in range(60_000)) + b"}"),
    "unknown fields": lambda: codec.decode(
        POD,
        json.dumps({"apiVersion": "v1", "kind": "Pod", "spec": {str(i): 1 for i in range(100_000)}}).encode(),
        content_type="application/json",
        strictness="Warn",
    ),
    "elements of a strategic patch": lambda: patch.strategic_merge_patch(
        {"spec": {"containers": [{"name": f"a{i}"} for i in range(20_000)]}},
        {"spec": {"containers": [{"name": f"n{i}"} for i in range(90_000)]}},
        POD.type,
    ),
    "values of a strategic patch": lambda: patch.strategic_merge_patch(
        {"metadata": {"finalizers": [f"a{i}" for i in range(20_000)]}},
        {
            "metadata": {
                "finalizers": [f"n{i}" for i in range(50_000)],
                "$deleteFromPrimitiveList/finalizers": [f"b{i}" for i in range(50_000)],
            }
        },
        POD.type,
    ),
    "finalizers that were there": lambda: list(unqualified_finalizers(BARE_FINALIZERS, BARE_FINALIZERS)),
    "fields of a manager": lambda: track_update(
        registry.by_resource("namespaces"),
        _annotated_namespace(20_000, "y"),
        track_create(registry.by_resource("namespaces"), _annotated_namespace(20_000, "x"), manager="alice", now=NOW),
        manager="bob",
        now=NOW,
    ),
    "fields that a manager gives up": lambda: apply_patch(
        apply_patch(
            None, _annotated(20_000), manager=MANAGER, force=False, shape=managed_fields.struct(Namespace), now=NOW
        ),
        _annotated(1),
        manager=MANAGER,
        force=False,
        shape=managed_fields.struct(Namespace),
        now=NOW,
    ),
    "blanks behind a selector": lambda: parse_label_selector("a in (b)" + " " * 500_000),
    "a condition of many values": lambda: parse_label_selector(f"a in ({','.join(f'v{i}' for i in range(100_000))})"),
}


def _annotated_namespace(count: int, value: str) -> Namespace:
    return Namespace(metadata=ObjectMeta(name="n", annotations={f"a{i}": value for i in range(count)}))


def _annotated(count: int) -> dict[str, Any]:
    annotations = {f"a{i}": "x" for i in range(count)}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "annotations": annotations}}


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", ACCEPTED)
def test_what_is_large_and_right_takes_time_in_proportion(case: str) -> None:
    outcome, seconds = measured(ACCEPTED[case])
    assert not isinstance(outcome, Exception), outcome
    assert seconds < SECONDS


def test_what_breaks_a_rule_a_hundred_thousand_times_is_told_two_hundred_times() -> None:
    outcome, _ = measured(REFUSED["variables"])
    assert isinstance(outcome, Invalid)
    assert outcome.message.endswith(" more]")
    assert len(outcome.status()["details"]["causes"]) == 200


def test_equal_ports_are_warned_of_a_hundred_times_and_not_in_every_pair() -> None:
    with records.collecting() as remarks:
        admission.warn_of_pod(Write(operation="CREATE", kind=POD, new=EQUAL_PORTS, identity=SYSTEM))
    assert len(remarks.warnings) == admission.MOST_WARNINGS


def test_a_small_body_does_not_take_much_memory() -> None:
    tracemalloc.start()
    try:
        measured(created({"containers": [{}] * (MANY // 10)}))
        assert tracemalloc.get_traced_memory()[1] < BYTES // 10
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("media", ["application/json", YAML])
def test_a_document_may_be_as_deep_as_the_limit_and_no_deeper(media: str) -> None:
    codec.read_document(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, content_type=media)
    with pytest.raises(BadRequest):
        codec.read_document(b"[" * (MAX_DEPTH + 2) + b"]" * (MAX_DEPTH + 2), content_type=media)


# Through the door.


def test_nothing_is_unpacked(api: Api) -> None:
    """A megabyte that stands for a gigabyte stays a megabyte, and is no JSON."""
    packed = gzip.compress(b" " * 50_000_000)
    for encoding in ("gzip", "deflate", "br"):
        answer = api.send("post", PODS, body=packed, extra={"Content-Encoding": encoding})
        assert answer.code in (400, 415), answer.text


def test_a_patch_that_doubles_what_is_there_sixty_times_is_refused(api: Api) -> None:
    api.made(PODS, pod(annotations={"a": "b"}))
    copies = [{"op": "copy", "from": "/metadata", "path": f"/metadata/annotations/b{i}"} for i in range(60)]
    answer = api.patch(f"{PODS}/p", copies, content_type=JSON_PATCH)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert "Unable to complete the copy, the accumulated size increase of copy is " in answer.message


@pytest.mark.parametrize("directive", [{}, [], 1, {"$patch": "delete"}], ids=["object", "list", "number", "directive"])
def test_a_strange_strategic_patch_is_answered(api: Api, directive: Any) -> None:
    api.made(PODS, pod(finalizers=["example.com/a"]))
    body = {"metadata": {"$deleteFromPrimitiveList/finalizers": directive}}
    assert api.patch(f"{PODS}/p", body, content_type=STRATEGIC).code in (200, 400, 422)


def test_a_body_over_the_limit_is_not_read(api: Api) -> None:
    answer = api.post(NAMESPACES, b" " * (BODY_LIMIT + 1))
    assert (answer.code, answer.reason) == (413, "RequestEntityTooLarge")
