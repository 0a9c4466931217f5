"""What the tests of the claim pages share: browsers, the words of a page, and claims in trouble."""

from __future__ import annotations

import re
from typing import Any

from django.contrib.auth.models import Group, User
from django.test import Client
from msgspec import structs

from claims.kinds.resource_claims import ResourceClaim
from manciple.wire.identity import VIEWERS
from tests.builders import make_claim, make_meta, make_pod, make_request
from tests.scheduling.cluster import Cluster


def browser(name: str, *, staff: bool = False, groups: tuple[str, ...] = ()) -> Client:
    """A browser in which that person is signed in."""
    user = User.objects.create_user(name, is_staff=staff)
    user.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups or (() if staff else (VIEWERS,))])
    client = Client()
    client.force_login(user)
    return client


def words(client: Client, path: str) -> str:
    """The page's words, tags left out and blanks joined."""
    answer = client.get(path)
    assert answer.status_code == 200, answer.status_code
    main = answer.content.decode().partition("<main")[2].partition("</main>")[0]
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", main))
    return text.replace("&quot;", '"').replace("&gt;", ">").replace("&#x27;", "'")


def runs(cluster: Cluster, name: str, *, count: int = 1, **claim: Any) -> ResourceClaim:
    """A pod with a claim of the same name; placed where there is room."""
    cluster.create(make_claim(name, requests=[make_request(count=count)], **claim))
    cluster.create(make_pod(name, claims={"gpu": name}))
    cluster.settle()
    return cluster.claim(name)


def starts(cluster: Cluster, name: str) -> None:
    """The node's agent reports that the pod runs."""
    pod = cluster.pod(name)
    cluster.update(structs.replace(pod, status=structs.replace(pod.status, phase="Running")))


def is_held_by_a_finalizer(cluster: Cluster, name: str) -> ResourceClaim:
    """A deleted claim that somebody else's controller does not let go."""
    metadata = make_meta(name, "default", finalizers=("example.org/report",))
    made = cluster.create(structs.replace(make_claim(name), metadata=metadata))
    cluster.delete(made)
    return cluster.claim(name)
