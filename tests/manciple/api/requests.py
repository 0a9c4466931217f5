"""Requests to the API through Django's test client, and the documents that tests send."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from django.http import HttpResponse
from django.test import Client

JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
NAMESPACES = "/api/v1/namespaces"
PODS = "/api/v1/namespaces/default/pods"


@dataclass(frozen=True)
class Answer:
    """One answer: its code, headers and document."""

    code: int
    response: HttpResponse

    @property
    def json(self) -> Any:
        return json.loads(self.response.content)

    @property
    def text(self) -> str:
        return self.response.content.decode()

    @property
    def message(self) -> str:
        return str(self.json["message"])

    @property
    def reason(self) -> str:
        return str(self.json["reason"])

    @property
    def causes(self) -> set[tuple[str, str]]:
        """Reason and field of each cause of a refusal."""
        return {(one.get("reason", ""), one.get("field", "")) for one in self.json["details"]["causes"]}

    def header(self, name: str) -> str:
        return str(self.response.headers.get(name, ""))


class Api:
    """The API as one identity sees it; `token` "" is nobody."""

    def __init__(self, token: str) -> None:
        self._client = Client(raise_request_exception=False)
        self._token = token

    def get(self, path: str, *, accept: str = JSON) -> Answer:
        return self.send("get", path, accept=accept)

    def post(self, path: str, body: Any, *, content_type: str = JSON) -> Answer:
        return self.send("post", path, body=body, content_type=content_type)

    def put(self, path: str, body: Any) -> Answer:
        return self.send("put", path, body=body)

    def patch(self, path: str, body: Any, *, content_type: str = MERGE) -> Answer:
        return self.send("patch", path, body=body, content_type=content_type)

    def delete(self, path: str, body: Any = None) -> Answer:
        return self.send("delete", path, body=body)

    def made(self, path: str, body: Any) -> Any:
        """The object that a POST made."""
        answer = self.post(path, body)
        assert answer.code == 201, answer.text
        return answer.json

    def send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = JSON,
        accept: str = JSON,
        extra: Mapping[str, str] = MappingProxyType({}),
    ) -> Answer:
        """`extra`: headers beyond those that every request has."""
        headers = {"Accept": accept, **extra}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        response: Any = self._client.generic(method.upper(), path, content, content_type=content_type, headers=headers)
        return Answer(response.status_code, response)


def claim(name: str = "c", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, **metadata},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
    }


def lease(name: str = "l", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, **metadata},
        "spec": {"holderIdentity": "alice"},
    }


def pod(name: str = "p", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }


def namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
