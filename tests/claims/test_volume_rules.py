"""What a pod may take from Secrets, ConfigMaps and itself: what `test_recorded_rules.py` does not ask about."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from claims.kinds.pods import Pod
from claims.kinds.registration import POD
from claims.kinds.volume_rules import sources_of, validate_no_tokens
from claims.kinds.volumes import Volume, VolumeSource
from manciple.wire import codec
from manciple.wire.validation import Path

Document = dict[str, Any]


def token(**fields: Any) -> Document:
    return {"projected": {"sources": [{"serviceAccountToken": fields}]}}


def test_who_has_no_account_gets_no_token() -> None:
    volume = codec.decode_value(Volume, token(path="x", expirationSeconds=600))
    (error,) = validate_no_tokens(volume, Path("v"))
    assert (error.type, error.field) == ("FieldValueForbidden", "v.projected.sources[0].serviceAccountToken")


def test_every_source_that_a_volume_has_is_found() -> None:
    every = VolumeSource.__struct_fields__
    for source in every:
        assert sources_of(structs.replace(Volume(name="v"), **{source: object()})) == [source]
    assert sources_of(structs.replace(Volume(name="v"), **dict.fromkeys(every, 1))) == [*every]
    assert sources_of(Volume(name="v")) == []


def test_what_is_left_out_of_a_source_is_filled_in() -> None:
    field_of_pod = {"fieldPath": "metadata.name"}
    cpu = {"containerName": "c", "resource": "limits.cpu"}
    shown = {"items": [{"path": "a", "fieldRef": field_of_pod}, {"path": "b", "resourceFieldRef": cpu}]}
    sources = [*token(path="t")["projected"]["sources"], {"downwardAPI": {"items": shown["items"][:1]}}]
    variable = {"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}
    spec = {
        "containers": [{"name": "c", "image": "x", "env": [variable]}],
        "volumes": [{"name": "a", "downwardAPI": shown}, {"name": "b", "projected": {"sources": sources}}],
    }
    document = {"metadata": {"name": "x", "namespace": "default"}, "spec": spec}
    made = codec.to_builtins(POD.prepare_create(codec.decode_value(Pod, document)))
    filled_field, filled_amount = {**field_of_pod, "apiVersion": "v1"}, {**cpu, "divisor": "0"}
    assert made["spec"]["volumes"] == [
        {
            "name": "a",
            "downwardAPI": {
                "items": [{"path": "a", "fieldRef": filled_field}, {"path": "b", "resourceFieldRef": filled_amount}],
                "defaultMode": 420,
            },
        },
        {
            "name": "b",
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3600, "path": "t"}},
                    {"downwardAPI": {"items": [{"path": "a", "fieldRef": filled_field}]}},
                ],
                "defaultMode": 420,
            },
        },
    ]
    (variable_source,) = (one["valueFrom"] for one in made["spec"]["containers"][0]["env"])
    assert variable_source == {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}}
