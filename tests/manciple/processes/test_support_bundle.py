"""A support bundle tells what helps, and none of the secrets that were planted in every place that has any."""

from __future__ import annotations

import base64
import tarfile
from pathlib import Path

import pytest
from django.core.management import call_command
from pytest_django import Settings

from claims.kinds.containers import EnvVar
from manciple.access.kinds.secrets import Secret
from manciple.api import certificates
from manciple.api.kubeconfig import Server
from manciple.processes import accounts, home
from manciple.processes.support import bundle
from manciple.processes.support.contents import MEMBERS
from manciple.processes.support.scrubbing import Scrubber, secrets_of_installation
from manciple.wire.machinery import Event, EventSource
from tests.builders import make_claim, make_container, make_meta, make_pod
from tests.builders.claims import make_claim_config
from tests.scheduling.cluster import Cluster

pytestmark = pytest.mark.django_db(transaction=True)

#: Each is somewhere else.
PLANTED = {
    name: f"planted-{name}-Zx81"
    for name in (
        "secret-key", "encryption-key", "database", "redis", "oidc", "proxy", "in-file", "secret-object", "environment",
        "annotation", "parameters", "argument",
    )
}  # fmt: skip


@pytest.fixture
def planted(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, and an installation full of secrets; what must not be found besides is added to PLANTED's values."""
    made = home.prepare(tmp_path / "home")
    settings.HOME = made.path
    made.secret_key.write_text(PLANTED["secret-key"])
    monkeypatch.setenv("MANCIPLE_ENCRYPTION_KEYS", PLANTED["encryption-key"])
    monkeypatch.setenv("MANCIPLE_DATABASE_URL", f"postgresql://m:{PLANTED['database']}@db/m")
    monkeypatch.setenv("MANCIPLE_REDIS_URL", f"redis://:{PLANTED['redis']}@r/0")
    monkeypatch.setenv("MANCIPLE_OIDC_CLIENT_SECRET", PLANTED["oidc"])
    (tmp_path / "manciple.toml").write_text(f'proxy_secret = "{PLANTED["in-file"]}"')
    monkeypatch.setenv("MANCIPLE_CONFIG", str(tmp_path / "manciple.toml"))
    certificates.ensure(made.path)
    accounts.write_kubeconfigs(made, server=Server(url="https://m", ca_pem=""), nodes=["node-1"])
    cluster = Cluster()
    cluster.with_gpus()
    data = {"password": base64.b64encode(PLANTED["secret-object"].encode()).decode()}
    cluster.create(Secret(api_version="v1", kind="Secret", metadata=make_meta("db", "default"), data=data))
    container = make_container(
        env=(EnvVar(name="PASSWORD", value=PLANTED["environment"]),), args=(PLANTED["argument"],)
    )
    cluster.create(make_pod("p", containers=[container], meta={"annotations": {"note": PLANTED["annotation"]}}))
    config = make_claim_config({"key": PLANTED["parameters"]})
    cluster.create(make_claim("c", config=[config]))
    message = f"login with {PLANTED['secret-object']} failed"
    cluster.create(
        Event(
            api_version="v1", kind="Event", metadata=make_meta("e", "default"), reason="Failed", message=message,
            type="Warning", source=EventSource(component="x"),
        )
    )  # fmt: skip
    return made.path


def members(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        files = {one.name.partition("/")[2]: archive.extractfile(one) for one in archive.getmembers()}
        return {name: file.read().decode() for name, file in files.items() if file is not None}


def test_none_of_the_secrets_of_an_installation_is_in_its_bundle(planted: Path, tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    token = accounts._kept_token(planted / "kubeconfig", "admin")
    assert token
    log.write_text(
        f"GET / Authorization: Bearer {token}\n{(planted / 'ca.key').read_text()}\n"
        f"connecting to postgresql://other:elsewhere-Zx81@db/m?password=elsewhere-Zx81\n"
        f"joined with abcdef.0123456789abcdef and key {PLANTED['encryption-key']}\n"
        "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJ4In0xyz.c2lnbmF0dXJl\n"
    )
    call_command("support_bundle", "--output", str(tmp_path / "b.tar.gz"), "--log", str(log))
    found = members(tmp_path / "b.tar.gz")
    everything = "\n".join(found.values())
    keys = [line for line in (planted / "ca.key").read_text().splitlines() if not line.startswith("-----")]
    encoded = base64.b64encode(PLANTED["secret-object"].encode()).decode()
    others = ["elsewhere-Zx81", "0123456789abcdef", "c2lnbmF0dXJl", token, encoded, *keys]
    assert [secret for secret in (*PLANTED.values(), *others) if secret in everything] == []
    assert (tmp_path / "b.tar.gz").stat().st_mode & 0o077 == 0
    # What helps is there all the same.
    assert set(found) == {"README.txt", *MEMBERS, "logs/0-api.log"}
    assert "login with [removed] failed" in found["events.json"]
    assert '"phase"' in found["pods.json"]
    assert "gpu-0" in found["slices.json"]
    assert "GET / Authorization: Bearer [removed]" in found["logs/0-api.log"]
    assert '"error"' not in "".join(text for name, text in found.items() if name not in ("redis.json", "journal.txt"))


def test_a_part_that_is_broken_is_told_of_in_its_place(tmp_path: Path) -> None:
    def broken() -> str:
        raise RuntimeError("out of order")

    bundle.write(tmp_path / "b.tar.gz", {"broken.json": broken, "whole.txt": lambda: "fine"}, [], Scrubber([]))
    found = members(tmp_path / "b.tar.gz")
    assert found["whole.txt"] == "fine"
    assert "RuntimeError: out of order" in found["broken.json"]


def test_short_values_and_words_are_left_alone() -> None:
    assert Scrubber(["on", "abc"]).scrub("on and on: abc") == "on and on: abc"


def test_the_secrets_of_an_installation_are_known(planted: Path) -> None:
    known = set(secrets_of_installation(home.Home(planted)))
    told_nowhere = {PLANTED[name] for name in ("environment", "annotation", "parameters", "argument", "proxy")}
    assert set(PLANTED.values()) - told_nowhere <= known
