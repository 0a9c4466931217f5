"""Fixtures of the tests of admission."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.manciple.admission.webhook_server import WebhookServer, serving
from tests.manciple.api.conftest import api

__all__ = ["api"]


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    with serving(tmp_path_factory.mktemp("webhook")) as server:
        yield server


@pytest.fixture
def server(listening: WebhookServer) -> WebhookServer:
    """A webhook server that no test has used yet."""
    listening.behaviours.clear()
    del listening.asked[:], listening.hosts[:]
    return listening
