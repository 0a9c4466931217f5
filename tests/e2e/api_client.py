"""The API as a program uses it, for tests that need something done and do not look at how kubectl does it."""

from __future__ import annotations

import base64
import logging
import re
import ssl
from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.e2e.processes import wait_for

Document = dict[str, Any]

#: Where objects of a kind are; those with {namespace} are in one.
PLACES = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "DeviceTaintRule": "/apis/resource.k8s.io/v1beta2/devicetaintrules",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
    "ResourceQuota": "/api/v1/namespaces/{namespace}/resourcequotas",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates",
    "ResourcePoolStatusRequest": "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests",
    "PodGroup": "/apis/scheduling.k8s.io/v1alpha2/namespaces/{namespace}/podgroups",
}

MERGES = {"Content-Type": "application/merge-patch+json"}

# A failure shows what it captured: the requests of a loop that waits would hide everything else.
logging.getLogger("httpx").setLevel(logging.WARNING)


def connect(kubeconfig: Path, *, server: str = "", timeout: float = 30) -> httpx.Client:
    """As the user of a kubeconfig file. server: another way to its server."""
    document = yaml.safe_load(kubeconfig.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    return httpx.Client(
        base_url=server or cluster["server"],
        verify=ssl.create_default_context(cadata=authority),
        headers={"Authorization": f"Bearer {user['token']}"},
        timeout=timeout,
    )


class Api:
    """The API as the administrator of a kubeconfig file sees it."""

    def __init__(self, kubeconfig: Path) -> None:
        self._http = connect(kubeconfig)
        self.server = str(self._http.base_url)

    def made(self, path: str, body: Document) -> Document:
        return self._answer(self._http.post(path, json=body))

    def attempt(self, path: str, body: Document) -> httpx.Response:
        """To make something, whatever comes of it. Raises: httpx.TransportError where there was no answer."""
        return self._http.post(path, json=body)

    def listed(self, path: str, **params: str) -> list[Document]:
        return list(self._answer(self._http.get(path, params=params))["items"])

    def stream(self, path: str, **params: str) -> AbstractContextManager[httpx.Response]:
        """An answer that comes bit by bit, as long as it takes."""
        return self._http.stream("GET", path, params=params, timeout=None)

    def refused(self, method: str, path: str, body: Document) -> Document:
        """The Status of a request that must not succeed."""
        headers = MERGES if method == "PATCH" else {}
        answer = self._http.request(method, path, json=body, headers=headers)
        assert answer.is_error, answer.text
        return dict(answer.json())

    def patch(self, path: str, change: Document) -> Document:
        """Merge `change` into an object."""
        return self._answer(self._http.patch(path, json=change, headers=MERGES))

    def put(self, path: str, body: Document) -> Document:
        return self._answer(self._http.put(path, json=body))

    def find(self, path: str) -> Document | None:
        answer = self._http.get(path)
        return None if answer.status_code == httpx.codes.NOT_FOUND else self._answer(answer)

    def found(self, kind: str, name: str, namespace: str = "") -> Document:
        """An object that must be there."""
        found = self.find(f"{_collection(kind, namespace)}/{name}")
        assert found is not None, f"{kind} {namespace}/{name} is not there"
        return found

    def delete(self, path: str, *, grace: int | None = None) -> None:
        """Gone already is fine."""
        params = {} if grace is None else {"gracePeriodSeconds": str(grace)}
        answer = self._http.delete(path, params=params)
        if answer.status_code != httpx.codes.NOT_FOUND:
            self._answer(answer)

    def _answer(self, answer: httpx.Response) -> Document:
        assert not answer.is_error, f"{answer.request.method} {answer.request.url}: {answer.text}"
        return dict(answer.json())


def submit_form(client: httpx.Client, page: str, values: dict[str, str]) -> None:
    """Fill in the form of a page and send it, as a browser does; it must lead on to another page."""
    opened = client.get(page, follow_redirects=True)
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', opened.text)
    assert token is not None, opened.url
    answer = client.post(opened.url, data={"csrfmiddlewaretoken": token.group(1), **values})
    assert answer.status_code == httpx.codes.FOUND, answer.status_code


def documents(text: str) -> list[Document]:
    """Those of a manifest, YAML or JSON."""
    return [one for one in yaml.safe_load_all(text) if one]


class Hands(Api):
    """What somebody else does to the cluster while a page is open."""

    def apply(self, *wanted: Document) -> None:
        """Make them, and change those that are there."""
        for one in wanted:
            if self.find(place_of(one)) is None:
                self.made(_collection(one["kind"], one["metadata"].get("namespace", "")), one)
            else:
                self.patch(place_of(one), one)

    def apply_file(self, path: Path) -> None:
        self.apply(*documents(path.read_text()))

    def forget(self, *gone: Document, wait: bool = True) -> None:
        """Delete them, those that made others last, and wait until they are gone. Gone already is fine."""
        places = [place_of(one) for one in reversed(gone)]
        for place in places:
            self.delete(place)
        if wait:
            self._wait_gone(places)

    def forget_file(self, path: Path, *, wait: bool = True) -> None:
        self.forget(*documents(path.read_text()), wait=wait)

    def remove(self, kind: str, name: str, namespace: str = "") -> None:
        """Delete one object and wait until it is gone."""
        place = f"{_collection(kind, namespace)}/{name}"
        self.delete(place)
        self._wait_gone([place])

    def clear(self, namespace: str, *kinds: str) -> None:
        """Delete all of these kinds in a namespace and wait until they are gone."""
        places = [f"{_collection(kind, namespace)}/{name}" for kind in kinds for name in self.names(kind, namespace)]
        for place in places:
            self.delete(place)
        self._wait_gone(places)

    def names(self, kind: str, namespace: str = "") -> list[str]:
        return [one["metadata"]["name"] for one in self.listed(_collection(kind, namespace))]

    def change(self, kind: str, name: str, change: Document, namespace: str = "") -> None:
        """Merge `change` into an object that is there."""
        self.patch(f"{_collection(kind, namespace)}/{name}", change)

    def wait_pods(self, condition: str, namespace: str, *names: str, status: str = "True") -> None:
        """Until a condition of all these pods has the status."""
        for name in names:
            place = f"{_collection('Pod', namespace)}/{name}"
            wait_for(f"{condition}={status} of {name}", partial(self._is, place, condition, status))

    def wait_ready(self, kind: str, name: str) -> None:
        """Until it is there, and Ready."""
        wait_for(f"{kind} {name}", partial(self._is, f"{_collection(kind, '')}/{name}", "Ready", "True"))

    def _is(self, place: str, condition: str, status: str) -> bool:
        conditions = (self.find(place) or {}).get("status", {}).get("conditions", ())
        return any(one["type"] == condition and one["status"] == status for one in conditions)

    def _wait_gone(self, places: Iterable[str]) -> None:
        for place in places:
            wait_for(f"{place} to be gone", partial(self._is_gone, place))

    def _is_gone(self, place: str) -> bool:
        return self.find(place) is None


def place_of(document: Document) -> str:
    metadata = document["metadata"]
    return f"{_collection(document['kind'], metadata.get('namespace', ''))}/{metadata['name']}"


def _collection(kind: str, namespace: str) -> str:
    return PLACES[kind].format(namespace=namespace or "default")
