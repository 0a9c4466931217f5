"""A cluster with the gate of the KEP-4381 draft: its documents go in and come out through the API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from scheduling.earlier import structured_claims
from tests.manciple.api.requests import Api
from tests.scheduling.cluster import Cluster

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "structured-parameters-draft.yaml"
DRIVER, CLASS, NODE = "cards.dra.example.com", "cards.example.com", "worker-1"
V1ALPHA2 = "/apis/resource.k8s.io/v1alpha2"
SELECTOR = 'attributes["runtimeVersion"] >= "v12.0.0" && attributes["memory"] >= "32Gi"'

PLURALS = {
    "CustomResourceDefinition": "customresourcedefinitions",
    "NodeResourceSlice": "noderesourceslices",
    "ResourceClass": "resourceclasses",
    "ResourceSlice": "resourceslices",
    "CardParameters": "cardparameters",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "ResourceClaimParameters": "resourceclaimparameters",
    "ResourceClassParameters": "resourceclassparameters",
    "Pod": "pods",
    "Node": "nodes",
}
OF_CLUSTER = {"CustomResourceDefinition", "NodeResourceSlice", "ResourceClass", "ResourceSlice", "Node"}


def example() -> dict[str, dict[str, Any]]:
    """The documents of the example, by kind."""
    return {document["kind"]: document for document in yaml.safe_load_all(EXAMPLE.read_text())}


def address(document: dict[str, Any]) -> str:
    version, kind = document["apiVersion"], document["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = document["metadata"].get("namespace", "default")
    return f"{root}/{PLURALS[kind]}" if kind in OF_CLUSTER else f"{root}/namespaces/{namespace}/{PLURALS[kind]}"


def named(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    version = "v1" if kind in ("Pod", "Node") else "resource.k8s.io/v1alpha2"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


def card(name: str, **attributes: Any) -> dict[str, Any]:
    """attributes: name -> {type: value}."""
    return {"name": name, "attributes": [{"name": key, **value} for key, value in attributes.items()]}


def node_slice(*cards: dict[str, Any], name: str = "cards", node: str = NODE, driver: str = DRIVER) -> dict[str, Any]:
    spec = {"nodeName": node, "driverName": driver, "namedResourcesWithAttributes": list(cards)}
    return named("NodeResourceSlice", name, spec=spec)


def parameters(*selectors: str, name: str = "wanted", driver: str = DRIVER, **fields: Any) -> dict[str, Any]:
    required = [{"selector": one} for one in selectors]
    request = {"driverName": driver, "namedResourcesWithAttributes": {"required": required}}
    return named("ResourceClaimParameters", name, requests=[request], **fields)


def class_parameters(name: str, selector: str, **fields: Any) -> dict[str, Any]:
    entry = {"driverName": DRIVER, "namedResourcesWithAttributes": {"selector": selector}}
    return named("ResourceClassParameters", name, filters=[entry], **fields)


def class_with(parameters_name: str, **fields: Any) -> dict[str, Any]:
    """A class with the parameters of its name."""
    ref = {"apiGroup": "resource.k8s.io", "kind": "ResourceClassParameters", "name": parameters_name}
    fields = {"parametersRef": ref, **fields}
    return named("ResourceClass", parameters_name, driverName=DRIVER, structuredParameters=True, **fields)


def claim(name: str = "my-card", *, params: str = "wanted", mode: str = "", of_class: str = CLASS) -> dict[str, Any]:
    """params: the ResourceClaimParameters; "" for none."""
    spec: dict[str, Any] = {"resourceClassName": of_class}
    if params:
        spec["parametersRef"] = {"apiGroup": "resource.k8s.io", "kind": "ResourceClaimParameters", "name": params}
    return named("ResourceClaim", name, spec=spec | ({"allocationMode": mode} if mode else {}))


def pod(name: str = "p", *claims: str) -> dict[str, Any]:
    entries = [{"name": f"c{at}", "resourceClaimName": one} for at, one in enumerate(claims or ("my-card",))]
    uses = {"claims": [{"name": one["name"]} for one in entries]}
    container = {"name": "main", "image": "busybox", "resources": uses}
    return named("Pod", name, spec={"containers": [container], "resourceClaims": entries})


def node(name: str = NODE) -> dict[str, Any]:
    ready = [{"type": "Ready", "status": "True"}]
    return named("Node", name, status={"capacity": {"cpu": "8", "memory": "16Gi", "pods": "110"}, "conditions": ready})


class DraftCluster:
    """What clients of the draft see of a cluster."""

    def __init__(self, cluster: Cluster, api: Api) -> None:
        self.cluster, self.api = cluster, api

    def apply(self, *documents: dict[str, Any]) -> None:
        """Create them; what there is already is replaced."""
        for document in documents:
            place = f"{address(document)}/{document['metadata']['name']}"
            known = self.api.get(place)
            if known.code == 404:
                self.api.made(address(document), document)
            else:
                answer = self.api.put(place, {**known.json, **document, "metadata": known.json["metadata"]})
                assert answer.code == 200, answer.text
        self.settle()

    def settle(self) -> None:
        self.cluster.settle()
        while self.cluster.worker.in_turn(lambda state: structured_claims.allocate(state, self.cluster.now)):
            self.cluster.settle()

    def get(self, kind: str, name: str) -> dict[str, Any]:
        answer = self.api.get(f"{address(named(kind, name))}/{name}")
        assert answer.code == 200, answer.text
        found: dict[str, Any] = answer.json
        return found

    def delete(self, kind: str, name: str) -> None:
        answer = self.api.delete(f"{address(named(kind, name))}/{name}", {"gracePeriodSeconds": 0})
        assert answer.code in (200, 202), answer.text
        self.settle()

    def claim(self, name: str = "my-card") -> dict[str, Any]:
        return self.get("ResourceClaim", name)

    def handles(self, name: str = "my-card") -> list[dict[str, Any]]:
        """What drivers are told of the claim; [] where it has nothing."""
        allocation = self.claim(name).get("status", {}).get("allocation", {})
        given: list[dict[str, Any]] = allocation.get("resourceHandles", [])
        return given

    def given(self, name: str = "my-card") -> list[str]:
        """The ids of the resources that the claim has."""
        models = [one["structuredData"]["namedResourcesWithAttributes"] for one in self.handles(name)]
        return [resource["id"] for model in models for resource in model["resources"]]

    @staticmethod
    def claim_of(pod: dict[str, Any]) -> str:
        name: str = pod["spec"]["resourceClaims"][0]["resourceClaimName"]
        return name

    def node_of(self, name: str = "p") -> str:
        found: str = self.get("Pod", name)["spec"].get("nodeName", "")
        return found

    def why_pending(self, name: str = "p") -> str:
        """What its owner is told of a pod without a node, once it was tried."""
        self.cluster.retry()
        return self.cluster.why_pending(name)
