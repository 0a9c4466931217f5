"""Fixtures of the tests of custom resources."""

from __future__ import annotations

from tests.manciple.admission.conftest import listening, server
from tests.manciple.api.conftest import api
from tests.manciple.api.server import api_server, server_certificates

__all__ = ["api", "api_server", "listening", "server", "server_certificates"]
