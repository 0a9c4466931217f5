"""Claims get the default class; a volume that is a folder of a node has the folder's name and one node."""

from __future__ import annotations

from typing import Any

import pytest

from claims.admission import ensure_storage_class
from claims.kinds.persistent_volumes import NODE_LABEL
from claims.kinds.storage_classes import DEFAULT_ANNOTATION, LOCAL_PROVISIONER
from manciple.access.authentication import tokens
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import Api

__all__ = ["api"]

VOLUMES, CLASSES = "/api/v1/persistentvolumes", "/apis/storage.k8s.io/v1/storageclasses"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"


def term(*names: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(names)}]}


def folder(*, handle: str = "pvc-1", terms: tuple[dict[str, Any], ...] = (term("n1"),)) -> dict[str, Any]:
    return {
        "metadata": {"name": "pvc-1"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": LOCAL_PROVISIONER, "volumeHandle": handle},
            "nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}},
        },
    }


def test_the_label_of_its_node_is_always_there(api: Api) -> None:
    made = api.send("POST", VOLUMES, body=folder())
    assert made.code == 201
    assert made.json["metadata"]["labels"] == {NODE_LABEL: "n1"}
    document = made.json
    document["metadata"]["labels"] = {NODE_LABEL: "n2", "own": "label"}
    changed = api.send("PUT", f"{VOLUMES}/pvc-1", body=document)
    assert changed.json["metadata"]["labels"] == {NODE_LABEL: "n1", "own": "label"}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"handle": "pvc-2"}, "spec.csi.volumeHandle"),
        ({"handle": "../etc"}, "spec.csi.volumeHandle"),
        ({"terms": (term("n1"), term("n2"))}, "spec.nodeAffinity"),
        ({"terms": ({"matchExpressions": [{"key": "a", "operator": "Exists"}]},)}, "spec.nodeAffinity"),
    ],
)
def test_a_folder_of_another_name_or_of_no_single_node_is_refused(api: Api, wrong: dict[str, Any], field: str) -> None:
    answer = api.send("POST", VOLUMES, body=folder(**wrong))
    assert answer.code == 422
    assert field in {named for _, named in answer.causes}


def test_volumes_of_others_keep_their_handles_and_nodes(api: Api) -> None:
    body = folder(handle="vol-0123")
    body["spec"]["csi"]["driver"] = "csi.example.com"
    del body["spec"]["nodeAffinity"]
    made = api.send("POST", VOLUMES, body=body)
    assert made.code == 201
    assert "labels" not in made.json["metadata"]


@pytest.mark.parametrize("path", [VOLUMES, CLASSES])
def test_tenants_make_neither_volumes_nor_classes(api: Api, path: str) -> None:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}
    binding = {"metadata": {"name": "bob"}, "roleRef": role, "subjects": [subject]}
    assert (
        api.send("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", body=binding).code == 201
    )
    bob = Api(tokens.issue("bob", ["system:authenticated"]))
    assert bob.send("POST", CLAIMS, body=claim()).code == 201
    assert bob.send("POST", path, body=folder()).code == 403
    body = {"status": {"phase": "Bound"}}
    merge = "application/merge-patch+json"
    assert bob.send("PATCH", f"{CLAIMS}/data/status", body=body, content_type=merge).code == 403


def claim(**spec: Any) -> dict[str, Any]:
    resources = {"requests": {"storage": "1Gi"}}
    return {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec}}


def storage_class(name: str, *, is_default: bool) -> dict[str, Any]:
    annotations = {DEFAULT_ANNOTATION: "true"} if is_default else {}
    return {"metadata": {"name": name, "annotations": annotations}, "provisioner": "example.com/disks"}


