"""Kinds that are added while everything runs, with two API processes: each serves what the other was told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import httpx
import pytest

from tests.e2e.api_client import Document, Hands
from tests.e2e.processes import answers, wait_for
from tests.e2e.production.installation import Installation, exec_start
from tests.e2e.production.scene import Scene
from tests.manciple.extensions.builders import DEFINITIONS, definition, schema, version
from tests.services import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]

SECOND = "api-2"
GROUP = "two.example.com"
DEFINITION = f"{DEFINITIONS}/widgets.{GROUP}"


@pytest.fixture
def second(installation: Installation, tmp_path: Path) -> Iterator[Hands]:
    """Another API process beside the installation's own."""
    api, web = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    installation.start(SECOND, exec_start("manciple-api.service", api=api, web=web))
    wait_for("the second API", lambda: answers(f"http://{web}/readyz"))
    text = (installation.home / "kubeconfig").read_text()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(text.replace(Hands(installation.home / "kubeconfig").server, f"https://{api}"))
    yield Hands(kubeconfig)
    installation.processes.pop(SECOND).kill()


class Watch:
    """What one API process tells of the widgets of a namespace, from now until it ends the stream."""

    def __init__(self, api: Hands, path: str) -> None:
        self.events: list[tuple[str, str]] = []
        self._thread = Thread(target=self._read, args=(api, path), daemon=True)
        self._thread.start()

    def _read(self, api: Hands, path: str) -> None:
        with api.stream(path, watch="true") as answer:
            for line in answer.iter_lines():
                event: Document = json.loads(line)
                self.events.append((event["type"], event["object"]["metadata"]["name"]))

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()


def widget(name: str, size: int) -> Document:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": size}}


@pytest.mark.long
def test_a_kind_is_served_by_every_process_outlives_them_and_ends_everywhere(
    installation: Installation, scene: Scene, api: Hands, second: Hands
) -> None:
    widgets = f"/apis/{GROUP}/v1/namespaces/{scene.namespace}/widgets"
    sized = schema({"type": "object", "properties": {"size": {"type": "integer", "maximum": 9}}})
    served = version(schema={"openAPIV3Schema": sized})
    api.made(DEFINITIONS, definition(served, group=GROUP))
    second.made(widgets, widget("one", 1))  # at once, by the process that was not told
    assert "less than or equal to 9" in second.refused("POST", widgets, widget("big", 10))["message"]

    installation.processes["api"].kill()
    second.made(widgets, widget("two", 2))
    installation.start("api", list(installation.processes["api"].command))
    installation.wait_for_the_api()
    assert [one["spec"]["size"] for one in api.listed(widgets)] == [1, 2]

    watches = [Watch(api, widgets), Watch(second, widgets)]
    told = [("ADDED", "one"), ("ADDED", "two")]
    wait_for("both watches to begin", lambda: all(watch.events == told for watch in watches))
    third = widget("three", 3)
    third["metadata"]["finalizers"] = ["two.example.com/hold"]
    api.made(widgets, third)
    second.patch(f"{widgets}/one", {"spec": {"size": 5}})
    told += [("ADDED", "three"), ("MODIFIED", "one")]
    wait_for("both to tell what either wrote", lambda: all(watch.events == told for watch in watches))

    second.delete(DEFINITION)
    assert api.attempt(widgets, widget("late", 1)).status_code == httpx.codes.METHOD_NOT_ALLOWED
    wait_for("its objects to be deleted", lambda: [one["metadata"]["name"] for one in api.listed(widgets)] == ["three"])
    api.patch(f"{widgets}/three", {"metadata": {"finalizers": []}})
    wait_for("both watches to end", lambda: all(watch.is_over for watch in watches))
    gone = {("DELETED", name) for name in ("one", "two", "three")}
    assert all(gone <= set(watch.events) for watch in watches), [watch.events for watch in watches]
    assert [one.find(path) for one in (api, second) for path in (DEFINITION, f"{widgets}/one")] == [None] * 4
