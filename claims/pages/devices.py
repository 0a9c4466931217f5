"""The devices page: every device as a tile, who holds it, and its panel.

- `/devices`: the page; `?at=DRIVER/POOL/DEVICE` opens a device's panel, `?state=`, `?model=`, `?ns=` dim the others:
  what a person sees is in the URL.
- `/devices/lines?topic=...`: the lines that those topics touch, with legend and headings, for a live page.
- `/devices/panel?at=...`: the panel alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from claims.pages.grid import MEANINGS, STATES, DeviceKey, Group, Holder, Line, PublishedDevice, state_of, totals
from claims.pages.shelf import is_fenced, lines_with, read_holders, read_shelf
from claims.pages.tiles import draw_line
from inventory.models import Device, Pool

#: The fewer devices, the larger their tiles: up to this many, a tile of that size keeps the whole cluster in view.
SIZES = ((96, "x"), (500, "l"), (2000, "m"))
SMALLEST = "s"


@login_required
@require_safe
def show_devices(request: HttpRequest) -> HttpResponse:
    """The page."""
    at = request.GET.get("at", "")
    context = _grid_context(at) | {"place": "devices", "panel": _panel_context(at)}
    context["drawn"] = [(group, [_drawn(line, group, at) for line in group.lines]) for group in context["groups"]]
    return render(request, "claims/devices.html", context)


@login_required
@require_safe
def show_lines(request: HttpRequest) -> HttpResponse:
    """Only the lines that show one of the `topic`s given."""
    context = _grid_context(request.GET.get("at", ""))
    wanted = lines_with(context["groups"], request.GET.getlist("topic"))
    context["lines"] = [_drawn(group.lines[index], group, context["at"]) for group, index in wanted]
    return render(request, "claims/lines.html", context)


@login_required
@require_safe
def show_panel(request: HttpRequest) -> HttpResponse:
    """The panel of one device; empty when no such device is known."""
    return render(request, "claims/panel.html", {"panel": _panel_context(request.GET.get("at", ""))})


@dataclass(frozen=True, slots=True)
class DrawnLine:
    """A line with its tiles as HTML."""

    line: Line
    group: Group
    html: str


def _drawn(line: Line, group: Group, at: str) -> DrawnLine:
    return DrawnLine(line, group, draw_line(line, current=at))


def _grid_context(at: str) -> dict[str, Any]:
    shelf = read_shelf()
    counts = totals(shelf.groups)
    total = sum(counts.values())
    namespaces: dict[str, int] = {}
    for group in shelf.groups:
        for line in group.lines:
            for tile in line.tiles:
                if tile.namespace:
                    namespaces[tile.namespace] = namespaces.get(tile.namespace, 0) + 1
    return {
        "at": at,
        "revision": shelf.revision,
        "groups": shelf.groups,
        "legend": [(state, STATES[state], MEANINGS[state], count) for state, count in counts.items()],
        "namespaces": sorted(namespaces.items()),
        "total": total,
        "free": counts["free"],
        "density": next((size for most, size in SIZES if total <= most), SMALLEST),
    }


def _key(at: str) -> DeviceKey | None:
    """(driver, pool, device) of an address; a pool's name may itself contain slashes."""
    driver, _, rest = at.partition("/")
    pool, _, device = rest.rpartition("/")
    return (driver, pool, device) if driver and pool and device else None


def _panel_context(at: str) -> dict[str, Any] | None:
    """What the panel says of the device at this address; None where the address names none."""
    key = _key(at)
    if key is None:
        return None
    driver, pool, name = key
    device = Device.objects.filter(driver=driver, pool=pool, name=name).first()
    holders = read_holders({key}).get(key, [])
    if device is None and not holders:
        return None
    published = Pool.objects.filter(driver=driver, name=pool).first()
    state = _panel_state(key, device, published, holders)
    return {
        "at": at,
        "name": name,
        "driver": driver,
        "pool": pool,
        "node": published.node_name if published else "",
        "device": device,
        "state": state,
        "state_name": STATES[state],
        "meaning": MEANINGS[state],
        "holders": holders,
        "attributes": _attributes(driver, device),
        "capacity": sorted(
            (name, value.get("value", "")) for name, value in (device.capacity if device else {}).items()
        ),
        "taints": device.taints if device else [],
        "pool_row": published,
    }


def _panel_state(key: DeviceKey, device: Device | None, pool: Pool | None, holders: list[Holder]) -> str:
    """The state that the device's tile shows."""
    driver, pool_name, name = key
    published = PublishedDevice(
        driver=driver,
        pool=pool_name,
        name=name,
        node="",
        model="",
        tainted=bool(device and is_fenced(device.taints)),
        complete=bool(device and pool and pool.complete),
    )
    return state_of(published, holders)


def _attributes(driver: str, device: Device | None) -> list[tuple[str, list[tuple[str, str]]]]:
    """(domain, [(name, value as text)]), the driver's own domain first."""
    domains: dict[str, list[tuple[str, str]]] = {}
    for full_name, value in sorted((device.attributes if device else {}).items()):
        domain, slash, name = full_name.rpartition("/")
        domains.setdefault(domain if slash else driver, []).append((name, _text(value)))
    return sorted(domains.items(), key=lambda item: (item[0] != driver, item[0]))


def _text(value: dict[str, Any]) -> str:
    """An attribute's value as a person writes it."""
    found = next(iter(value.values()), "")
    if isinstance(found, bool):
        return "true" if found else "false"
    return ", ".join(map(str, found)) if isinstance(found, list) else str(found)
