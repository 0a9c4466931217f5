"""A support bundle tells what helps, and none of the secrets that were planted in every place that has any."""

from __future__ import annotations

import base64
import json
import tarfile
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from pytest_django import Settings

from claims.kinds.containers import EnvVar
from manciple.access import invitations
from manciple.access.kinds.secrets import Secret
from manciple.api import certificates
from manciple.api.kubeconfig import Server
from manciple.notifications import addresses
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


def test_quotes_that_json_escapes_hide_no_secret(tmp_path: Path) -> None:
    event = {"message": 'refused {"password": "correcthorse8", "user": "eve"}', "seen": [1, None, ("a", True)]}
    bundle.write(tmp_path / "b.tar.gz", {"events.json": lambda: [event]}, [], Scrubber([]))
    found = json.loads(members(tmp_path / "b.tar.gz")["events.json"])
    told = 'refused {"password": "[removed]", "user": "eve"}'
    assert found == [{"message": told, "seen": [1, None, ["a", True]]}]


def test_short_values_and_words_are_left_alone() -> None:
    assert Scrubber(["on", "abc"]).scrub("on and on: abc") == "on and on: abc"


def test_the_secrets_of_an_installation_are_known(planted: Path) -> None:
    known = set(secrets_of_installation(home.Home(planted)))
    told_nowhere = {PLANTED[name] for name in ("environment", "annotation", "parameters", "argument", "proxy")}
    assert set(PLANTED.values()) - told_nowhere <= known


SIGNED = "WzEsImFAYiJd:1wXyZa:abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQ"
DIGEST = "0123456789abcdef0123456789abcdef"
#: A line of a log -> the part of it that is secret.
LINES = {
    f"sign in at http://h:8000/welcome/MQ/cxyz12-{DIGEST} once": DIGEST,
    f"the token is cxyz12-{DIGEST}": DIGEST,
    "GET /welcome/MQ/set 200": "MQ/set",
    f"link http://h/notifications/confirm/{SIGNED} sent": "WzEsImFAYiJd",
    f"GET /notifications/unsubscribe/{SIGNED}": "WzEsImFAYiJd",
    f"the address is confirmed by {SIGNED}": "WzEsImFAYiJd",
    "Cookie: sessionid=k3q9x0v1m2n3b4c5; csrftoken=Zx81Zx81": "k3q9x0v1m2n3b4c5",
    "Set-Cookie: manciple_session_8000=k3q9x0v1m2n3b4c5; HttpOnly": "k3q9x0v1m2n3b4c5",
    '"cookie": "sessionid=k3q9x0v1m2n3b4c5", "path": "/"': "k3q9x0v1m2n3b4c5",
    "Authorization: Basic YWRtaW46c3dvcmRmaXNo": "YWRtaW46c3dvcmRmaXNo",
    "X-CSRFToken: Zx81Zx81Zx81": "Zx81Zx81Zx81",
    "x-manciple-proxy-secret: Zx81Zx81": "Zx81Zx81",
    "GET /login/oidc/return?state=Zx81Zx81&code=Yy92Yy92 302": "Yy92Yy92",
    "GET /login/oidc/return?code=Zx81Zx81&state=Yy92Yy92 302": "Yy92Yy92",
    "POST https://hooks.slack.com/services/T00/B00/XyZ123 failed": "XyZ123",
    "POST https://chat.example.com/webhook/XyZ123 failed": "XyZ123",
    "signed with whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "token: abcdefghijkl": "abcdefghijkl",
    "client-key-data: LS0tLS1CRUdJTg": "LS0tLS1CRUdJTg",
    '"password": "sword fish"': "fish",
    "SMTP_PASSWORD='swordfish99'": "swordfish99",
    "session_key=k3q9x0v1m2n3b4c5": "k3q9x0v1m2n3b4c5",
    "git clone https://ghp0123456789@github.com/a/b": "ghp0123456789",
    "mysql --user root --password swordfish99 -e x": "swordfish99",
    "tool --token 'sword fish99' x": "fish99",
    "args ['--api-key', 'swordfish99']": "swordfish99",
    "curl -u admin:swordfish99 http://h": "swordfish99",
    "pushed with ghp_0123456789abcdefABCDEF0123456789abcd": "ghp_0123456789",
    "pushed with github_pat_11ABCDEFG0_0123456789abcdef": "11ABCDEFG0",
    "access by AKIAIOSFODNN7EXAMPLE": "AKIAIOSFODNN7EXAMPLE",
    "aws secret key is wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": "wJalrXUtnFEMI",
    "aws secret key: wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": "wJalrXUtnFEMI",
    "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": "wJalrXUtnFEMI",
    "slack xoxb-123456789012-abcdefGHIJ": "abcdefGHIJ",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQOYBF\n-----END PGP PRIVATE KEY BLOCK-----": "lQOYBF",
    "Authorization: Token swordfish99": "swordfish99",
    "authorization=swordfish99": "swordfish99",
    'Authorization: Digest username="a", response="swordfish99"': "swordfish99",
    r'{"message": "told {\"password\": \"correcthorse8\"}"}': "correcthorse8",
    r'{"message": "told {\"password\": \"sword fish\"}"}': "fish",
    r'{"password": "sword\"correcthorse8"}': "correcthorse8",
    "s3?X-Amz-Signature=0123456789abcdef": "0123456789abcdef",
}


@pytest.mark.parametrize("line", LINES)
def test_whatever_lets_somebody_in_is_taken_out_of_a_log(line: str) -> None:
    scrubbed = Scrubber([]).scrub(line)
    assert LINES[line] not in scrubbed
    assert "[removed]" in scrubbed


@pytest.mark.parametrize(
    "line",
    [
        "GET /api/v1/pods?limit=500&continue=eyJ2 200 0.004",
        "2026-11-28 18:10:19,217 ERROR django.request: Internal Server Error: /events",
        "pod team-a/web-0123456789 bound to node-1: 2 of 3 devices",
        '"secrets": 12,',
        "0 tokens revoked",
        "unit manciple-token-controller is up, authorization by RBAC",
        "6f2a1c9e-7b2d-4a53-9a57-0c6b3f1f2a11",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "manciple.access.0010_rights_are_given 2026-11-28 18:10",
    ],
)
def test_what_helps_stays_in_a_log(line: str) -> None:
    assert Scrubber([]).scrub(line) == line


def test_links_sessions_and_webhooks_of_people_are_known(planted: Path, tmp_path: Path) -> None:
    """The link as this version makes it, and the session as its browser has it."""
    link = invitations.invite("eve").path
    eve = User.objects.get(username="eve")
    browser = Client()
    browser.force_login(eve)
    key = browser.cookies[settings.SESSION_COOKIE_NAME].value
    signing = addresses.set_webhook(eve, "https://chat.example.com/in/Zq77Zq77Zq77")
    log = tmp_path / "api.log"
    log.write_text(f"sent http://h{link}\nsession {key}\ncalling https://chat.example.com/in/Zq77Zq77Zq77\n{signing}\n")
    call_command("support_bundle", "--output", str(tmp_path / "b.tar.gz"), "--log", str(log))
    everything = "\n".join(members(tmp_path / "b.tar.gz").values())
    for secret in (link, link.rpartition("/")[2], key, "Zq77Zq77Zq77", signing):
        assert secret not in everything
