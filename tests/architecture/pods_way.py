"""Runs the embedded system and says which of our modules a pod's way goes through, from its POST to Running.

    python -m tests.architecture.pods_way HOME

What happens beside the pod meanwhile (a lease, a sweep) is not on its way: several pods go, and a module counts when
all of them came through. Nor is what happens once, at the start: the first pod goes before anybody looks.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("manciple", "inventory", "claims", "scheduling", "insight", "dashboard", "nodeagent")
#: Pods that are followed. Few, and on a busy machine a periodic task runs beside each of them and is counted.
PODS = 6
#: Seconds that a pod may take.
PATIENCE = 30.0


class Tracer:
    """Notes, while it is on, the module of every function of ours that is called, and each call from one to another.

    Modules are named by their files, as `manciple/store/writer.py`. What runs when a module is imported does not count.
    """

    def __init__(self) -> None:
        self.on = False
        self.modules: set[str] = set()
        self.changes = 0
        self._names: dict[CodeType, str] = {}

    def start(self) -> None:
        """In this thread and those that start from now on: they cannot be joined later."""
        threading.settrace(self._called)
        sys.settrace(self._called)

    def look_away(self) -> None:
        """What the present thread does is no part of a pod's way."""
        sys.settrace(None)

    def take(self) -> tuple[set[str], int]:
        """The modules and the number of changes of module since the last time."""
        taken = self.modules, self.changes
        self.modules, self.changes = set(), 0
        return taken

    def _called(self, frame: FrameType, _event: str, _argument: object) -> None:
        if not self.on:
            return
        if name := self._module(frame.f_code):
            self.modules.add(name)
            self.changes += name != self._caller(frame)

    def _caller(self, frame: FrameType) -> str:
        """The nearest module of ours that led here."""
        above = frame.f_back
        while above is not None:
            if name := self._module(above.f_code):
                return name
            above = above.f_back
        return ""

    def _module(self, code: CodeType) -> str:
        """ "" where it is not ours, or no function."""
        name = self._names.get(code)
        if name is None:
            path = Path(code.co_filename)
            inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES
            function = code.co_name != "<module>" and code.co_flags & 0x2  # CO_NEWLOCALS: neither module nor class body
            name = self._names[code] = str(path.relative_to(ROOT)) if inside and function else ""
        return name


def pod(name: str) -> Mapping[str, Any]:
    container = {"name": "main", "image": "example.com/trainer", "resources": {"claims": [{"name": "gpu"}]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "demo"},
        "spec": {
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
        },
    }


def main(folder: Path) -> None:
    from manciple.processes import home

    os.environ["DJANGO_SETTINGS_MODULE"] = "manciple.settings"
    os.environ["MANCIPLE_HOME"] = str(folder)
    os.environ.setdefault("MANCIPLE_LOG_LEVEL", "WARNING")
    home.prepare(folder)

    import django

    django.setup()
    from manciple.processes.listeners import Address
    from manciple.processes.system import Options, StartedSystem, System

    tracer = Tracer()
    anywhere = Address("127.0.0.1", 0)

    def look(started: StartedSystem) -> None:
        tracer.look_away()
        try:
            print(json.dumps(follow_pods(tracer, started)), flush=True)
        except Exception:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)  # nothing here is worth the seconds that stopping takes

    options = Options(home=folder, api=anywhere, web=anywhere, nodes=1, mixed_nodes=0, demo=True)
    tracer.start()
    System(options, say=lambda _line: None).run(look)


def follow_pods(tracer: Tracer, started: Any) -> dict[str, Any]:
    """{"modules": those that every pod came through, "changes": of module, the fewest, "imported": all by now}"""
    import httpx

    from manciple.api import kubeconfig

    token = kubeconfig.read_token(started.kubeconfig.read_text())
    client = httpx.Client(base_url=started.api_url, verify=False, headers={"Authorization": f"Bearer {token}"})
    go(client, "first")
    ways = []
    for number in range(PODS):
        tracer.on = True
        go(client, f"pod-{number}")
        tracer.on = False
        ways.append(tracer.take())
    modules = set.intersection(*(modules for modules, _ in ways))
    return {"modules": sorted(modules), "changes": min(changes for _, changes in ways), "imported": sorted(sys.modules)}


def go(client: Any, name: str) -> None:
    """POST a pod and wait until its node says that it runs."""
    from manciple.store import objects
    from manciple.wire.registry import registry

    kind = registry.by_resource("pods")
    client.post("/api/v1/namespaces/demo/pods", json=pod(name)).raise_for_status()
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        stored = objects.get(kind, "demo", name)
        if stored is not None and '"phase":"Running"' in stored.text:
            return
        time.sleep(0.01)
    raise TimeoutError(f"{name} does not run")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
