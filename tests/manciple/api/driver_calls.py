"""Fixtures of the tests of a driver's calls: a server, and the driver program's own client of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.manciple.api.server import ApiServer
from tests.plugin_driver.kube import Kube
from tests.plugin_driver.messages import Messages, compiled

DRIVER, NODE = "dra.example.com", "worker-1"
BETAS = ("v1", "v1beta2", "v1beta1")
Document = dict[str, Any]


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> Messages:
    return Messages(compiled(tmp_path_factory.mktemp("messages") / "descriptors"))


@pytest.fixture
def http(api_server: ApiServer) -> Iterator[httpx.Client]:
    with api_server.client() as client:
        yield client


@pytest.fixture
def kube(http: httpx.Client, messages: Messages) -> Kube:
    return Kube(http, messages)
