"""/admin/: administrators read the index tables there, nobody writes, nobody else comes in."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from dashboard.admin import site
from tests.builders import make_pod, make_quota, make_request, make_template
from tests.dashboard.browsing import admin, viewer
from tests.scheduling.cluster import Cluster

__all__ = ["admin", "viewer"]

TABLES = sorted(site._registry, key=lambda model: model._meta.label)


@pytest.fixture
def lab(cluster: Cluster) -> Cluster:
    cluster.with_gpus("node-1")
    cluster.create(make_quota({"pods": "8"}))
    cluster.create(make_template("one-gpu", requests=[make_request()]))
    for name in ("one", "two", "waiting"):
        cluster.create(make_pod(name, templates={"gpu": "one-gpu"}))
    cluster.settle()
    return cluster


@pytest.mark.parametrize("model", TABLES, ids=lambda model: model.__name__)
def test_an_administrator_reads_each_table_and_each_row(admin: Client, lab: Cluster, model: type) -> None:
    listed = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")  # type: ignore[attr-defined]
    answer = admin.get(listed, {"q": "one"})
    assert answer.status_code == 200
    row = model._default_manager.first()  # type: ignore[attr-defined]
    if row is not None:
        shown = admin.get(reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_change", args=[row.pk]))  # type: ignore[attr-defined]
        assert shown.status_code == 200
        assert str(row) in shown.content.decode()
        assert 'name="_save"' not in shown.content.decode()


def test_nothing_is_added_changed_or_deleted_there(admin: Client, lab: Cluster) -> None:
    assert admin.post("/admin/claims/quota/add/", {}).status_code == 403
    row = reverse("admin:inventory_node_change", args=[lab.node().metadata.uid])
    assert admin.post(row, {"name": "other"}).status_code == 403
    assert admin.post(row.replace("change", "delete"), {"post": "yes"}).status_code == 403


@pytest.mark.parametrize("path", ["/admin/", "/admin/claims/pod/", "/admin/jsi18n/", "/admin/nowhere/"])
def test_nobody_else_comes_in(viewer: Client, cluster: Cluster, path: str) -> None:
    assert viewer.get(path).status_code == 403
    answer = Client().get(path)
    assert (answer.status_code, answer.headers["Location"].partition("?")[0]) == (302, "/login")


def test_signing_in_is_the_dashboards_alone(admin: Client, cluster: Cluster) -> None:
    for path in ("/admin/login/", "/admin/password_change/", "/admin/logout/"):
        assert admin.get(path).status_code == 404
