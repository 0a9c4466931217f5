"""A cluster that can be written to, with what an API server can say against it.

    with Writable(cluster(), refuses={"PATCH": (403, "Forbidden", "no")}) as server: ...

It keeps what it does not know, as its own objects come as they are; the rules are those of its tests alone.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from manciple.wire.errors import ApiError
from manciple.wire.patch import json_patch
from tests.manciple.mirror.living import Living
from tests.manciple.mirror.replay import Answer, Document

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass
class Request:
    """One that may write. dry: it was a dry run."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: Any
    #: all of them in lower case, with those that are sent several times
    headers_as_sent: Sequence[tuple[str, str]] = ()

    @property
    def dry(self) -> bool:
        return "dryRun" in self.query or bool(isinstance(self.body, dict) and self.body.get("dryRun"))


@dataclass
class Writable(Living):
    """may: whether its user may do something, by the attributes of a review. refuses: method, "eviction" or the
    end of a path -> (code, reason, message) in place of doing it. warns: the header Warning of each answer. silent_on:
    methods that are done, dry runs aside, and not answered. loses: the same, but not done either. before: called before
    each write.
    """

    may: Callable[[Mapping[str, str]], bool] = lambda _wanted: True
    refuses: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    refused_details: Document | None = None
    warns: str = ""
    silent_on: frozenset[str] = frozenset()
    loses: frozenset[str] = frozenset()
    before: Callable[[Request], None] = lambda _request: None
    #: those that were no reviews
    written: list[Request] = field(default_factory=list)
    reviewed: list[Mapping[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._made = 0
        self._one_by_one = threading.RLock()

    @property
    def done(self) -> list[Request]:
        """Those that were no dry runs."""
        return [one for one in self.written if not one.dry]

    def write(self, method: str, target: str, headers: Any, body: bytes) -> Answer | None:
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        if (special := self.answer(path)) is not None:
            return special
        if self.token and headers.get("Authorization") != f"Bearer {self.token}":
            return self._status(401, "Unauthorized")
        document: Any = json.loads(body) if body else None
        if path == REVIEWS:
            wanted = document["spec"]["resourceAttributes"]
            self.reviewed.append(wanted)
            return 201, {}, json.dumps({**document, "status": {"allowed": self.may(wanted)}}).encode()
        sent = [(name.lower(), value.encode("latin-1").decode()) for name, value in headers.items()]
        request = Request(method, path, query, dict(headers.items()), document, sent)
        with self._one_by_one:
            self.written.append(request)
            self.before(request)
            if not request.dry and method in self.loses:
                return None
            try:
                code, more, answer = self._done(request)
            except ApiError as refusal:
                code, more, answer = refusal.code, {}, json.dumps(refusal.status()).encode()
        if not request.dry and method in self.silent_on:
            return None
        return code, {**more, "Audit-Id": f"audit-{len(self.written)}", **self._warning()}, answer

    def _warning(self) -> Mapping[str, str]:
        return {"Warning": f'299 - "{self.warns}"'} if self.warns else {}

    def _refusal(self, code: int, reason: str, message: str) -> Answer:
        status: Document = {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code}
        if self.refused_details is not None:
            status["details"] = self.refused_details
        return code, {}, json.dumps(status).encode()

    def _done(self, request: Request) -> Answer:
        """Raises: ApiError for a patch that does not apply."""
        parts = request.path.strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name, below = (*rest, "", "")[:3]
        of = "eviction" if below == "eviction" else request.method
        for end, refusal in self.refuses.items():
            if of == end or ("/" in end and request.path.endswith(end)):
                return self._refusal(*refusal)
        known = self.get(plural, namespace, name) if name else None
        if below == "eviction":
            uid = request.body["deleteOptions"]["preconditions"]["uid"]
            return self._remove(request, (plural, namespace, name), {"uid": uid})
        if request.method == "POST":
            return self._create(request, plural, namespace)
        if known is None:
            return self._refusal(404, "NotFound", f'{plural} "{name}" not found')
        if request.method == "DELETE":
            return self._remove(request, (plural, namespace, name), request.body.get("preconditions", {}))
        wanted = json_patch(known, request.body)
        # Each way in takes its own part, as Kubernetes' strategies do.
        if below == "status":
            wanted = {**known, "status": wanted["status"]}
        elif "status" in known:
            wanted["status"] = known["status"]
        made = wanted if request.dry else self.put(plural, wanted)
        return 200, {}, json.dumps(made).encode()

    def _create(self, request: Request, plural: str, namespace: str) -> Answer:
        meta = {**request.body["metadata"], **({"namespace": namespace} if namespace else {})}
        self._made += 1
        meta.setdefault("name", f"{meta.get('generateName', '')}{self._made}")
        if self.get(plural, namespace, meta["name"]) is not None:
            return self._refusal(409, "AlreadyExists", f'{plural} "{meta["name"]}" already exists')
        meta |= {"uid": f"made-{self._made}", "creationTimestamp": "2026-11-30T08:00:00Z", "resourceVersion": "1"}
        made = {**request.body, "metadata": meta}
        if not request.dry:
            made = self.put(plural, made)
        return 201, {}, json.dumps(made).encode()

    def _remove(self, request: Request, key: tuple[str, str, str], wanted: Mapping[str, str]) -> Answer:
        known = self.get(*key)
        if known is None:
            return self._refusal(404, "NotFound", f'{key[0]} "{key[2]}" not found')
        meta = known["metadata"]
        if any(meta.get(field) != value for field, value in wanted.items()):
            return self._refusal(409, "Conflict", f"the {key[0]} {key[2]} is another one")
        if not request.dry:
            self.delete(*key)
        return 200, {}, json.dumps({"kind": "Status", "status": "Success"}).encode()
