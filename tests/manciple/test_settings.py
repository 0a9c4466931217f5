"""What the settings make of the environment: each case reads the settings' file anew."""

from __future__ import annotations

import os
import runpy
import secrets
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.template.backends.django import DjangoTemplates

from manciple.processes import home
from tests.e2e.processes import ROOT

POSTGRESQL = {"MANCIPLE_DATABASE_URL": "postgresql://m:p@127.0.0.1/m"}
REDIS = {"MANCIPLE_REDIS_URL": "redis://127.0.0.1/0"}
ENCRYPTION = {"MANCIPLE_ENCRYPTION_KEYS": "for the test run only"}
KEY = {"MANCIPLE_SECRET_KEY": "for the test run only, forty characters long", **ENCRYPTION}


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("MANCIPLE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("MANCIPLE_HOME", str(tmp_path))


def read(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> dict[str, Any]:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return runpy.run_path(str(ROOT / "manciple" / "settings.py"))


@pytest.mark.parametrize("production", [POSTGRESQL, REDIS, POSTGRESQL | REDIS], ids=["PostgreSQL", "Redis", "both"])
@pytest.mark.parametrize("key", ["", "  ", "CHANGE-ME-50-RANDOM-CHARACTERS"], ids=["none", "blank", "the example's"])
def test_production_does_not_start_without_a_key_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, production: dict[str, str], key: str
) -> None:
    home.prepare(tmp_path)  # a key of one machine's home is not the one of the other processes

    with pytest.raises(ImproperlyConfigured, match="MANCIPLE_SECRET_KEY must be set"):
        read(monkeypatch, {**production, **ENCRYPTION, "MANCIPLE_SECRET_KEY": key})
    with pytest.raises(ImproperlyConfigured, match="MANCIPLE_ENCRYPTION_KEYS must be set"):
        read(monkeypatch, {**production, **KEY, "MANCIPLE_ENCRYPTION_KEYS": key})


def test_the_example_of_the_environment_has_the_keys_that_are_refused() -> None:
    example = (ROOT / "deploy/environment.example").read_text()
    for name in KEY:
        assert f"{name}=CHANGE-ME-50-RANDOM-CHARACTERS\n" in example


def test_the_processes_of_an_installation_have_the_key_that_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, {**POSTGRESQL, **KEY})["SECRET_KEY"] == KEY["MANCIPLE_SECRET_KEY"]


def test_an_embedded_system_keeps_its_key_where_its_owner_alone_reads_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = home.prepare(tmp_path)
    for kept in (made.secret_key, made.encryption_keys):
        kept.chmod(0o644)
    home.prepare(tmp_path)

    for kept in (made.secret_key, made.encryption_keys):
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    settings = read(monkeypatch, {})
    assert settings["SECRET_KEY"] == made.secret_key.read_text()
    assert settings["ENCRYPTION_KEYS"] == (made.encryption_keys.read_text(),)


@pytest.mark.parametrize("name", KEY)
def test_a_short_key_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=f"{name} .*16"):
        read(monkeypatch, {**POSTGRESQL, **KEY, name: "x"})


def test_of_several_keys_the_first_is_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {**POSTGRESQL, **KEY, "MANCIPLE_ENCRYPTION_KEYS": "the newest of the keys, old,"}
    assert read(monkeypatch, given)["ENCRYPTION_KEYS"] == ("the newest of the keys", "old")


def test_no_key_is_left_in_the_home_of_a_production_process(tmp_path: Path) -> None:
    made = home.prepare(tmp_path, with_key=False)
    assert not made.secret_key.exists()
    assert not made.encryption_keys.exists()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("command", "environment"),
    [
        (["manage.py", "serve"], POSTGRESQL),
        (["-m", "celery", "-A", "manciple", "worker"], REDIS),
    ],
    ids=["the API", "a worker"],
)
def test_a_process_of_production_says_what_it_lacks(
    tmp_path: Path, command: list[str], environment: dict[str, str]
) -> None:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert done.returncode != 0
    assert "MANCIPLE_SECRET_KEY" in done.stderr
    assert not (tmp_path / "secret-key").exists()


def test_the_format_of_the_log_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for format_ in ("text", "json"):
        made = read(monkeypatch, {"MANCIPLE_LOG_FORMAT": format_})["LOGGING"]
        assert made["handlers"]["stderr"]["formatter"] == format_
        assert format_ in made["formatters"]
    with pytest.raises(ImproperlyConfigured, match="MANCIPLE_LOG_FORMAT must be"):
        read(monkeypatch, {"MANCIPLE_LOG_FORMAT": "xml"})


COOKIES: dict[str, tuple[dict[str, str], bool]] = {
    "embedded, on plain loopback": ({}, False),
    "embedded, behind somebody's TLS": ({"MANCIPLE_SECURE_COOKIES": "1"}, True),
    "PostgreSQL": ({**POSTGRESQL, **KEY}, True),
    "Redis": ({**REDIS, **KEY}, True),
    "production on plain HTTP": ({**POSTGRESQL, **KEY, "MANCIPLE_SECURE_COOKIES": "0"}, False),
}


