"""A cluster that answers reviews of tokens and rights, in memory, and an installation that is its mirror.

cluster = ReviewingCluster()
token = cluster.token_of("ada", "team-a")       # with groups
cluster.allow("ada", "list", "pods", "vision")
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from pytest_django.fixtures import Settings

from manciple.access import cluster_users
from manciple.access.authentication import chain
from manciple.mirror.client import Remote
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.reviews import Reviews
from manciple.wire.identity import AUTHENTICATED
from tests.mirrors import PROD, become_mirror

Document = dict[str, Any]
#: What the pages of a namespace are made of, all of which somebody must be allowed to list.
WORK = ("pods", "resourceclaims", "resourceclaimtemplates", "events")
#: What belongs to no namespace, and pages show.
INVENTORY = ("nodes", "resourceslices", "deviceclasses", "devicetaintrules")


def jwt(**claims: Any) -> str:
    """Nobody's signature: whoever asks a cluster does not look at it."""
    parts = [{"alg": "RS256"}, claims]
    return ".".join([*(base64.urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=") for one in parts), "s"])


@dataclass
class ReviewingCluster:
    """tokens: token -> user. rights: (user or group, verb, resource, namespace), "" for everywhere. audiences: that it
    names in its answers. failure: of every question. answered: to questions about this path, in place of its own.
    """

    tokens: dict[str, Document] = field(default_factory=dict)
    rights: set[tuple[str, str, str, str]] = field(default_factory=set)
    audiences: tuple[str, ...] = ()
    failure: RemoteFailure | None = None
    answered: Mapping[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, Document]] = field(default_factory=list)
    #: called with each question, before it is answered
    meanwhile: Callable[[], None] = lambda: None

    def token_of(self, user: str, *groups: str, expires: float = 3600.0, **more: Any) -> str:
        token = jwt(sub=user, exp=time.time() + expires, jti=len(self.tokens))
        self.tokens[token] = {"username": user, "groups": [*groups, AUTHENTICATED], **more}
        return token

    def allow(self, who: str, verb: str, *resources: str, namespace: str = "") -> None:
        self.rights |= {(who, verb, resource, namespace) for resource in resources}

    def open(self, who: str, namespace: str) -> None:
        """They may read in it."""
        for verb in ("get", "list", "watch"):
            self.allow(who, verb, *WORK, namespace=namespace)

    def review(self, path: str, body: bytes, *, timeout: float) -> bytes:
        assert timeout > 0
        document = json.loads(body)
        self.asked.append((document["kind"], document["spec"]))
        self.meanwhile()
        if self.failure is not None:
            raise self.failure
        for part, answer in self.answered.items():
            if part in path:
                return answer
        spec = document["spec"]
        status = self._of_token(spec) if document["kind"] == "TokenReview" else self._of_access(spec)
        return json.dumps({**document, "status": status}).encode()

    def _of_token(self, spec: Document) -> Document:
        user = self.tokens.get(spec["token"])
        if user is None:
            return {"user": {}, "error": "invalid bearer token"}
        return {"authenticated": True, "user": user, "audiences": list(self.audiences)}

    def _of_access(self, spec: Document) -> Document:
        asked = spec.get("resourceAttributes")
        if asked is None:
            return {"allowed": False}
        who = (spec["user"], *spec["groups"])
        places = {"", asked.get("namespace", "")}
        found = any(
            (one, asked["verb"], resource, place) in self.rights
            for one in who
            for resource in (asked["resource"], "*")
            for place in places
        )
        return {"allowed": found}


def mirror_of(
    cluster: ReviewingCluster, settings: Settings, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> Reviews:
    """For the rest of the test this installation is its mirror, for its users."""
    become_mirror(settings, monkeypatch)
    settings.CLUSTER_USERS = False  # the fixture puts it back
    for module, name in ((chain, "_requests"), (chain, "_tokens")):
        monkeypatch.setattr(module, name, dict(getattr(module, name)))
    reviews = Reviews(cast("Remote", cluster), context=PROD, **options)
    cluster_users.use(reviews)
    return reviews
