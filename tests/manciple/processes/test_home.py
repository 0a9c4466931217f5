"""The home folder, kubeconfig files and accounts: made once, found again, never half written."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

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


#: what the operator says, where browsers reach the dashboard -> where links lead
PAGES = {
    "nothing": (None, "http://127.0.0.1:18400"),
    "an address of a proxy": ("https://dash.example.org", "https://dash.example.org"),
}


@pytest.mark.parametrize("case", PAGES)
def test_links_of_other_commands_lead_where_the_dashboard_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any, case: str
) -> None:
    said, expected = PAGES[case]
    monkeypatch.setenv("MANCIPLE_HOME", str(tmp_path))
    monkeypatch.delenv("MANCIPLE_PAGES_URL", raising=False)
    if said is not None:
        monkeypatch.setenv("MANCIPLE_PAGES_URL", said)
    accounts.serves_pages(Home(tmp_path), "http://127.0.0.1:18400")
    assert expected == settings.PAGES_URL
    program = "from manciple import settings; print(settings.PAGES_URL)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_a_home_that_cannot_be_written_to_keeps_nobody_from_serving(tmp_path: Path, settings: Any) -> None:
    (tmp_path / "file").touch()
    accounts.serves_pages(Home(tmp_path / "file"), "http://127.0.0.1:18400")
    assert settings.PAGES_URL


# What other users of this machine can read ----------------------------------------------------------------------------


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_home_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        (tmp_path / "made before").mkdir()
        for name in ("new", "made before"):
            assert mode(home.prepare(tmp_path / name).path) == 0o700
    finally:
        os.umask(before)


def test_a_home_of_an_earlier_version_is_closed_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o755)
    names = ("manciple.sqlite3", "manciple.sqlite3-wal", "manciple.sqlite3-shm", "ca.key", "secret-key", "kubeconfig")
    for name in names:
        (tmp_path / name).write_text("x" * 60)
        (tmp_path / name).chmod(0o644)
    (tmp_path / "ca.crt").touch(0o644)
    home.prepare(tmp_path)
    assert mode(tmp_path) == 0o700
    assert {name: mode(tmp_path / name) for name in names} == dict.fromkeys(names, 0o600)
    assert len(caplog.records) == 1 + len(names)
    assert f"{tmp_path} had mode 0755" in caplog.text
    caplog.clear()
    home.prepare(tmp_path)
    assert not caplog.records


def test_a_folder_of_others_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "theirs").touch()
    home.close_to_others(tmp_path)
    assert mode(tmp_path) == 0o755


#: what starts a process -> a call that does nothing else
STARTED = {
    "manciple": "from manciple.processes.command_line import main; main(['--version'])",
    "manage.py": "from manciple.processes.command_line import manage; manage(['--home', '/', 'version'])",
    "the agent": "from nodeagent.__main__ import main; main(['--help'])",
    "a driver in Python": "from nodeagent.serve import main; main(['--help'])",
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("call", STARTED.values(), ids=STARTED.keys())
def test_every_process_makes_files_for_its_owner_alone(call: str) -> None:
    program = f"import os\nos.umask(0o022)\ntry:\n    {call}\nexcept SystemExit:\n    pass\nprint(oct(os.umask(0)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0o77"