@pytest.mark.parametrize(("environment", "secure"), COOKIES.values(), ids=COOKIES.keys())
def test_cookies_are_for_tls_alone_in_production(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], secure: bool
) -> None:
    settings = read(monkeypatch, environment)

    assert (settings["SESSION_COOKIE_SECURE"], settings["CSRF_COOKIE_SECURE"]) == (secure, secure)


def test_a_switch_is_on_or_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ImproperlyConfigured, match="MANCIPLE_SECURE_COOKIES must be 0 or 1, not 'yes'"):
        read(monkeypatch, {"MANCIPLE_SECURE_COOKIES": "yes"})


def test_keys_that_people_make_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    made = secrets.token_urlsafe(48)
    assert read(monkeypatch, {**REDIS, **KEY, "MANCIPLE_SECRET_KEY": f" {made}\n"})["SECRET_KEY"] == made


LETTING_ANYBODY_IN = {
    "a provider without TLS": {"MANCIPLE_OIDC_ISSUER_URL": "http://idp.example.org", "MANCIPLE_OIDC_CLIENT_ID": "m"},
    "a provider whose tokens may be for anybody": {"MANCIPLE_OIDC_ISSUER_URL": "https://idp.example.org"},
    "a claim without a value": {"MANCIPLE_OIDC_REQUIRED_CLAIMS": "hd"},
    "a proxy's header from anywhere": {"MANCIPLE_PROXY_USER_HEADER": "X-Remote-User", "MANCIPLE_PROXY_SECRET": "s"},
    "a proxy's header that anybody there may set": {
        "MANCIPLE_PROXY_USER_HEADER": "X-Remote-User",
        "MANCIPLE_PROXY_ADDRESSES": "10.0.0.1",
    },
}


@pytest.mark.parametrize("given", LETTING_ANYBODY_IN.values(), ids=LETTING_ANYBODY_IN.keys())
def test_what_would_let_anybody_in_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str]
) -> None:
    with pytest.raises(ImproperlyConfigured, match="MANCIPLE_"):
        read(monkeypatch, given)


URLS: dict[str, tuple[str, dict[str, Any]]] = {
    "one server": ("postgresql://m:p%40ss@db:5433/m", {"HOST": "db", "PORT": "5433", "PASSWORD": "p@ss", "NAME": "m"}),
    "no port": ("postgresql://m@db/m", {"HOST": "db", "PORT": "", "USER": "m"}),
    "a socket": ("postgresql:///m", {"HOST": "", "NAME": "m"}),
    "an address of IPv6": ("postgresql://m@[::1]:5432/m", {"HOST": "::1", "PORT": "5432"}),
    "a primary and its standby": ("postgresql://m:p@a:5432,b:5433/m", {"HOST": "a,b", "PORT": "5432,5433"}),
}


@pytest.mark.parametrize(("url", "parts"), URLS.values(), ids=URLS)
def test_the_database_is_where_its_url_says(monkeypatch: pytest.MonkeyPatch, url: str, parts: dict[str, Any]) -> None:
    database = read(monkeypatch, {**KEY, "MANCIPLE_DATABASE_URL": url})["DATABASES"]["default"]
    assert {name: database[name] for name in parts} == parts
    several = "," in parts["HOST"]
    assert database["OPTIONS"].get("target_session_attrs") == ("read-write" if several else None)


def test_what_stands_behind_the_url_goes_to_libpq(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://m:p@db/m?sslmode=verify-full&connect_timeout=9"
    options = read(monkeypatch, {**KEY, "MANCIPLE_DATABASE_URL": url})["DATABASES"]["default"]["OPTIONS"]
    assert options["sslmode"] == "verify-full"


def test_in_development_a_changed_template_is_drawn_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn = {}
    for development in ("0", "1"):
        (options,) = read(monkeypatch, {"MANCIPLE_DEVELOPMENT": development})["TEMPLATES"]
        parts = {"NAME": "test", "APP_DIRS": False, "DIRS": [tmp_path], "OPTIONS": dict(options["OPTIONS"])}
        engine = DjangoTemplates(parts)
        texts = []
        for text in ("before", "after"):
            (tmp_path / "page.html").write_text(text)
            texts.append(engine.get_template("page.html").render())
        drawn[development] = texts
    assert drawn == {"0": ["before", "before"], "1": ["before", "after"]}


@pytest.mark.parametrize("production", [POSTGRESQL, REDIS], ids=["PostgreSQL", "Redis"])
def test_production_is_never_in_development(monkeypatch: pytest.MonkeyPatch, production: dict[str, str]) -> None:
    assert read(monkeypatch, {**production, **KEY})["DEBUG"] is False
    with pytest.raises(ImproperlyConfigured, match="MANCIPLE_DEVELOPMENT is for one machine"):
        read(monkeypatch, {**production, **KEY, "MANCIPLE_DEVELOPMENT": "1"})
