"""Requests for pages: every address, with whatever addresses and forms may hold."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import URLPattern, reverse
from hypothesis import strategies as st

from dashboard.urls import urlpatterns
from tests.security.fuzz.judging import Judge
from tests.security.fuzz.oddities import VALUES
from tests.security.fuzz.scene import NAMES, NAMESPACE

_TEXTS = tuple(one for one in VALUES if isinstance(one, str))
#: What addresses and forms call their parts.
_FIELDS = (
    "action", "after", "admin_access", "all", "at", "before", "by", "class", "container", "count", "device",
    "device_class", "driver", "editing", "entry", "example", "expression", "for", "from", "id", "image", "kind",
    "l", "lines", "name", "namespace", "next", "node", "nodes", "node-name", "ns", "open", "outcome",
    "own_template", "page", "pool", "previous", "q", "range", "reason", "replicas", "resource", "run", "selector-0",
    "sort", "state", "system", "tab", "template", "text", "to", "token", "topic", "type", "uid", "user", "verb",
    "view", "who", "without", "yaml", "config-0-driver", "config-0-parameters", "labels", "key", "value", "effect",
)  # fmt: skip
_PLAIN = (*NAMES, NAMESPACE, "gpu.example.com", "gpu-0", "pods", "-name", "pod", "claim", "history", "1", "3", "gpu=2")
_values = st.one_of(st.sampled_from(_PLAIN), st.sampled_from(_TEXTS))


@cache
def _patterns() -> tuple[URLPattern, ...]:
    return tuple(one for one in urlpatterns if isinstance(one, URLPattern))


@st.composite
def page_requests(draw: st.DrawFn) -> tuple[str, str, dict[str, str]]:
    """(method, address, query or form)"""
    pattern = draw(st.sampled_from(_patterns()))
    wanted = sorted(pattern.pattern.converters)
    parameters = {name: draw(_values).replace("/", "").replace("\n", "")[:300] or "x" for name in wanted}
    fields = {draw(st.sampled_from(_FIELDS)): draw(_values) for _ in range(draw(st.integers(0, 4)))}
    method = draw(st.sampled_from(("get", "get", "get", "post")))
    return method, reverse(pattern.name or "", kwargs=parameters), fields


def visitor(name: str, namespace: str = "") -> Client:
    """Who is signed in: an administrator, or somebody who works in a namespace."""
    user, _ = User.objects.get_or_create(username=name, is_staff=not namespace)
    if namespace:
        user.groups.add(Group.objects.get_or_create(name=f"namespace:{namespace}")[0])
    client = Client(raise_request_exception=False)
    client.force_login(user)
    return client


def open_page(judge: Judge, client: Client, method: str, address: str, fields: dict[str, str]) -> None:
    answer: Any = getattr(client, method)(address, fields)
    judge.note(f"{method} {address} {fields}", code=answer.status_code, may_be_502=address.endswith("/log"))


def open_every_page(judge: Judge, client: Client) -> None:
    """Each address for each name of the scene, as it is now."""
    for pattern in _patterns():
        wanted = sorted(pattern.pattern.converters)
        for name in NAMES if wanted else [""]:
            known = {"namespace": NAMESPACE, "driver": "gpu.example.com", "device": "gpu-0", "what": "class"}
            parameters = {one: known.get(one, name) for one in wanted}
            open_page(judge, client, "get", reverse(pattern.name or "", kwargs=parameters), {})
