"""Finding anything by a part of its name: `/find?q=`. Without a question, every place there is.

Only what the person may see is found; of each kind the first few by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from claims.models import Pod
from inventory.models import Device, DeviceClass
from manciple.pages.people import Person, person_of

#: Of each kind, the first so many.
SHOWN = 20


@dataclass(frozen=True, slots=True)
class Found:
    """One object: what it is called, where it is, and what tells it from others of the name."""

    title: str
    url: str
    aside: str


@dataclass(frozen=True, slots=True)
class Section:
    """The objects of one kind. `more`: there are others."""

    title: str
    found: tuple[Found, ...]
    more: bool


@login_required
@require_safe
def find(request: HttpRequest) -> HttpResponse:
    """The page."""
    text = request.GET.get("q", "").strip()
    sections = [section for section in _sections(text, person_of(request)) if section.found] if text else []
    return render(request, "scheduling/find.html", {"place": "find", "text": text, "sections": sections})


def _sections(text: str, person: Person) -> Iterable[Section]:
    named = {"name__icontains": text}
    yield _section("Pods", person.seen(Pod.objects.filter(**named)).order_by("namespace", "name"), _pod)
    yield _section("Classes", DeviceClass.objects.filter(**named).order_by("name"), _class)
    yield _section("Devices", Device.objects.filter(_device_matches(text)).order_by("pool", "name"), _device)


def _section(title: str, rows: QuerySet[Any], shown: Callable[[Any], Found]) -> Section:
    found = list(rows[: SHOWN + 1])
    return Section(title, tuple(shown(row) for row in found[:SHOWN]), more=len(found) > SHOWN)


def _device_matches(text: str) -> Q:
    """A device is found by its own name, its pool's, or both as they are shown: `gpu-a17 / gpu-2`."""
    pool, slash, name = (part.strip() for part in text.rpartition("/"))
    if slash:
        return Q(pool__icontains=pool, name__istartswith=name)
    return Q(name__icontains=text) | Q(pool__icontains=text)


def _pod(row: Pod) -> Found:
    return Found(row.name, reverse("pod", args=[row.namespace, row.name]), row.namespace)


def _class(row: DeviceClass) -> Found:
    return Found(row.name, reverse("class-edit", args=[row.name]), "")


def _device(row: Device) -> Found:
    address = urlencode({"at": f"{row.driver}/{row.pool}/{row.name}"})
    return Found(f"{row.pool} / {row.name}", f"{reverse('devices')}?{address}", row.driver)
