"""Where the API server connects when somebody else names the address (SSRF)."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address, ip_network

import pytest

from manciple.access import addresses
from manciple.access.addresses import AddressPolicy, AddressRefused, Unresolvable

STRICT = AddressPolicy(local=False, forbidden=(ip_network("10.9.0.0/16"), ip_network("2001:db8:9::/48")))
LAPTOP = AddressPolicy(local=True)

#: one of each kind -> all of the kind
NEVER = {
    "0.0.0.0": ("0.1.2.3", "::"),
    "169.254.169.254": (
        "fe80::1", "fe80::1%eth0", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::a9fe:a9fe"
    ),
    "224.0.0.1": ("ff02::1",),
    "255.255.255.255": ("240.0.0.1",),
    "fd00:ec2::254": ("168.63.129.16",),
}  # fmt: skip
TOLD = {
    "0.0.0.0": "is an unspecified address",
    "169.254.169.254": "is a link-local address",
    "224.0.0.1": "is a multicast address",
    "255.255.255.255": "is a reserved address",
    "fd00:ec2::254": "is the metadata service of a cloud",
    "10.9.3.4": "is in a network of MANCIPLE_FORBIDDEN_NETWORKS",
    "127.0.0.1": "is a loopback address; set MANCIPLE_LOCAL_CONNECTIONS=1 if that is intended",
}
LOOPBACK = ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "::127.0.0.1")


@pytest.mark.parametrize(("address", "why"), TOLD.items())
def test_a_refusal_says_why(address: str, why: str) -> None:
    assert STRICT.refusal(ip_address(address)) == why


@pytest.mark.parametrize("kind", NEVER)
@pytest.mark.parametrize("policy", [STRICT, LAPTOP], ids=["strict", "laptop"])
def test_what_is_never_connected_to(policy: AddressPolicy, kind: str) -> None:
    why = STRICT.refusal(ip_address(kind))
    assert [policy.refusal(ip_address(one)) for one in (kind, *NEVER[kind])] == [why] * (1 + len(NEVER[kind]))


@pytest.mark.parametrize("address", LOOPBACK)
def test_loopback_is_for_who_says_so(address: str) -> None:
    assert "MANCIPLE_LOCAL_CONNECTIONS=1" in STRICT.refusal(ip_address(address))
    assert LAPTOP.refusal(ip_address(address)) == ""


@pytest.mark.parametrize("address", ["10.9.3.4", "2001:db8:9::1", "::ffff:10.9.3.4"])
def test_networks_can_be_forbidden(address: str) -> None:
    assert "MANCIPLE_FORBIDDEN_NETWORKS" in STRICT.refusal(ip_address(address))


@pytest.mark.parametrize("address", ["10.1.2.3", "192.0.2.7", "2001:db8::7", "fd00::7"])
def test_machines_elsewhere_are_connected_to(address: str) -> None:
    assert STRICT.refusal(ip_address(address)) == ""


def test_this_machines_own_addresses_are_for_who_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert addresses.is_own(ip_address("127.0.0.1"))
    assert not addresses.is_own(ip_address("192.0.2.7"))
    monkeypatch.setattr(addresses, "is_own", lambda address: str(address) == "10.1.2.3")
    assert "own machine" in STRICT.refusal(ip_address("10.1.2.3"))
    assert LAPTOP.refusal(ip_address("10.1.2.3")) == ""


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "localhost", "[::1]"[1:-1]]
)
def test_a_name_is_judged_by_what_it_stands_for(host: str) -> None:
    with pytest.raises(AddressRefused, match="MANCIPLE_LOCAL_CONNECTIONS=1"):
        addresses.resolve(host, 443, policy=STRICT)
    with pytest.raises(AddressRefused, match="MANCIPLE_LOCAL_CONNECTIONS=1"):
        asyncio.run(addresses.resolve_async(host, 443, policy=STRICT))


def test_of_several_addresses_those_that_are_allowed_are_left() -> None:
    assert STRICT.permitted("x", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "10.1.2.4"]) == ("10.1.2.3", "10.1.2.4")


@pytest.mark.parametrize("host", ["", "no.such.host.invalid", "a" * 300, "x..y"])
def test_a_name_that_stands_for_nothing(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_name(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    if host.endswith("invalid"):
        monkeypatch.setattr(socket, "getaddrinfo", no_name)
    with pytest.raises(AddressRefused):
        addresses.resolve(host, 443, policy=STRICT)


def test_no_address_is_no_host() -> None:
    with pytest.raises(Unresolvable, match="no such host: nowhere"):
        STRICT.permitted("nowhere", [])