def test_local_is_made_once_and_is_the_default(api: Api) -> None:
    ensure_storage_class()
    answer = api.send("POST", f"{CLAIMS}?dryRun=All", body=claim())
    assert answer.json["spec"]["storageClassName"] == "local"
    merge = "application/merge-patch+json"
    body = {"metadata": {"annotations": {DEFAULT_ANNOTATION: "false"}}}
    assert api.send("PATCH", f"{CLASSES}/local", body=body, content_type=merge).code == 200
    ensure_storage_class()  # as the next start does: it stays as it was changed
    answer = api.send("POST", f"{CLAIMS}?dryRun=All", body=claim())
    assert "storageClassName" not in answer.json["spec"]


@pytest.mark.parametrize(("has_default", "code"), [(True, 422), (False, 200)])
def test_a_class_is_set_later_where_no_default_was_set_at_first(api: Api, has_default: bool, code: int) -> None:
    """As recorded without a default class; with one, a claim has a class, which never changes."""
    assert api.send("POST", CLASSES, body=storage_class("first", is_default=has_default)).code == 201
    made = api.send("POST", CLAIMS, body=claim())
    body = made.json
    body["spec"]["storageClassName"] = "fast"
    body["metadata"]["resourceVersion"] = ""
    assert api.send("PUT", f"{CLAIMS}/{body['metadata']['name']}", body=body).code == code


@pytest.mark.parametrize(
    ("spec", "expected"), [({}, "second"), ({"storageClassName": ""}, ""), ({"storageClassName": "first"}, "first")]
)
def test_a_claim_without_a_class_gets_the_newest_default(api: Api, spec: dict[str, Any], expected: str) -> None:
    for name in ("first", "other", "second"):
        assert api.send("POST", CLASSES, body=storage_class(name, is_default=name != "other")).code == 201
    made = api.send("POST", CLAIMS, body=claim(**spec))
    # Both were made in the same second, or the newest is "second": of the same age, the first by name is taken.
    times = {one["metadata"]["name"]: one["metadata"]["creationTimestamp"] for one in api.get(CLASSES).json["items"]}
    if not spec and times["first"] == times["second"]:
        expected = "first"
    assert made.json["spec"]["storageClassName"] == expected


@pytest.mark.parametrize(("expands", "code"), [(True, 200), (False, 403), (None, 403)])
def test_a_claim_grows_where_its_class_can(api: Api, expands: bool | None, code: int) -> None:
    if expands is not None:
        body = {**storage_class("gold", is_default=False), "allowVolumeExpansion": expands}
        assert api.send("POST", CLASSES, body=body).code == 201
    assert api.send("POST", CLAIMS, body=claim(storageClassName="gold")).code == 201
    merge = "application/merge-patch+json"
    bound = api.send("PATCH", f"{CLAIMS}/data/status", body={"status": {"phase": "Bound"}}, content_type=merge)
    assert bound.code == 200
    body = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    assert api.send("PATCH", f"{CLAIMS}/data", body=body, content_type=merge).code == code


QUOTA = "/api/v1/namespaces/default/resourcequotas"


@pytest.mark.parametrize("is_counted_later", [False, True])
def test_a_quota_limits_what_claims_ask_for(api: Api, is_counted_later: bool) -> None:
    hard = {"requests.storage": "2Gi", "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1"}
    quota = {"metadata": {"name": "storage"}, "spec": {"hard": hard}}

    def make(name: str, **spec: Any) -> int:
        return api.send("POST", CLAIMS, body={**claim(**spec), "metadata": {"name": name}}).code

    if not is_counted_later:
        assert api.send("POST", QUOTA, body=quota).code == 201
    assert make("a", storageClassName="gold") == 201
    if is_counted_later:
        assert api.send("POST", QUOTA, body=quota).code == 201
    assert make("b", storageClassName="gold") == 403
    assert make("b", storageClassName="") == 201
    assert make("c", storageClassName="") == 403
    used = api.get(f"{QUOTA}/storage").json["status"]["used"]
    assert used == {"requests.storage": "2Gi", "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1"}
    assert api.send("DELETE", f"{CLAIMS}/b").code == 200
    merge = "application/merge-patch+json"
    assert api.send("PATCH", f"{CLAIMS}/b", body={"metadata": {"finalizers": None}}, content_type=merge).code == 200
    assert make("c", storageClassName="") == 201
