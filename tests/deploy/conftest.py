"""Fixtures of others that these tests use."""

from __future__ import annotations

from tests.manciple.api.server import api_server, server_certificates
from tests.scheduling.conftest import cluster
from tests.scheduling.test_metrics import busy

__all__ = ["api_server", "busy", "cluster", "server_certificates"]
