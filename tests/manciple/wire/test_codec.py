"""Bodies of requests as typed values: what is forgiven, what is reported, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.devices import DeviceAttribute, DeviceCapacity
from manciple.wire import codec, documents, protobuf
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import BadRequest, UnsupportedMediaType
from manciple.wire.machinery import DeleteOptions, Preconditions
from tests.manciple.wire.kinds import make_kind

CLAIM = make_kind("resource.k8s.io/v1", "ResourceClaim")
POD = make_kind("v1", "Pod")
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
PREFIX = 'ResourceClaim in version "v1" cannot be handled as a ResourceClaim: '


def decode_claim(document: Any, strictness: codec.Strictness = "Strict") -> ResourceClaim:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    decoded = codec.decode(CLAIM, body, content_type=JSON, strictness=strictness)
    assert isinstance(decoded.object, ResourceClaim)
    return decoded.object


def refusal(body: bytes, content_type: str = JSON, strictness: codec.Strictness = "Strict") -> str:
    with pytest.raises(BadRequest) as caught:
        codec.decode(CLAIM, body, content_type=content_type, strictness=strictness)
    return caught.value.message


STRICT = {
    "one unknown field": (b'{"spec":{"foo":1}}', ['unknown field "spec.foo"']),
    "several, in the order of the document": (
        b'{"x":1,"spec":{"devices":{"requests":[{},{"bar":2}],"baz":3}}}',
        ['unknown field "x"', 'unknown field "spec.devices.requests[1].bar"', 'unknown field "spec.devices.baz"'],
    ),
    "case matters": (b'{"Spec":{},"metadata":{"Name":"a"}}', ['unknown field "Spec"', 'unknown field "metadata.Name"']),
    "a field twice": (b'{"metadata":{"name":"a","name":"b"}}', ['duplicate field "metadata.name"']),
    "a field three times is one duplicate": (b'{"spec":{},"spec":{},"spec":{}}', ['duplicate field "spec"']),
    "a map key twice": (b'{"metadata":{"labels":{"a":"1","a":"2"}}}', ['duplicate field "metadata.labels.a"']),
    "an unknown field twice": (b'{"foo":1,"foo":2}', ['duplicate field "foo"']),
    "a null unknown field": (b'{"foo":null}', ['unknown field "foo"']),
}


@pytest.mark.parametrize("name", STRICT)
def test_strict_names_every_unknown_and_duplicate_field(name: str) -> None:
    body, findings = STRICT[name]
    assert refusal(body) == f"{PREFIX}strict decoding error: {', '.join(findings)}"


@pytest.mark.parametrize("name", STRICT)
def test_warn_gives_the_same_as_warnings_and_ignore_says_nothing(name: str) -> None:
    body, findings = STRICT[name]
    warned = codec.decode(CLAIM, body, content_type=JSON, strictness="Warn")
    ignored = codec.decode(CLAIM, body, content_type=JSON, strictness="Ignore")
    assert list(warned.warnings) == findings
    assert ignored.warnings == ()
    assert ignored.object == warned.object


def test_raw_json_is_not_looked_into() -> None:
    parameters = {"kind": "X", "anything": [{"goes": None}]}
    opaque = {"driver": "d.example.com", "parameters": parameters}
    claim = decode_claim({"spec": {"devices": {"config": [{"opaque": opaque}]}}})
    assert claim.spec.devices.config[0].opaque is not None
    assert claim.spec.devices.config[0].opaque.parameters == parameters


MISTYPED = {
    "a number for a text": ({"metadata": {"name": 5}}, "number into field metadata.name of type string"),
    "a text for a number": (
        {"spec": {"devices": {"requests": [{"exactly": {"count": "5"}}]}}},
        "string into field spec.devices.requests[0].exactly.count of type int",
    ),
    "a fraction for an integer": (
        {"spec": {"devices": {"requests": [{"exactly": {"count": 1.5}}]}}},
        "number into field spec.devices.requests[0].exactly.count of type int",
    ),
    "a bool for an integer": ({"metadata": {"generation": True}}, "bool into field metadata.generation of type int"),
    "a list for an object": ({"spec": []}, "array into field spec of type ResourceClaimSpec"),
    "an object for a list": ({"metadata": {"finalizers": {}}}, "object into field metadata.finalizers of type array"),
    "a number in a map of texts": (
        {"metadata": {"labels": {"a": 1}}},
        "number into field metadata.labels.a of type string",
    ),
    "a bool for a quantity": (
        {"spec": {"devices": {"requests": [{"exactly": {"capacity": {"requests": {"m": True}}}}]}}},
        "bool into field spec.devices.requests[0].exactly.capacity.requests.m of type Quantity",
    ),
    "a list for the whole": ([], "array into a value of type ResourceClaim"),
    "null for the whole": (None, "null into a value of type ResourceClaim"),
}


@pytest.mark.parametrize("name", MISTYPED)
def test_a_wrong_type_is_named_with_its_path(name: str) -> None:
    document, expected = MISTYPED[name]
    assert refusal(json.dumps(document).encode()) == f"{PREFIX}json: cannot unmarshal {expected}"


def test_every_wrong_type_is_named_besides_the_unknown_fields() -> None:
    requests = [{"exactly": {"count": "two", "adminAccess": 1}, "colour": "red"}, "b"]
    told = refusal(json.dumps({"spec": {"devices": {"requests": requests}}}).encode(), strictness="Strict")
    path = "spec.devices.requests"
    assert told == PREFIX + ", ".join(
        (
            f"json: cannot unmarshal string into field {path}[0].exactly.count of type int",
            f"json: cannot unmarshal number into field {path}[0].exactly.adminAccess of type bool",
            f"json: cannot unmarshal string into field {path}[1] of type DeviceRequest",
            f'strict decoding error: unknown field "{path}[0].colour"',
        )
    )


def test_an_answer_names_no_more_wrong_values_than_a_reader_wants() -> None:
    told = refusal(json.dumps({"metadata": {"finalizers": [1] * 100_000}}).encode())
    assert told.count("cannot unmarshal") == 20


def test_an_integer_beyond_its_width_is_refused_with_its_path() -> None:
    assert "field metadata.generation" in refusal(b'{"metadata":{"generation":9223372036854775808}}')
    with pytest.raises(BadRequest, match=r"spec\.priority"):
        codec.decode_value(Pod, {"spec": {"priority": 2**31}})


def test_int_or_string_takes_both_and_nothing_else() -> None:
    def port(value: Any) -> Any:
        probe = {"httpGet": {"port": value}}
        return codec.decode_value(Pod, {"spec": {"containers": [{"livenessProbe": probe}]}})

    for value in (80, "http"):
        assert port(value).spec.containers[0].liveness_probe.http_get.port == value
    with pytest.raises(BadRequest, match="int or string"):
        port([80])


def test_null_stands_for_absent() -> None:
    document = {"metadata": None, "spec": {"devices": {"requests": None, "constraints": [None]}}, "status": None}
    claim = decode_claim(document)
    assert claim.metadata == ObjectMeta()
    assert claim.spec.devices.requests == ()
    assert len(claim.spec.devices.constraints) == 1


def test_null_elements_become_zero_values() -> None:
    document = {"metadata": {"finalizers": [None, "a"], "labels": {"x": None}}}
    metadata = decode_claim(document).metadata
    assert metadata.finalizers == ("", "a")
    assert metadata.labels == {"x": ""}


QUANTITIES = {
    "text stays": ("1.5Gi", "1.5Gi"),
    "an integer": (10, "10"),
    "a fraction": (0.5, "0.5"),
    "an exponent": (1e21, "1000000000000000000000"),
}


@pytest.mark.parametrize("name", QUANTITIES)
def test_amounts_are_kept_as_text(name: str) -> None:
    given, kept = QUANTITIES[name]
    assert codec.decode_value(DeviceCapacity, {"value": given}).value == kept


TIMES = {
    "UTC": ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
    "another zone": ("2026-01-02T05:04:05+02:00", "2026-01-02T03:04:05Z"),
    "fractions are cut": ("2026-01-02T03:04:05.999999999Z", "2026-01-02T03:04:05Z"),
}


@pytest.mark.parametrize("name", TIMES)
def test_times_become_utc_seconds(name: str) -> None:
    given, kept = TIMES[name]
    assert decode_claim({"metadata": {"creationTimestamp": given}}).metadata.creation_timestamp == kept


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-01-02", "2026-W01-1T00:00:00Z", "2026-01-02T03:04:05", "2026-13-02T03:04:05Z"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    assert "metadata.creationTimestamp: " in refusal(json.dumps({"metadata": {"creationTimestamp": text}}).encode())


def test_api_version_and_kind_are_filled_in() -> None:
    claim = decode_claim({})
    assert (claim.api_version, claim.kind) == ("resource.k8s.io/v1", "ResourceClaim")


def test_another_kind_or_version_is_refused() -> None:
    assert "(Pod) does not match the expected kind (ResourceClaim)" in refusal(b'{"kind":"Pod"}')
    expected = "the API version in the data (v1) does not match the expected API version (resource.k8s.io/v1)"
    assert refusal(b'{"apiVersion":"v1"}') == expected
    body = protobuf.encode_object(Pod(api_version="v1", kind="Pod"))
    assert refusal(body, PROTOBUF) == expected


HOSTILE = {
    "nothing": b"",
    "half a document": b'{"spec":',
    "two documents": b"{} {}",
    "not UTF-8": b'{"a":"\xff"}',
    "half a surrogate pair": b'{"metadata":{"name":"\\ud800"}}',
    "NaN": b'{"a":NaN}',
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"spec":' * 65 + b"{}" + b"}" * 65,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_json_document_is_refused(name: str) -> None:
    assert refusal(HOSTILE[name])


def test_a_document_may_nest_as_deep_as_the_limit() -> None:
    levels = documents.MAX_DEPTH
    assert documents.parse(b"[" * levels + b"]" * levels, media=JSON) is not None


HOSTILE_YAML = {
    "deep lists": b"[" * 100_000,
    "deep sequences": b"- " * 50_000,
    "a tag that makes Python objects": b"!!python/object/apply:os.getcwd []",
    "aliases that multiply": b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
        b"%c: &%c [%s]\n" % (name, name, b",".join([b"*%c" % (name - 1)] * 9)) for name in range(98, 108)
    ),
    "an alias of itself": b"a: &a [*a]",
    "several documents": b"a: b\n---\nc: d\n",
    "no number": b"a: .nan",
    "a list as a key": b"? [a]\n: b",
    "a stray control character": b"a: \x01",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_YAML)
def test_what_is_no_yaml_document_is_refused(name: str) -> None:
    assert refusal(HOSTILE_YAML[name], YAML).startswith("error converting YAML to JSON: yaml: ")


def test_yaml_says_the_same_as_json() -> None:
    body = b"""
    apiVersion: v1
    kind: Pod
    metadata: &meta
      name: a
      labels: {1: one, true: "yes", app: x}
      annotations: {since: "2026-01-01"}
    spec:
      nodeSelector: {<<: {zone: a}, disk: ssd}
      volumes:
      - name: v
        configMap: {name: c, defaultMode: 0644}
      - {name: w, secret: {defaultMode: 0o600}}
      containers:
      - {name: c, image: "registry.example.com:5000/x", args: ["1:30", "0x10"], ports: [{containerPort: 0x50}]}
    """
    pod = codec.decode(POD, body, content_type="text/yaml; charset=utf-8", strictness="Strict").object
    assert pod.metadata.labels == {"1": "one", "true": "yes", "app": "x"}
    assert pod.metadata.annotations == {"since": "2026-01-01"}
    assert pod.spec.node_selector == {"zone": "a", "disk": "ssd"}
    assert [v.config_map.default_mode for v in pod.spec.volumes if v.config_map] == [0o644]
    assert [v.secret.default_mode for v in pod.spec.volumes if v.secret] == [0o600]
    assert pod.spec.containers[0].args == ("1:30", "0x10")
    assert pod.spec.containers[0].ports[0].container_port == 80


def test_yaml_reports_duplicates_and_keeps_plain_dates_and_base_60_as_text() -> None:
    assert 'duplicate field "metadata.name"' in refusal(b"metadata:\n  name: a\n  name: b\n", YAML)
    assert documents.parse(b"{a: 2026-01-01, b: 1:30}", media=YAML) == {"a": "2026-01-01", "b": "1:30"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e5", 100000),
        ("1e-2", 0.01),
        ("-2.5E+3", -2500),
        ("1.", 1),
        (".5", 0.5),
        ("08", 8),
        ("1e30", 1e30),
        ("1:30.5", "1:30.5"),
        ("e5", "e5"),
        ("1e", "1e"),
        ("1.2.3", "1.2.3"),
        (".", "."),
        ("'1e5'", "1e5"),
    ],
)
def test_yaml_takes_for_a_number_what_kubernetes_takes_for_one(text: str, value: object) -> None:
    (read,) = documents.parse(f"[{text}]".encode(), media=YAML)
    assert (read, type(read)) == (value, type(value))


def test_a_media_type_that_nobody_reads_is_415() -> None:
    with pytest.raises(UnsupportedMediaType) as caught:
        codec.decode(CLAIM, b"x", content_type="text/plain", strictness="Strict")
    assert caught.value.code == 415


def test_delete_options_are_read_in_every_format() -> None:
    options = DeleteOptions(
        api_version="v1",
        kind="DeleteOptions",
        grace_period_seconds=0,
        preconditions=Preconditions(uid="u", resource_version="7"),
        propagation_policy="Foreground",
        dry_run=("All",),
    )
    bodies = {JSON: codec.encode(options), YAML: codec.encode(options), PROTOBUF: protobuf.encode_object(options)}
    for content_type, body in bodies.items():
        assert codec.decode_body(DeleteOptions, body, content_type=content_type) == options
    assert codec.decode_body(DeleteOptions, b"", content_type=JSON) == DeleteOptions()


def test_builtins_may_be_read_as_maps_of_values() -> None:
    value = codec.decode_value(dict[str, DeviceAttribute], {"model": {"string": "A100", "unknown": 1}, "n": {"int": 0}})
    assert value == {"model": DeviceAttribute(string_value="A100"), "n": DeviceAttribute(int_value=0)}


def test_what_is_encoded_starts_with_its_identity_and_shows_required_zeros() -> None:
    claim = ResourceClaim(api_version="resource.k8s.io/v1", kind="ResourceClaim", metadata=ObjectMeta(name="a"))
    text = codec.encode(claim).decode()
    assert text == '{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"a"},"spec":{}}'
    assert codec.to_builtins(claim)["spec"] == {}
    assert codec.to_builtins(DeviceCapacity()) == {"value": "0"}


@pytest.mark.parametrize("entry", [{"manager": "m"}, {"manager": "m", "fieldsV1": {}}])
def test_owners_are_written_as_they_were_read_with_and_without_fields(entry: dict[str, Any]) -> None:
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "managedFields": [entry]}, "spec": {}}
    pod = codec.decode_text(Pod, json.dumps(document))
    assert json.loads(codec.encode(pod))["metadata"] == document["metadata"]
    assert codec.to_builtins(pod)["metadata"] == document["metadata"]
