"""CertificateSigningRequests through the API: what may be asked for, approved, signed; messages are the reference's."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from manciple.access import authorization
from manciple.access.authentication import tokens
from manciple.access.authorization import Attributes, Decision
from manciple.wire.identity import Identity
from tests.manciple.access.client_keys import subject
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import TABLE, Api

__all__ = ["api"]

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
NODE_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
ONE = "/one"


def pem(name: str = "system:node:n1", *groups: str) -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject(name, groups or ("system:nodes",)))
    made = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM)


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def request(content: bytes | None = None, *, name: str = "one", **spec: Any) -> dict[str, Any]:
    asked = {
        "request": encoded(pem() if content is None else content),
        "signerName": "example.com/signer",
        "usages": ["client auth"],
        **spec,
    }
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {key: value for key, value in asked.items() if value is not None},
    }


def condition(type_: str, **others: str) -> dict[str, str]:
    return {"type": type_, "status": "True", "reason": "Why", **others}


UNSIGNED = pem().splitlines(keepends=True)
UNSIGNED[1] = UNSIGNED[1].replace(b"M", b"N", 1)

WRONG: dict[str, tuple[dict[str, Any], list[tuple[str, str, str]]]] = {
    "no request": (
        {"content": b""},
        [("FieldValueInvalid", "spec.request", "PEM block type must be CERTIFICATE REQUEST")],
    ),
    "no PEM": (
        {"content": b"hello"},
        [("FieldValueInvalid", "spec.request", "PEM block type must be CERTIFICATE REQUEST")],
    ),
    "a certificate": (
        {"content": pem().replace(b" REQUEST", b"")},
        [("FieldValueInvalid", "spec.request", "PEM block type must be CERTIFICATE REQUEST")],
    ),
    "a broken request": (
        {"content": b"".join(UNSIGNED)},
        [("FieldValueInvalid", "spec.request", "the certificate request cannot be read")],
    ),
    "no usages": ({"usages": None}, [("FieldValueRequired", "spec.usages", "Required value")]),
    "a strange usage": (
        {"usages": ["client auth", "fishing"]},
        [("FieldValueNotSupported", "spec.usages[1]", 'Unsupported value: "fishing": supported values: "any", ')],
    ),
    "a usage twice": (
        {"usages": ["client auth", "client auth"]},
        [("FieldValueDuplicate", "spec.usages[1]", 'Duplicate value: "client auth"')],
    ),
    "no signer": ({"signerName": None}, [("FieldValueRequired", "spec.signerName", "Required value")]),
    "the legacy signer": (
        {"signerName": "kubernetes.io/legacy-unknown"},
        [("FieldValueInvalid", "spec.signerName", "the legacy signerName is not allowed via this API version")],
    ),
    "a signer without a domain": (
        {"signerName": "kubernetes"},
        [("FieldValueInvalid", "spec.signerName", "must be a fully qualified domain and path of the form")],
    ),
    "a signer of a short domain": (
        {"signerName": "a/b"},
        [("FieldValueInvalid", "spec.signerName", "should be a domain with at least two segments separated by dots")],
    ),
    "a signer that is no name": (
        {"signerName": "Exa_mple.com/b c"},
        [
            ("FieldValueInvalid", "spec.signerName", 'Invalid value: "Exa_mple.com": validating label "Exa_mple"'),
            ("FieldValueInvalid", "spec.signerName", 'Invalid value: "b c": validating label "b c"'),
        ],
    ),
    "too short a time": (
        {"expirationSeconds": 599},
        [("FieldValueInvalid", "spec.expirationSeconds", "may not specify a duration less than 600 seconds")],
    ),
    "a name that is no segment": (
        {"name": "a/b"},
        [("FieldValueInvalid", "metadata.name", "may not contain '/'")],
    ),
}


@pytest.mark.parametrize(("given", "causes"), WRONG.values(), ids=WRONG.keys())
def test_what_is_asked_for_is_checked(api: Api, given: dict[str, Any], causes: list[tuple[str, str, str]]) -> None:
    answer = api.post(PATH, request(**given))
    assert answer.code == 422, answer.text
    told = [(cause["reason"], cause["field"], cause["message"]) for cause in answer.json["details"]["causes"]]
    assert [one[:2] for one in told] == [one[:2] for one in causes]
    for (_, _, message), (_, _, expected) in zip(told, causes, strict=True):
        assert expected in message


def test_who_asks_is_noted_whatever_they_say(api: Api) -> None:
    asked = request(username="mallory", groups=["system:masters"], uid="1", extra={"a": ["b"]})
    made = api.made(PATH, asked | {"status": {"conditions": [condition("Approved")], "certificate": encoded(pem())}})
    assert made["status"] == {}
    assert made["spec"]["username"] == "alice"
    assert made["spec"]["groups"] == ["system:masters", "system:authenticated"]
    assert "uid" not in made["spec"]
    assert "extra" not in made["spec"]


def test_nobody_asks_for_a_certificate_of_the_masters(api: Api) -> None:
    asked = request(pem("eve", "system:masters"), signerName="kubernetes.io/kube-apiserver-client")
    answer = api.post(PATH, asked)
    assert (answer.code, answer.message) == (
        403,
        'certificatesigningrequests.certificates.k8s.io "one" is forbidden: use of kubernetes.io/kube-apiserver-client '
        "signer with system:masters group is not allowed",
    )


def test_the_spec_never_changes_and_an_update_decides_nothing(api: Api) -> None:
    made = api.made(PATH, request())
    changed = made | {
        "spec": made["spec"] | {"usages": ["any"], "username": "eve"},
        "status": {"conditions": [condition("Approved")]},
    }
    changed["metadata"] = made["metadata"] | {"labels": {"a": "b"}}
    updated = api.put(PATH + ONE, changed).json
    assert updated["spec"] == made["spec"]
    assert updated["status"] == {}
    assert updated["metadata"]["labels"] == {"a": "b"}


@pytest.fixture
def made(api: Api) -> Any:
    return api.made(PATH, request())


def written(api: Api, below: str, **status: Any) -> Any:
    return api.put(f"{PATH}/one/{below}", api.get(PATH + ONE).json | {"status": status})


@pytest.mark.parametrize("type_", ["Approved", "Denied", "Failed", "Other"])
def test_an_approval_is_dated_and_stays(api: Api, made: Any, type_: str) -> None:
    answer = written(api, "approval", conditions=[condition(type_)], certificate=encoded(b"unseen"))
    assert answer.code == 200
    (told,) = answer.json["status"]["conditions"]
    assert told["lastUpdateTime"] == told["lastTransitionTime"]
    assert "certificate" not in answer.json["status"]
    again = written(api, "approval", conditions=[condition(type_, message="another")])
    assert again.json["status"]["conditions"][0]["lastTransitionTime"] == told["lastTransitionTime"]
    removed = written(api, "approval", conditions=[])
    assert removed.code == (200 if type_ == "Other" else 422)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "approved by the signer": ("status", {"conditions": [condition("Approved")]}, 'add a condition of type "Approved"'),
    "denied by the signer": ("status", {"conditions": [condition("Denied")]}, 'add a condition of type "Denied"'),
    "both": (
        "approval",
        {"conditions": [condition("Approved"), condition("Denied")]},
        "Approved and Denied conditions are mutually exclusive",
    ),
    "an approval that is not true": (
        "approval",
        {"conditions": [condition("Approved", status="False")]},
        'status.conditions[0].status: Unsupported value: "False": supported values: "True"',
    ),
    "no type": ("status", {"conditions": [condition("")]}, "status.conditions[0].type: Required value"),
    "no status": ("status", {"conditions": [{"type": "Other"}]}, "status.conditions[0].status: Required value"),
    "a condition twice": (
        "status",
        {"conditions": [condition("Other"), condition("Other")]},
        'status.conditions[1].type: Duplicate value: "Other"',
    ),
    "no certificate": (
        "status",
        {"certificate": encoded(b"hello")},
        'status.certificate: Invalid value: "<certificate data>": must contain at least one CERTIFICATE PEM block',
    ),
    "a key for a certificate": (
        "status",
        {"certificate": encoded(pem().replace(b"CERTIFICATE REQUEST", b"KEY"))},
        'only CERTIFICATE PEM blocks are allowed, found "KEY"',
    ),
    "a certificate with a head": (
        "status",
        {"certificate": encoded(b"-----BEGIN CERTIFICATE-----\nX: y\n\nAAAA\n-----END CERTIFICATE-----\n")},
        "no PEM block headers are permitted",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("below", "status", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_decided_is_checked(api: Api, made: Any, below: str, status: dict[str, Any], told: str) -> None:
    answer = written(api, below, **status)
    assert answer.code == 422
    assert told in answer.message


def test_a_decision_is_final_and_a_certificate_is_never_another(api: Api, made: Any, tmp_path: Any) -> None:
    from manciple.api import certificates

    authority = certificates.ensure(tmp_path).authority.read_bytes()
    approved = [condition("Approved")]
    written(api, "approval", conditions=approved)
    assert "may not remove" in written(api, "approval", conditions=[condition("Denied")]).message
    assert "may not remove" in written(api, "status", conditions=[]).message
    assert written(api, "status", conditions=approved, certificate=encoded(b"hi\n" + authority)).code == 200
    other = written(api, "status", conditions=approved, certificate=encoded(authority))
    assert "status.certificate: Forbidden: updates may not modify existing certificate content" in other.message


# Who may.


@pytest.fixture
def rights() -> Iterator[set[tuple[str, str]]]:
    """(verb, signer) that everybody has."""
    given: set[tuple[str, str]] = set()

    def authorize(_who: Identity, wanted: Attributes) -> Decision:
        return Decision(wanted.resource != "signers" or (wanted.verb, wanted.name) in given)

    known = dict(authorization._authorizers)
    authorization._authorizers.clear()
    authorization.register_authorizer("test", authorize)
    yield given
    authorization._authorizers.clear()
    authorization._authorizers.update(known)


WHO_MAY = {
    "the signer by its name": "example.com/signer",
    "all signers of the domain": "example.com/*",
}


@pytest.mark.parametrize("signer", WHO_MAY.values(), ids=WHO_MAY.keys())
def test_to_approve_and_to_sign_take_rights_on_the_signer(
    api: Api, made: Any, rights: set[tuple[str, str]], signer: str
) -> None:
    bob = Api(tokens.issue("bob", []))
    answer = written(bob, "approval", conditions=[condition("Approved")])
    assert (answer.code, answer.message) == (
        403,
        'certificatesigningrequests.certificates.k8s.io "one" is forbidden: user not permitted to approve requests '
        'with signerName "example.com/signer"',
    )
    rights.add(("approve", signer))
    assert written(bob, "approval", conditions=[condition("Approved")]).code == 200
    failed = [condition("Approved"), condition("Failed")]
    assert "not permitted to sign requests" in written(bob, "status", conditions=failed).message
    rights.add(("sign", signer))
    assert written(bob, "status", conditions=failed).code == 200


def test_kubectl_is_told_who_wants_what_of_whom(api: Api) -> None:
    api.made(PATH, request(expirationSeconds=3600))
    written(api, "approval", conditions=[condition("Approved")])
    table = api.get(PATH, accept=TABLE).json
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name", "Age", "SignerName", "Requestor", "RequestedDuration", "Condition",
    ]  # fmt: skip
    assert table["rows"][0]["cells"][2:] == ["example.com/signer", "alice", "60m", "Approved"]
    assert api.get(f"{PATH}?fieldSelector=spec.signerName%3Dother").json["items"] == []
