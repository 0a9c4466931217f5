"""Finds the controllers: every `Controller` that a module of `scheduling.controllers` declares, and nothing besides."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from scheduling.controllers.declaration import Controller, Queue

PACKAGE = "scheduling.controllers"


@cache
def controllers() -> tuple[Controller, ...]:
    """All of them, those that pods wait for first. Django's apps must be ready."""
    return discover(PACKAGE)


def discover(package: str) -> tuple[Controller, ...]:
    """Those of the modules of `package`. Raises: ValueError where two have one name."""
    found: dict[str, Controller] = {}
    for module in iter_modules(import_module(package).__path__):
        for value in vars(import_module(f"{package}.{module.name}")).values():
            if isinstance(value, Controller) and found.setdefault(value.name, value) is not value:
                raise ValueError(f"two controllers are named {value.name}")
    return tuple(sorted(found.values(), key=lambda one: (one.queue is not Queue.SCHEDULING, one.name)))
