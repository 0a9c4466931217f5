"""Fixtures of the API's tests."""

from __future__ import annotations

import pytest

from manciple.access.authentication import tokens
from manciple.api.namespaces import ensure_namespaces
from tests.manciple.api.driver_calls import http, kube, messages
from tests.manciple.api.requests import Api
from tests.manciple.api.server import api_server, server_certificates

__all__ = ["api_server", "http", "kube", "messages", "server_certificates"]


@pytest.fixture
def api(db: None) -> Api:
    """The API inside this process, without a socket, as an administrator sees it."""
    ensure_namespaces()
    return Api(tokens.issue("alice", ["system:masters"]))
