"""Where a mirror in the cluster listens, under which names it answers, and what it does not start with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as current
from django.test import Client
from pytest_django.fixtures import Settings

from manciple.access.authentication import chain
from manciple.mirror import kubeconfig
from manciple.mirror.kubeconfig import Choice
from manciple.processes import mirror, mirror_entrances
from manciple.processes.home import Home
from manciple.processes.listeners import Address, Tls
from manciple.processes.mirror_entrances import InCluster
from manciple.refusals import StartRefused
from tests.manciple.mirror.reviewing import ReviewingCluster, mirror_of

LOCAL, EVERYWHERE = Address("127.0.0.1", 0), Address("0.0.0.0", 0)
PAGES = "https://devices.example.com"


@pytest.fixture
def entrances(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[InCluster]]:
    """Those that were made are closed."""
    cluster = ReviewingCluster()
    settings.ALLOWED_HOSTS, settings.CSRF_TRUSTED_ORIGINS, settings.API_URL = ["localhost"], [], ""
    reviews = mirror_of(cluster, settings, monkeypatch)
    made: list[InCluster] = []

    def make(address: Address, tls: Tls | None = None, pages: str = "") -> InCluster:
        one = InCluster(address, reviews=reviews, tls=tls)
        made.append(one)
        settings.PAGES_URL = pages or one.bind(Home(tmp_path))
        if pages:
            one.bind(Home(tmp_path))
        one.let_in(Home(tmp_path))
        return one

    made_by: Any = make
    yield made_by
    for one in made:
        one._listener.close()


def answers(host: str) -> int:
    return Client(headers={"host": host}).get("/login").status_code


@pytest.mark.django_db
def test_it_answers_under_the_name_that_people_use(entrances: Any) -> None:
    entrances(EVERYWHERE, pages=PAGES)
    assert answers("devices.example.com") == 200
    assert answers("evil.example") == 400
    assert current.CSRF_TRUSTED_ORIGINS == [PAGES]


@pytest.mark.django_db
def test_without_one_it_answers_under_any_where_it_listens_everywhere(entrances: Any) -> None:
    entrances(EVERYWHERE)
    assert answers("10.1.2.3") == 200


@pytest.mark.django_db
def test_on_loopback_it_does_not(entrances: Any) -> None:
    entrances(LOCAL)
    assert answers("10.1.2.3") == 400


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_probes_come_by_the_address_of_the_pod(entrances: Any, path: str) -> None:
    entrances(EVERYWHERE, pages=PAGES)
    assert Client(headers={"host": "10.1.2.3:8080"}).get(path).status_code == 200


@pytest.mark.parametrize(("tls", "pages", "warned"), [(False, "", True), (False, PAGES, False), (True, "", False)])
def test_tokens_in_the_clear_are_warned_of(entrances: Any, tmp_path: Path, tls: bool, pages: str, warned: bool) -> None:
    files = Tls(certificate=tmp_path / "c", key=tmp_path / "k") if tls else None
    entrance = entrances(EVERYWHERE, files, pages)
    assert ("in the clear" in " ".join(entrance.words(current.PAGES_URL))) == warned


def test_nothing_else_is_asked_who_somebody_is(entrances: Any) -> None:
    entrances(LOCAL)
    assert set(chain._tokens) == {"provider", "cluster"}
    assert not chain._requests


# The start -----------------------------------------------------------------------------------------------------------


def account(folder: Path) -> Path:
    for name, content in (("token", "t-1\n"), ("ca.crt", "PEM"), ("namespace", "tools")):
        (folder / name).write_text(content)
    return folder


POD = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}


def test_the_account_of_the_pod_counts_whatever_kubeconfig_there_is(tmp_path: Path) -> None:
    access = kubeconfig.of_pod(Choice(kubeconfig="/nowhere"), POD, account(tmp_path))
    assert access.cluster.server == "https://[fd00::1]:443"
    assert (access.user.token, access.user.token_file) == ("t-1", tmp_path / "token")
    assert access.namespace == "tools"


@pytest.mark.parametrize("arguments", [["--tls-cert", "c"], ["--tls-key", "k"]])
def test_a_certificate_without_its_key_is_refused(arguments: list[str]) -> None:
    with pytest.raises(StartRefused, match="belong together"):
        mirror.main(["--in-cluster", *arguments])


def test_outside_of_a_pod_it_does_not_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kubeconfig, "ACCOUNT", tmp_path)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert mirror.main(["--in-cluster"]) == 1
    assert "not a pod" in capsys.readouterr().err


@pytest.mark.parametrize("option", [("PROXY_USER_HEADER", "X-User"), ("listen", "8080")])
def test_what_it_does_not_start_with(settings: Settings, option: tuple[str, str]) -> None:
    name, value = option
    given = ["--in-cluster", *(["--listen", value] if name == "listen" else [])]
    if name != "listen":
        setattr(settings, name, value)
    with pytest.raises(StartRefused):
        mirror.entrance(mirror.parser().parse_args(given), remote=None, context="prod")  # type: ignore[arg-type]


def test_on_a_laptop_it_is_for_its_owner() -> None:
    made = mirror.entrance(mirror.parser().parse_args([]), remote=None, context="prod")  # type: ignore[arg-type]
    assert isinstance(made, mirror_entrances.Laptop)
