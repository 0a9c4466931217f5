"""A second Manciple, as the cluster that is looked into."""

from tests.manciple.api.server import api_server, server_certificates

__all__ = ["api_server", "server_certificates"]
