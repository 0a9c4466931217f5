"""What the agent's calls look like on the socket of a driver, whatever language that is written in."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

import grpc
import pytest

from nodeagent.plugins.protocol import GET_INFO, CallFailed, Channel, ClaimsRequest, InfoRequest
from nodeagent.plugins.services import PLUGIN_SERVICES
from tests.nodeagent.plugins.plugin import Plugin

#: An empty SETTINGS frame of HTTP/2: the client sends its calls when it has read one.
SETTINGS = bytes.fromhex("000000040000000000")


def test_calls_name_a_host_and_not_the_path_of_the_socket(tmp_path: Path) -> None:
    """Servers that hold to RFC 9113 8.3.1 (hyperium/h2, Kestrel) refuse a path; kubelet says "localhost" too."""
    path = tmp_path / "driver-reg.sock"
    heard = bytearray()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        driver = threading.Thread(target=_hear, args=(listener, heard))
        driver.start()
        channel = Channel(str(path))
        with contextlib.suppress(CallFailed):  # nobody answers
            channel.call(GET_INFO, InfoRequest(), seconds=5)
        channel.close()
        driver.join(10)
    assert GET_INFO.path.encode() in heard
    assert b":authority\x09localhost" in heard
    assert b"driver-reg" not in heard


def test_a_call_that_failed_for_many_reasons_tells_all_of_them(tmp_path: Path) -> None:
    """Kubernetes' library makes what a driver returns the status of the call, joined errors of all devices too."""
    reasons = "\n".join(f"gpu-{number}: {'it does not answer, ' * 40}" for number in range(128))
    plugin = Plugin(tmp_path)
    plugin.fail = (grpc.StatusCode.UNKNOWN, reasons)
    plugin.start(registration=False)
    channel = Channel(str(plugin.endpoint))
    with pytest.raises(CallFailed) as failure:
        channel.call(PLUGIN_SERVICES[0].prepare, ClaimsRequest(), seconds=10)
    channel.close()
    plugin.stop()
    assert (failure.value.code, str(failure.value)) == ("Unknown", f"NodePrepareResources: {reasons} (UNKNOWN)")


def _hear(listener: socket.socket, heard: bytearray) -> None:
    """Keep what one client says up to its first call, then hang up."""
    client, _ = listener.accept()
    with client:
        client.settimeout(10)
        client.sendall(SETTINGS)
        while GET_INFO.path.encode() not in heard or b"trailers" not in heard:
            heard += client.recv(65536)
