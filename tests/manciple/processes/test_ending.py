"""SIGTERM ends a process that serves within its time, whatever its threads do."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time

from tests.security.limited_server import END_SECONDS


def test_a_request_that_never_ends_does_not_keep_the_process() -> None:
    command = [sys.executable, "-m", "tests.security.limited_server", "256"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = json.loads(server.stdout.readline())["port"]
            with socket.create_connection(("127.0.0.1", port)) as line:
                line.sendall(b"GET /stuck HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert server.stdout.readline() == "stuck\n"
                began = time.monotonic()
                server.terminate()
                _, errors = server.communicate(timeout=30)
                assert time.monotonic() - began < END_SECONDS + 2
        finally:
            server.kill()
    assert server.returncode == 1
    assert "threads still work" in errors
