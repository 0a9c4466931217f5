"""What a pod is called, and how it finds others: hostname, subdomain, dnsPolicy, dnsConfig."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from claims.kinds.pods import Pod
from nodeagent.runtimes.podman.folder import resolver_text
from nodeagent.runtimes.protocol import Addresses, ContainerRequest, container_request
from tests.nodeagent.objects import pod
from tests.nodeagent.pods.given_sources import GivenSources
from tests.nodeagent.runtimes.containers import Node

NODE = "domain old.example\nsearch a.example b.example\nnameserver 192.0.2.1\noptions ndots:5 rotate\n# text\n"
CONFIG = {
    "nameservers": ["192.0.2.1", "192.0.2.2"],
    "searches": ["b.example", "c.example"],
    "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
}


def request(name: str = "p", **spec: Any) -> ContainerRequest:
    manifest = msgspec.convert(pod(name, spec=spec), Pod)
    return container_request(
        manifest,
        manifest.spec.containers[0],
        role="main",
        attempt=0,
        cdi_devices=(),
        claims=(),
        addresses=Addresses(host="192.0.2.1", pod="10.1.2.3"),
        source=GivenSources(),
    )


#: Of the pod's spec -> its resolv.conf
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "added to the node's": (
        {"dnsPolicy": "Default", "dnsConfig": CONFIG},
        "search a.example b.example c.example\nnameserver 192.0.2.1\nnameserver 192.0.2.2\n"
        "options ndots:2 rotate edns0\n",
    ),
    "the pod's alone": (
        {"dnsPolicy": "None", "dnsConfig": CONFIG},
        "search b.example c.example\nnameserver 192.0.2.1\nnameserver 192.0.2.2\noptions ndots:2 edns0\n",
    ),
    "an option more": (
        {"dnsConfig": {"options": [{"name": "timeout", "value": "1"}]}},
        "search a.example b.example\nnameserver 192.0.2.1\noptions ndots:5 rotate timeout:1\n",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_pods_resolver_is_configured_as_it_says(case: str, tmp_path: Path) -> None:
    spec, text = CASES[case]
    (tmp_path / "resolv.conf").write_text(NODE)
    resolver = request(**spec).resolver
    assert resolver is not None
    assert resolver_text(resolver, tmp_path / "resolv.conf") == text


def test_a_pod_that_says_nothing_has_the_nodes() -> None:
    assert request(dnsPolicy="ClusterFirst").resolver is None


def test_a_container_sees_it(node: Node) -> None:
    lines = node.output("cat /etc/resolv.conf; id -u", spec={"dnsPolicy": "None", "dnsConfig": CONFIG})
    assert lines == [*CASES["the pod's alone"][1].splitlines(), "0"]


FULL = "p.ranks.default.svc.cluster.local"
#: Of the pod's spec -> (hostname, name in full)
NAMES: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "the pod's": ({}, ("p", "")),
    "its own": ({"hostname": "h"}, ("h", "")),
    "with a domain": ({"subdomain": "ranks"}, ("p", FULL)),
    "in full": ({"subdomain": "ranks", "setHostnameAsFQDN": True}, (FULL, FULL)),
    "in full without a domain": ({"setHostnameAsFQDN": True}, ("p", "")),
    "overridden": ({"hostname": "h", "subdomain": "ranks", "hostnameOverride": "o.example"}, ("o.example", "")),
    "the node's": ({"hostNetwork": True, "hostname": "h", "subdomain": "ranks"}, ("", "")),
}


@pytest.mark.parametrize("case", NAMES)
def test_a_pods_hostname(case: str) -> None:
    spec, names = NAMES[case]
    made = request(**spec)
    assert (made.hostname, made.full_name, made.unserved) == (*names, ())


def test_a_hostname_is_cut_and_one_in_full_that_is_too_long_refused() -> None:
    long = f"{'a' * 62}-b"
    assert request(long).hostname == "a" * 62
    (told,) = request(long, subdomain="ranks", setHostnameAsFQDN=True).unserved
    assert "is too long (64 characters is the max, 94 characters requested)" in told


def test_a_container_finds_itself_by_its_name_in_full(node: Node) -> None:
    lines = node.output("hostname; grep p.ranks /etc/hosts", spec={"subdomain": "ranks"})
    assert lines == ["p", f"10.1.2.3\t{FULL}\tp"]
