"""The page that docs/how-to/pages.md adds works as it says: list, filter, sorting, file, live updates, rights."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.conf import settings as configured
from django.template import engines
from django.test import Client
from django.urls import clear_url_caches, include, path

from claims.models import Claim, Reservation
from dashboard.kit.lists import list_paths
from tests.dashboard.browsing import signed_in

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "how-to" / "pages.md"
TEXT = PAGE.read_text()


def block(language: str, holds: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.M | re.S)
    (only,) = (one for one in found if holds in one)
    return str(only)


@pytest.fixture(name="added")
def _added(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, db: None) -> Iterator[None]:
    """The page is part of the dashboard."""
    module = ModuleType("reservations_of_the_docs")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(block("python", "def list_reservations"), str(PAGE), "exec", dont_inherit=True), vars(module))
    routes = eval(f"[{block('python', 'list_paths')}]", {"list_paths": list_paths, "reservations": module})
    urls: Any = ModuleType("urls_of_the_docs")
    urls.urlpatterns = [*routes, path("", include(configured.ROOT_URLCONF))]
    monkeypatch.setitem(sys.modules, urls.__name__, urls)
    template = tmp_path / "workloads" / "reservations" / "list.html"
    template.parent.mkdir(parents=True)
    template.write_text(block("html", 'extends "kit/list.html"'))
    settings.TEMPLATES = [{**one, "DIRS": [*one["DIRS"], tmp_path]} for one in settings.TEMPLATES]
    settings.ROOT_URLCONF = urls.__name__
    clear_url_caches()
    yield
    clear_url_caches()
    engines._templates = None  # type: ignore[attr-defined]  # those of the settings that come back


def reserve(namespace: str, claim: str, pod: str) -> None:
    facts = {"allocated": True, "deleting": False, "created_at": datetime.now(UTC)}
    row = Claim.objects.create(uid=f"uid-{namespace}-{claim}", namespace=namespace, name=claim, **facts)
    Reservation.objects.create(claim=row, resource="pods", name=pod, uid=f"uid-{pod}")


@pytest.mark.usefixtures("added")
def test_the_page_of_the_docs_lists_filters_sorts_and_follows() -> None:
    for namespace, claim, pod in (("lab", "a", "web-2"), ("lab", "b", "web-1"), ("other", "c", "web-3")):
        reserve(namespace, claim, pod)
    mia, admin = signed_in("mia", "namespace:lab"), signed_in("root", staff=True)
    assert pods_of(mia.get("/reservations")) == ["web-2", "web-1"]
    assert pods_of(mia.get("/reservations?sort=user")) == ["web-1", "web-2"]
    assert pods_of(mia.get("/reservations?sort=-user")) == ["web-2", "web-1"]
    assert pods_of(mia.get("/reservations?q=web-1")) == ["web-1"]
    assert pods_of(admin.get("/reservations?ns=other")) == ["web-3"]
    assert pods_of(admin.get("/reservations")) == ["web-2", "web-1", "web-3"]
    page = mia.get("/reservations").content.decode()
    assert 'data-topics="claims:"' in page
    assert 'href="/claims/lab/a"' in page
    assert 'href="/pods/lab/web-2"' in page
    assert mia.get("/reservations.csv").content.decode().splitlines()[1:] == ["lab/a,pods/web-2", "lab/b,pods/web-1"]


@pytest.mark.usefixtures("added")
def test_the_page_of_the_docs_is_closed_to_whoever_sees_no_namespace() -> None:
    assert signed_in("new", "no-roles").get("/reservations").status_code == 403
    assert Client().get("/reservations").status_code == 302


def pods_of(answer: Any) -> list[str]:
    assert answer.status_code == 200
    return [row.name for row in answer.context["table"].rows]


def test_the_sample_is_as_lint_wants_it(tmp_path: Path) -> None:
    template = tmp_path / "list.html"
    template.write_text(block("html", 'extends "kit/list.html"'))
    ruff = ["ruff", "check", "--no-cache", "--stdin-filename", "dashboard/workloads/reservations.py", "-"]
    djlint = ["djlint", str(template), "--check", "--lint", "--configuration", "pyproject.toml"]
    for command, text in ((ruff, block("python", "def list_reservations")), (djlint, "")):
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, input=text, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
