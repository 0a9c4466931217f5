"""What a page says where it has nothing to show: how the first one comes about, or where else to look."""

from __future__ import annotations

import pytest
from django.test import Client

from manciple import layout
from tests.dashboard import texts
from tests.dashboard.browsing import admin, signed_in, viewer, words

__all__ = ["admin", "viewer"]

pytestmark = pytest.mark.django_db

EMPTY = {
    "/claims": ("No claim yet",),
    "/classes": (texts.NO_CLASS,),
    "/devices": (texts.NO_DEVICE_PUBLISHED, "python -m nodeagent"),
    "/drivers": ("--driver sim",),
    "/ended": ("Nothing has ended",),
    "/ended?q=nothing": ("No record matches", "30 days"),
    "/events": (texts.NO_EVENTS_LATELY,),
    "/events?q=nothing": ("No event matches",),
    "/find?q=<zebra>": ("Nothing is called “<zebra>”",),
    "/find": ("Devices", "Nodes", "Drivers", "Namespaces"),
    "/incidents": (texts.NO_INCIDENT,),
    "/nodes": ("python -m nodeagent run --node-name NAME",),
    "/pods": ("No pod yet",),
    "/quotas": ("No quota yet",),
    "/taint-rules": ("No taint rule",),
    "/timeline": (texts.NOTHING_HELD,),
    "/timeline?ns=other": (texts.NOTHING_HELD_OF_THE_CHOICE,),
    "/usage": (texts.NOTHING_HELD,),
    "/usage?ns=vision": (texts.NOTHING_USED_OF_THE_CHOICE,),
    "/usage?by=state": (texts.NOTHING_RECORDED,),
    "/autoscalers": ("No autoscaler yet", "kubectl autoscale"),
    "/autoscalers?q=nothing": ("No matching autoscaler",),
    "/workloads": ("No workload yet", "kubectl apply"),
    "/workloads?q=nothing": ("No matching workload",),
    "/what-if": (texts.NOTHING_REHEARSED,),
}


def test_a_page_with_nothing_to_show_says_what_to_do(admin: Client) -> None:
    for path, expected in EMPTY.items():
        text = words(admin, path)
        assert [one for one in expected if one not in text] == [], path


@pytest.mark.parametrize("path", ["/devices", "/drivers", "/nodes", "/overview"])
def test_an_installed_system_names_the_installed_command(
    admin: Client, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "NODE_COMMAND", "manciple-agent")
    monkeypatch.setattr(layout, "WORKER_COMMAND", "manciple worker")
    text = words(admin, path)
    assert "manciple-agent run --" in text
    assert "python -m" not in text


def test_whoever_may_not_make_the_first_one_reads_who_may(viewer: Client) -> None:
    mia = signed_in("mia", "namespace:lab")
    assert texts.ADMINISTRATOR_LIMITS in words(viewer, "/quotas")
    assert texts.NO_QUOTA_VISIBLE in words(mia, "/quotas")
    assert texts.NO_NAMESPACE_VISIBLE in words(mia, "/namespaces")
    assert "/classes/new" not in mia.get("/overview").content.decode()
