"""Where a mirror in the cluster listens, under which names it answers, and what it does not start with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from django.conf import settings as current
from django.db import OperationalError, ProgrammingError
from django.test import Client
from pytest_django.fixtures import Settings

from manciple.access.authentication import chain
from manciple.mirror import kubeconfig, standing
from manciple.mirror.client import Remote
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.folders import Mark
from manciple.mirror.kubeconfig import Choice
from manciple.mirror.models import KindStatus, RemoteStatus
from manciple.mirror.naming import impersonating, own_credential
from manciple.mirror.sources import COPIED, Reach
from manciple.processes import mirror, mirror_entrances
from manciple.processes.home import Home
from manciple.processes.listeners import Address, Tls
from manciple.processes.mirror_entrances import InCluster
from manciple.refusals import StartRefused
from tests.laboratory import NOW
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


class Asked:
    """An API server of which somebody may impersonate `resources`."""

    def __init__(self, *resources: str, failure: RemoteFailure | None = None) -> None:
        self._resources, self._failure = resources, failure

    def review(self, _path: str, body: bytes, *, timeout: float) -> bytes:
        assert timeout > 0
        if self._failure is not None:
            raise self._failure
        document = json.loads(body)
        wanted = document["spec"]["resourceAttributes"]
        assert wanted["verb"] == "impersonate"
        return json.dumps({**document, "status": {"allowed": wanted["resource"] in self._resources}}).encode()


def lacks(entrance: InCluster, remote: Asked) -> str:
    return " ".join(entrance.lacks(cast("Remote", remote)))


def test_one_that_acts_says_whom_it_may_not_impersonate(entrances: Any) -> None:
    entrance = entrances(LOCAL)
    assert lacks(entrance, Asked()) == "", "it only reads"
    entrance.acts = True
    assert lacks(entrance, Asked("users", "groups", "serviceaccounts", "uids", "userextras")) == ""
    said = lacks(entrance, Asked("users", "serviceaccounts", "uids", "userextras"))
    assert "groups" in said
    assert "serviceaccounts" not in said
    assert "mirror-act" in said, "how to give it the right"
    assert "broke off" in lacks(entrance, Asked(failure=RemoteFailure("the connection broke off")))


def test_it_says_in_whose_name_it_acts(entrances: Any, settings: Settings) -> None:
    entrance = entrances(LOCAL)
    assert "only read" in " ".join(entrance.words("https://x"))
    entrance.acts = True
    assert f"is done in {settings.MIRROR_OF}" in " ".join(entrance.words("https://x"))
    assert entrance.naming is impersonating
    assert mirror_entrances.Laptop(port=0, acts=True).naming is own_credential


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


@pytest.mark.parametrize("given", [["--in-cluster"], ["--in-cluster", "--act"]])
def test_in_the_cluster_it_acts_where_that_is_said(given: list[str]) -> None:
    made = mirror.entrance(mirror.parser().parse_args(given), remote=None, context="prod")  # type: ignore[arg-type]
    assert made.acts == ("--act" in given)


# A cluster that is away at the start ----------------------------------------------------------------------------------


def start(mark: Mark, failure: RemoteFailure) -> object:
    asked: Future[Any] = Future()
    asked.set_exception(failure)
    return mirror._answer(asked, mark)


AWAY = RemoteFailure("connection refused", unreachable=True)


@pytest.mark.django_db
def test_it_starts_from_the_copy_in_its_folder_or_in_the_database(capsys: pytest.CaptureFixture[str]) -> None:
    empty = Mark(context="prod", server="https://prod")
    with pytest.raises(RemoteFailure):
        start(empty, AWAY)
    assert start(replace(empty, copied=True), AWAY) == {}
    assert "connection refused" in capsys.readouterr().err
    know(whole=False)
    with pytest.raises(RemoteFailure):
        start(empty, AWAY)
    know(whole=True)
    assert start(empty, AWAY) == {}
    assert "connection refused" in capsys.readouterr().err
    for code in (401, 403):
        with pytest.raises(RemoteFailure):
            start(empty, RemoteFailure("no", code=code))


def know(*, whole: bool) -> None:
    """What another process has copied."""
    RemoteStatus.objects.update_or_create(
        pk=1, defaults={"context": "prod", "server": "", "namespace": "", "version": "", "gates": {}, "why": ""}
    )
    for source in COPIED if whole else COPIED[:1]:
        known = {
            "version": "v1",
            "reach": Reach.EVERYWHERE,
            "detail": "",
            "unread": 0,
            "listed_at": NOW,
            "heard_at": NOW,
        }
        KindStatus.objects.update_or_create(resource=source.resource, defaults=known)
    standing.forget()


@pytest.mark.django_db
def test_a_database_without_tables_has_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (ProgrammingError('relation "mirror_remotestatus" does not exist'), OperationalError("away")):

        def fails(*_: object, error: Exception = error, **__: object) -> object:
            raise error

        monkeypatch.setattr(RemoteStatus.objects, "filter", fails)
        standing.forget()
        with pytest.raises(RemoteFailure):
            start(Mark(context="prod", server="https://prod"), AWAY)
