"""The home folder, kubeconfig files and accounts: made once, found again, never half written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from manciple.access.authentication import tokens
from manciple.api import kubeconfig
from manciple.api.kubeconfig import Server
from manciple.processes import accounts, home
from manciple.processes.home import Home, write_private

SERVER = Server(url="https://127.0.0.1:6443", ca_pem="-----BEGIN CERTIFICATE-----\n")


def test_a_home_is_made_once_and_continued(tmp_path: Path) -> None:
    made = home.prepare(tmp_path / "lab")
    key = made.secret_key.read_text()
    assert len(key) >= 50
    assert home.prepare(tmp_path / "lab").secret_key.read_text() == key


def test_private_files_are_readable_to_their_owner_only_and_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "secret"
    write_private(path, "one")
    write_private(path, "two")
    assert path.read_text() == "two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["secret"]


def test_a_link_or_a_pipe_is_written_to_and_stays_what_it_is(tmp_path: Path) -> None:
    """As root, `--kubeconfig /dev/stdout` made a file of it, for the whole machine."""
    (tmp_path / "file").touch(mode=0o644)
    for name in ("file", "new"):
        link, target = tmp_path / f"link to {name}", tmp_path / name
        link.symlink_to(target)
        write_private(link, "through the link")
        assert link.is_symlink()
        assert target.read_text() == "through the link"
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_private(tmp_path / "pipe", "through the pipe")
    assert os.read(reader, 100) == b"through the pipe"
    os.close(reader)


@pytest.mark.django_db
def test_kubeconfigs_carry_tokens_that_the_api_knows(tmp_path: Path) -> None:
    made = Home(tmp_path)
    accounts.write_kubeconfigs(made, server=SERVER, nodes=["node-1"])
    wanted = {
        made.kubeconfig: ("admin", "system:masters"),
        made.kubeconfig_user: ("user", "system:authenticated"),
        made.node_kubeconfig("node-1"): ("system:node:node-1", "system:nodes"),
    }
    for path, (name, group) in wanted.items():
        token = kubeconfig.read_token(path.read_text())
        identity = tokens.identify(token) if token else None
        assert identity is not None
        assert identity.name == name
        assert group in identity.groups


@pytest.mark.django_db
def test_a_token_that_still_holds_is_kept_and_one_that_does_not_is_replaced(tmp_path: Path) -> None:
    made = Home(tmp_path)
    accounts.write_kubeconfigs(made, server=SERVER, nodes=[])
    first = kubeconfig.read_token(made.kubeconfig.read_text())
    accounts.write_kubeconfigs(made, server=SERVER, nodes=[])
    assert kubeconfig.read_token(made.kubeconfig.read_text()) == first
    tokens.revoke("admin")
    accounts.write_kubeconfigs(made, server=SERVER, nodes=[])
    second = kubeconfig.read_token(made.kubeconfig.read_text())
    assert second not in {None, first}


@pytest.mark.django_db
def test_the_administrator_is_given_a_link_until_their_password_is_set() -> None:
    link = accounts.first_link("http://127.0.0.1:8000/")
    assert link.startswith("http://127.0.0.1:8000/welcome/")
    assert link in accounts.how_to_sign_in(link)
    assert accounts.first_link("http://127.0.0.1:8000"), "as long as nobody used it"
    admin = User.objects.get(username="admin")
    assert admin.is_staff
    admin.set_password("correct horse")
    admin.save()
    assert accounts.first_link("http://127.0.0.1:8000") == ""
    assert "as admin" in accounts.how_to_sign_in("")
