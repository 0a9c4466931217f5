"""The calls to the API server that a driver's Go library makes, in the encodings that client-go sends and asks for.

Bodies are protobuf, answers may be either. A version of resource.k8s.io that answers "not found" is passed over for the
next one, as the library's own client does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.plugin_driver.bodies import PROTOBUF, Document, read, write_protobuf
from tests.plugin_driver.messages import Messages

ACCEPT = f"{PROTOBUF},application/json"
#: What the library tries, the most preferred first.
VERSIONS = ("v1", "v1beta2", "v1beta1")
CONFLICT, EXPIRED, NOT_FOUND = 409, 410, 404

Record = Callable[..., None]


class Refused(Exception):
    """The server answered with a Status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


@dataclass
class Kube:
    """One identity's view of the API. `record` is told of each call: method, URL, what was sent and answered."""

    http: httpx.Client
    messages: Messages
    version: str = "v1"
    record: Record = field(default=lambda **_call: None)

    @property
    def group(self) -> str:
        return f"resource.k8s.io/{self.version}"

    def node(self, name: str) -> Document:
        return self._call("GET", f"/api/v1/nodes/{name}")

    def claim(self, namespace: str, name: str) -> Document:
        return self._resource("GET", f"namespaces/{namespace}/resourceclaims/{name}")

    def update_claim_status(self, claim: Document) -> Document:
        meta = claim["metadata"]
        path = f"namespaces/{meta['namespace']}/resourceclaims/{meta['name']}/status"
        return self._resource("PUT", path, body=claim)

    def create_slice(self, one: Document) -> Document:
        return self._resource("POST", "resourceslices", body=one)

    def update_slice(self, one: Document) -> Document:
        return self._resource("PUT", f"resourceslices/{one['metadata']['name']}", body=one)

    def delete_slice(self, one: Document) -> None:
        """With uid and resourceVersion as preconditions."""
        meta = one["metadata"]
        held = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        options = {"kind": "DeleteOptions", "preconditions": held}
        self._resource("DELETE", f"resourceslices/{meta['name']}", body=options)

    def list_slices(self, **params: str) -> Document:
        return self._resource("GET", "resourceslices", params=params)

    def watch_slices(self, **params: str) -> Iterator[tuple[str, Document]]:
        """(type, object) of each event until the server ends the stream. Raises: Refused, httpx.HTTPError."""
        query = {"watch": "true", **params}
        headers = {"Accept": f"{PROTOBUF};stream=watch,{ACCEPT}"}
        path = f"/apis/{self.group}/resourceslices"
        with self.http.stream("GET", path, params=query, headers=headers, timeout=None) as answer:
            self._told(answer, "")
            if answer.is_error:
                answer.read()
                raise _refused(answer)
            for line in answer.iter_lines():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise Refused(event["object"].get("code", 500), event["object"].get("message", ""))
                yield event["type"], event["object"]

    def _resource(self, method: str, path: str, *, body: Document | None = None, **options: Any) -> Document:
        """A call in the version that was found last; in the next ones where it is not found there."""
        first = VERSIONS.index(self.version)
        for version in VERSIONS[first:] + VERSIONS[:first]:
            self.version = version
            sent = body and {**body, "apiVersion": self.group}
            try:
                return self._call(method, f"/apis/{self.group}/{path}", body=sent, **options)
            except Refused as error:
                if error.code != NOT_FOUND:
                    raise
                failure = error
        self.version = VERSIONS[first]
        raise failure

    def _call(
        self, method: str, path: str, *, body: Document | None = None, params: dict[str, str] | None = None
    ) -> Document:
        content = write_protobuf(self.messages, body) if body else None
        headers = {"Accept": ACCEPT, **({"Content-Type": PROTOBUF} if content else {})}
        answer = self.http.request(method, path, params=params, content=content, headers=headers)
        self._told(answer, headers.get("Content-Type", ""))
        if answer.is_error:
            raise _refused(answer)
        return read(self.messages, answer.content, answer.headers["Content-Type"])

    def _told(self, answer: httpx.Response, content_type: str) -> None:
        self.record(
            call="HTTP",
            method=answer.request.method,
            path=answer.request.url.raw_path.decode(),
            sent=content_type,
            code=answer.status_code,
            answered=answer.headers.get("Content-Type", ""),
        )


def _refused(answer: httpx.Response) -> Refused:
    try:
        message = answer.json()["message"]
    except (ValueError, KeyError):
        message = answer.text
    return Refused(answer.status_code, message)
