"""What the command line says of drivers behind sockets, and what an agent without them is spared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from nodeagent.options import configuration, parser


def test_options_of_drivers_behind_sockets(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    arguments = ["--node-name", "n", "--server", "https://api", "--token-file", str(token)]
    config = configuration(parser().parse_args(arguments))
    assert (config.plugin_dir, config.plugin_call_seconds, config.plugin_grace_seconds) == (None, 45.0, 30.0)

    arguments += ["--plugin-dir", str(tmp_path), "--plugin-call-seconds", "2.5", "--plugin-grace-seconds", "1"]
    config = configuration(parser().parse_args(arguments))
    assert (config.plugin_dir, config.plugin_call_seconds, config.plugin_grace_seconds) == (tmp_path, 2.5, 1.0)


def test_an_agent_without_them_does_not_load_grpc() -> None:
    program = "import sys, nodeagent.__main__, nodeagent.run; sys.exit('grpc' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3])
