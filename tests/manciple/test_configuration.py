"""The configuration file: what it may say, what becomes of it, and what `manciple config check` tells."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from django.conf import settings

from manciple import configuration
from manciple.configuration import VARIABLE, ConfigurationRefused
from manciple.declared_settings import ENCRYPTION_KEYS, SECRET_KEY, SETTINGS
from manciple.processes import config_check
from manciple.processes.config_check import CheckedConfiguration, checked_configuration
from tests.e2e.processes import ROOT

#: Planted where a value is secret.
SECRET = "hunter2hunter2hunter2"


def write(folder: Path, text: str) -> Path:
    path = folder / "manciple.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def effective(folder: Path, text: str, **environment: str) -> dict[str, str]:
    """What a process sees in its environment."""
    seen = {VARIABLE: str(write(folder, text)), **environment}
    configuration.apply(seen)
    del seen[VARIABLE]
    return seen


def test_every_setting_tells_where_django_has_its_value() -> None:
    named = [setting for setting in SETTINGS.values() if setting.django_name]
    assert [setting.name for setting in named if not hasattr(settings, setting.django_name)] == []


SAID = {
    "text": ('api_url = "https://m:6443"', {"MANCIPLE_API_URL": "https://m:6443"}),
    "a number": ("audit_days = 30", {"MANCIPLE_AUDIT_DAYS": "30"}),
    "a switch": ("fair_share = true", {"MANCIPLE_FAIR_SHARE": "1"}),
    "a table": ('[audit]\ndays = 30\nlog = "/l"', {"MANCIPLE_AUDIT_DAYS": "30", "MANCIPLE_AUDIT_LOG": "/l"}),
    "a list": ('allowed_hosts = ["a", "b"]', {"MANCIPLE_ALLOWED_HOSTS": "a,b"}),
    "a list in words": ('oidc.scopes = ["email", "groups"]', {"MANCIPLE_OIDC_SCOPES": "email groups"}),
    "pairs": ("[feature_gates]\nA = true\nB = false", {"MANCIPLE_FEATURE_GATES": "A=true,B=false"}),
    "pairs of text": ('oidc.required_claims = {hd = "x"}', {"MANCIPLE_OIDC_REQUIRED_CLAIMS": "hd=x"}),
}


@pytest.mark.parametrize(("text", "seen"), SAID.values(), ids=SAID)
def test_what_the_file_says_is_seen_as_from_the_environment(tmp_path: Path, text: str, seen: dict[str, str]) -> None:
    assert effective(tmp_path, text) == seen


def test_the_environment_has_the_last_word(tmp_path: Path) -> None:
    seen = effective(tmp_path, "audit_days = 30", MANCIPLE_AUDIT_DAYS="5")
    assert seen == {"MANCIPLE_AUDIT_DAYS": "5"}


def test_a_value_may_lie_in_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n")
    seen = effective(tmp_path, f'secret_key = {{file = "{tmp_path / "key"}"}}')
    assert seen == {"MANCIPLE_SECRET_KEY": SECRET}


REFUSED = {
    "an unknown key": ("adit_days = 3", "adit_days is not a setting; did you mean audit_days?"),
    "an unknown key in a table": ("[audit]\nweeks = 3", "audit.weeks "),
    "no number": ('audit_days = "x"', "audit_days must be a number, not 'x'"),
    "below 0": ("audit_days = -1", "audit_days must be 0 or more, not -1"),
    "no whole number": ("api_threads = 1.5", "api_threads must be a whole number, 0 or more, not '1.5'"),
    "none of the choices": ('placement = "tight"', "placement must be one of first-fit, pack, spread, best-fit"),
    "an address of something else": ('redis_url = "http://r"', "redis_url must begin with redis:// or"),
    "no fraction": ("traces_part = 50", "traces_part must be 1 or less, not 50"),
    "no network": ('forbidden_networks = ["db"]', "forbidden_networks must be networks such as 10.0.0.0/8"),
    "no pairs": ('oidc.required_claims = ["hd"]', "oidc.required_claims must be key=value"),
    "no switch": ('fair_share = "yes"', "fair_share must be 0 or 1, not 'yes'"),
    "no address": ('metrics_listen = "here"', "metrics_listen must be HOST:PORT, not 'here'"),
    "a list of one value": ('api_url = ["a"]', "api_url must be one value"),
    "the same twice": ("audit_days = 1\n[audit]\ndays = 2", "audit.days is said twice"),
    "a file that is not there": ('secret_key = {file = "/nowhere/key"}', "No such file"),
    "nothing, where something must be": ('ca_file = ""', "ca_file is empty: leave it out for its default"),
    "no TOML": ("audit_days =", "cannot be read"),
}


@pytest.mark.parametrize(("text", "problem"), REFUSED.values(), ids=REFUSED)
def test_nothing_starts_with_a_file_that_is_wrong(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationRefused, match=re.escape(problem)) as refusal:
        effective(tmp_path, text)
    assert str(tmp_path / "manciple.toml") in str(refusal.value)


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationRefused) as refusal:
        effective(tmp_path, 'colour = "red"\naudit_days = "x"', MANCIPLE_API_THREADS="many")
    assert len(refusal.value.problems) == 3


@pytest.mark.parametrize("name", ["AUDIT_DAYS", "API_THREADS", "PLACEMENT", "CLIENT_CA_KEY", "ALLOWED_HOSTS"])
def test_nothing_starts_with_an_empty_value_that_has_no_meaning(name: str) -> None:
    with pytest.raises(ConfigurationRefused, match=f"MANCIPLE_{name} "):
        configuration.apply({f"MANCIPLE_{name}": ""})


def test_a_file_that_cannot_be_read_is_no_reason_to_go_on_without_it() -> None:
    with pytest.raises(ConfigurationRefused, match=r"/nowhere/manciple\.toml cannot be read"):
        configuration.apply({VARIABLE: "/nowhere/manciple.toml"})


def test_the_example_is_right_but_for_the_keys_that_everybody_must_change() -> None:
    example = configuration.read(ROOT / "deploy" / "manciple.toml.example")
    assert example.problems == ()
    for name in ("MANCIPLE_SECRET_KEY", "MANCIPLE_ENCRYPTION_KEYS"):
        assert example.values[name] == "CHANGE-ME-50-RANDOM-CHARACTERS"


# `manciple config check` ----------------------------------------------------------------------------------------------


def checked(folder: Path, text: str, **environment: str) -> CheckedConfiguration:
    return checked_configuration({VARIABLE: str(write(folder, text)), **environment})


def test_each_value_is_told_with_where_it_comes_from(tmp_path: Path) -> None:
    found = checked(tmp_path, "audit_days = 30\ntoken_days = 5", MANCIPLE_TOKEN_DAYS="7")
    told = {one.name: (one.value, one.source) for one in found.settings}
    assert told["MANCIPLE_AUDIT_DAYS"] == ("30", str(tmp_path / "manciple.toml"))
    assert told["MANCIPLE_TOKEN_DAYS"] == ("7", "environment")
    assert told["MANCIPLE_AUDIT_ENTRIES"] == ("1000000", "default")
    assert "MANCIPLE_TOKEN_DAYS is set in the environment, so token_days of" in found.warnings[0]


def test_a_name_in_the_environment_that_means_nothing_is_warned_of(tmp_path: Path) -> None:
    (warning,) = checked(tmp_path, "", MANCIPLE_AUDIT_DAY="7").warnings
    assert warning == "MANCIPLE_AUDIT_DAY in the environment is not a setting; did you mean MANCIPLE_AUDIT_DAYS?"


def test_an_empty_value_that_counts_as_none_is_warned_of(tmp_path: Path) -> None:
    found = checked(tmp_path, "", MANCIPLE_MAIL_FROM="", MANCIPLE_MAIL_URL="")  # no server is what that is for
    (warning,) = found.warnings
    assert warning.startswith(
        "MANCIPLE_MAIL_FROM is empty in the environment, which is as if it were not there: manciple@"
    )


def test_secrets_are_never_shown_and_their_file_is_private(tmp_path: Path) -> None:
    lines = [
        f'database_url = "postgresql://m:{SECRET}/x@{SECRET}@db/m?password={SECRET}&application_name=m"',
        *(f'{key} = "{SECRET}"' for key in ("secret_key", "oidc_client_secret", "proxy_secret")),
        f'encryption_keys = ["{SECRET}"]',
    ]
    path = write(tmp_path, "\n".join(lines))
    path.chmod(0o644)
    found = checked_configuration({VARIABLE: str(path), "MANCIPLE_REDIS_URL": f"redis://:{SECRET}@r/0"})

    assert SECRET not in config_check.text(found) + json.dumps([str(one) for one in found.settings])
    assert "postgresql://…@db/m?password=…&application_name=m" in config_check.text(found)
    assert any("anybody on this machine can read it" in warning for warning in found.warnings)


def test_every_setting_whose_name_sounds_secret_is_one() -> None:
    sounding = {name for name in SETTINGS if re.search(r"SECRET|KEYS?$|PASSWORD|_URL$", name)}
    public = {"MANCIPLE_CLIENT_CA_KEY", "MANCIPLE_PAGES_URL", "MANCIPLE_API_URL", "MANCIPLE_OIDC_ISSUER_URL"}
    assert {name for name in SETTINGS if SETTINGS[name].secret} >= sounding - public


def test_the_exit_status_says_whether_anything_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, str(write(tmp_path, "colour = 1")))
    assert config_check.main(["check"]) == 1
    assert "WRONG" in capsys.readouterr().out
    write(tmp_path, "audit_days = 30")
    assert config_check.main(["check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["problems"] == []


def test_only_the_list_of_keys_is_divided_at_commas() -> None:
    assert SECRET_KEY.problem("a key, with a comma in it") == ""
    assert ENCRYPTION_KEYS.problem("short, an older key that is long enough")
    assert ENCRYPTION_KEYS.problem("a newest key that is long enough, short") == ""
