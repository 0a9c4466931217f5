"""Certificates, kubeconfig files and the token command."""

from __future__ import annotations

import ipaddress
import stat
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from django.core.management import CommandError, call_command

from manciple.access.authentication import tokens
from manciple.api import certificates, kubeconfig
from manciple.api.kubeconfig import Server

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def names_of(certificate: x509.Certificate) -> set[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in names}


def test_a_server_certificate_names_its_hosts_and_is_signed_by_the_authority(tmp_path: Path) -> None:
    files = certificates.ensure(tmp_path, hosts=["api.example.com", "10.0.0.7"], now=NOW)
    served = read(files.certificate)
    served.verify_directly_issued_by(read(files.authority))
    assert names_of(served) == {"localhost", "127.0.0.1", "::1", "api.example.com", "10.0.0.7"}
    assert ipaddress.ip_address("10.0.0.7") in {
        name.value
        for name in served.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        if isinstance(name, x509.IPAddress)
    }


def test_keys_are_for_their_owner_only(tmp_path: Path) -> None:
    certificates.ensure(tmp_path, now=NOW)
    for key in ("ca.key", "server.key"):
        assert stat.S_IMODE((tmp_path / key).stat().st_mode) == 0o600


def test_what_will_do_is_kept(tmp_path: Path) -> None:
    first = certificates.ensure(tmp_path, hosts=["a.example.com"], now=NOW).certificate.read_bytes()
    assert certificates.ensure(tmp_path, hosts=["a.example.com"], now=NOW).certificate.read_bytes() == first
    assert certificates.ensure(tmp_path, now=NOW).certificate.read_bytes() == first


RENEWALS = {
    "near its end": (NOW + certificates.SERVER_LIFETIME - timedelta(days=29), ["a.example.com"]),
    "with a host that it does not name": (NOW, ["b.example.com"]),
}


@pytest.mark.parametrize(("when", "hosts"), RENEWALS.values(), ids=RENEWALS.keys())
def test_a_server_certificate_is_renewed_under_the_same_authority(
    tmp_path: Path, when: datetime, hosts: list[str]
) -> None:
    first = certificates.ensure(tmp_path, hosts=["a.example.com"], now=NOW)
    before, authority = first.certificate.read_bytes(), first.ca_pem
    second = certificates.ensure(tmp_path, hosts=hosts, now=when)
    assert second.certificate.read_bytes() != before
    assert second.ca_pem == authority
    read(second.certificate).verify_directly_issued_by(read(second.authority))


def test_a_new_authority_signs_a_new_server_certificate(tmp_path: Path) -> None:
    certificates.ensure(tmp_path, now=NOW)
    for name in ("ca.crt", "ca.key"):
        (tmp_path / name).unlink()
    files = certificates.ensure(tmp_path, now=NOW)
    read(files.certificate).verify_directly_issued_by(read(files.authority))


@pytest.mark.parametrize("content", [None, "", "garbage", "of another"], ids=["missing", "empty", "garbage", "another"])
@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "server.crt", "server.key"])
def test_damaged_files_are_refused_by_name_and_never_replaced(tmp_path: Path, name: str, content: str | None) -> None:
    certificates.ensure(tmp_path / "home", now=NOW)
    certificates.ensure(tmp_path / "other", now=NOW)
    damaged = tmp_path / "home" / name
    if content is None:
        damaged.unlink()
    else:
        damaged.write_text((tmp_path / "other" / name).read_text() if content == "of another" else content)
    before = {path: path.read_bytes() for path in (tmp_path / "home").iterdir()}
    if name.startswith("server") and content in (None, "of another"):
        certificates.ensure(tmp_path / "home", now=NOW)
        certificates.check(tmp_path / "home")
        return
    with pytest.raises(certificates.CertificatesRefused, match=str(damaged)):
        certificates.ensure(tmp_path / "home", now=NOW)
    assert {path: path.read_bytes() for path in (tmp_path / "home").iterdir()} == before


def test_a_kubeconfig_holds_all_that_a_client_needs() -> None:
    text = kubeconfig.render(Server(url="https://h:6443", ca_pem="PEM"), user="bob", token="t", namespace="team")
    document = yaml.safe_load(text)
    assert document["clusters"][0]["cluster"] == {"server": "https://h:6443", "certificate-authority-data": "UEVN"}
    assert document["contexts"][0]["context"]["namespace"] == "team"
    assert document["current-context"] == document["contexts"][0]["name"]
    assert kubeconfig.read_token(text) == "t"


@pytest.mark.parametrize("text", ["", "a: b", "- x", "{", "contexts: []\nusers: []\ncurrent-context: x\n"])
def test_a_file_without_a_token_has_none(text: str) -> None:
    assert kubeconfig.read_token(text) is None


def command(*arguments: str) -> str:
    out = StringIO()
    call_command("token", *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.django_db
def test_the_token_command_issues_lists_and_revokes() -> None:
    token = command("issue", "bob", "--group", "team").strip()
    identity = tokens.identify(token)
    assert identity is not None
    assert identity.groups == ("team", "system:authenticated")
    listed = command("list")
    assert "bob" in listed
    assert token not in listed
    assert command("revoke", "bob") == "1 revoked\n"
    assert tokens.identify(token) is None
    with pytest.raises(CommandError, match="bob"):
        command("revoke", "bob")
