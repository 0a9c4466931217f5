"""Which of a pod's pull secrets fit an image, in which order; what cannot be read is left out and never shown."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from manciple.access.kinds.secrets import Secret
from nodeagent.runtimes.image_keys import PullKey, fitting


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def of_type(type_: str, document: Any) -> Secret:
    key = {"kubernetes.io/dockercfg": ".dockercfg"}.get(type_, ".dockerconfigjson")
    return Secret(type=type_, data={key: encoded(document if isinstance(document, str) else json.dumps(document))})


def secret(*registries: str) -> Secret:
    """The user is named as the registry, so that a test sees which entry was taken."""
    auths = {name: {"username": name, "password": "pw"} for name in registries}
    return of_type("kubernetes.io/dockerconfigjson", {"auths": auths})


#: image -> (registries of a secret, those whose credentials fit in the order in which they are tried)
FITTING: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "the registry": ("reg.example/app:1", ("reg.example", "other.example"), ("reg.example",)),
    "a port": ("reg.example:5000/app", ("reg.example", "reg.example:5000"), ("reg.example:5000",)),
    "another port": ("reg.example/app", ("reg.example:5000",), ()),
    "a scheme": ("reg.example/app", ("https://reg.example",), ("https://reg.example",)),
    "a version": ("reg.example/app", ("https://reg.example/v1/",), ("https://reg.example/v1/",)),
    "a path, the longer one first": (
        "reg.example/team/app",
        ("reg.example", "reg.example/team", "reg.example/other"),
        ("reg.example/team", "reg.example"),
    ),
    "any name of one label": ("eu.reg.example/app", ("*.reg.example", "*.example"), ("*.reg.example",)),
    "a part of a label": ("eu1.reg.example/app", ("eu*.reg.example", "us*.reg.example"), ("eu*.reg.example",)),
    "a digest": ("reg.example/app@sha256:abc", ("reg.example",), ("reg.example",)),
    "localhost": ("localhost/app", ("localhost",), ("localhost",)),
    "no registry": ("busybox", ("docker.io",), ("docker.io",)),
    "no registry, a folder": ("team/app:1", ("https://index.docker.io/v1/",), ("https://index.docker.io/v1/",)),
    "docker.io by name": ("docker.io/library/busybox", ("index.docker.io",), ("index.docker.io",)),
    "no registry and another's key": ("busybox", ("reg.example", "*"), ()),
}


@pytest.mark.parametrize("case", FITTING)
def test_credentials_fit_by_registry_and_path(case: str) -> None:
    image, registries, users = FITTING[case]
    assert tuple(key.user for key in fitting([secret(*registries)], image)) == users


def test_of_several_secrets_each_is_tried() -> None:
    secrets = [
        of_type("kubernetes.io/dockercfg", {"reg.example": {"username": "old", "password": "a:b"}}),
        of_type("kubernetes.io/dockerconfigjson", {"auths": {"reg.example": {"auth": encoded("new:c:d").rstrip("=")}}}),
    ]
    keys = fitting(secrets, "reg.example/app")
    assert keys == (PullKey("reg.example", "old", "a:b"), PullKey("reg.example", "new", "c:d"))
    assert json.loads(keys[1].document()) == {"auths": {"reg.example": {"auth": encoded("new:c:d")}}}


def test_the_key_of_the_default_registry_has_the_name_that_podman_looks_for() -> None:
    (key,) = fitting([secret("https://index.docker.io/v1/")], "busybox")
    assert key.registry == "docker.io"


UNREADABLE: dict[str, Secret] = {
    "another type": of_type("Opaque", {"auths": {"reg.example": {"auth": encoded("a:b")}}}),
    "no JSON": of_type("kubernetes.io/dockerconfigjson", "{"),
    "a list": of_type("kubernetes.io/dockerconfigjson", []),
    "auths of text": of_type("kubernetes.io/dockerconfigjson", {"auths": "no"}),
    "an entry of text": of_type("kubernetes.io/dockercfg", {"reg.example": "a:b"}),
    "no base64": of_type("kubernetes.io/dockercfg", {"reg.example": {"auth": "%%%"}}),
    "no password": of_type("kubernetes.io/dockercfg", {"reg.example": {"auth": encoded("alone")}}),
    "no text": of_type("kubernetes.io/dockercfg", {"reg.example": {"auth": base64.b64encode(b"\xff\xfe").decode()}}),
    "no data": Secret(type="kubernetes.io/dockerconfigjson"),
    "a broken address": of_type("kubernetes.io/dockercfg", {"https://[": {"auth": encoded("a:b")}}),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read_is_left_out(case: str) -> None:
    assert [key.user for key in fitting([UNREADABLE[case], secret("reg.example")], "reg.example/app")] == [
        "reg.example"
    ]


def test_a_password_shows_in_no_text_of_a_key() -> None:
    assert "geheim" not in repr(PullKey("reg.example", "u", "geheim"))
