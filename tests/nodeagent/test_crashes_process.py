"""A real agent, in a process of its own, is killed with SIGKILL again and again at moments that nobody chose.

The moments come from a seeded generator, spread over what the agent is doing; the invariants are those of the other
crash tests, as far as they can be seen from outside: records, CDI files, and what the API says.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.nodeagent.fake_api import FakeApi, Refused
from tests.nodeagent.http_api import serving
from tests.nodeagent.objects import NODE, claim, pod

ROOT = Path(__file__).resolve().parents[2]
KILLS, PODS = 4, 6
#: Seconds to wait for what must come, and for what may not.
TIMEOUT, QUIET = 60.0, 8.0


def start(url: str, folder: Path) -> subprocess.Popen[bytes]:
    (folder / "token").write_text("t")
    command = [sys.executable, "-m", "nodeagent", "--node-name", NODE, "--server", url]
    command += ["--token-file", str(folder / "token"), "--state-dir", str(folder / "state")]
    return subprocess.Popen([*command, "--cdi-dir", str(folder / "cdi"), "--log-level", "ERROR"], cwd=ROOT)


def eventually(api: FakeApi, condition: Callable[[], bool]) -> None:
    with api.changed:
        assert api.changed.wait_for(condition, TIMEOUT)


def ready(api: FakeApi) -> set[str]:
    return {
        found["metadata"]["name"]
        for found in api.all("pods")
        if any(c["type"] == "Ready" and c["status"] == "True" for c in found["status"].get("conditions", []))
    }


def prepared(folder: Path) -> tuple[set[str], set[str]]:
    """The claims' uids, by record and by CDI file."""
    records = {path.stem for path in (folder / "state" / "claims").glob("*.json")}
    files = {path.stem.partition("-claim_")[2] for path in (folder / "cdi").glob("*.json")}
    return records, files


@pytest.mark.long
def test_an_agent_that_is_killed_at_random_moments_loses_nothing(tmp_path: Path) -> None:
    api = FakeApi()
    chance = random.Random(7)
    with serving(api) as url:
        for _ in range(KILLS):
            asked = len(api.requests)
            agent = start(url, tmp_path)
            for number in range(PODS):
                api.put("resourceclaims", claim(f"of-{number}", f"gpu-{number}", pods=(f"uid-{number}",)))
                if api.find("pods", f"{number}") is None:
                    api.put("pods", pod(f"{number}", claims={"gpus": f"of-{number}"}))
            struck = asked + chance.randint(10, 40)
            with api.changed:  # an agent that has less to do than that is killed at rest
                api.changed.wait_for(lambda asked=struck: len(api.requests) >= asked, QUIET)  # type: ignore[misc]
            agent.kill()
            agent.wait()
            for number in range(PODS):
                if chance.random() < 0.5:
                    with suppress(Refused):  # the agent may have let it go meanwhile
                        api.delete("pods", f"{number}", grace=chance.choice([0, 30]))

        agent = start(url, tmp_path)
        try:
            living = {p["metadata"]["name"] for p in api.all("pods") if "deletionTimestamp" not in p["metadata"]}
            eventually(api, lambda: ready(api) == living == {p["metadata"]["name"] for p in api.all("pods")})
            wanted = {f"claim-of-{name}" for name in living}
            deadline = time.monotonic() + TIMEOUT
            while prepared(tmp_path) != (wanted, wanted) and time.monotonic() < deadline:
                time.sleep(0.01)  # pods that are gone are given back without a word to the API
            assert prepared(tmp_path) == (wanted, wanted)
        finally:
            agent.kill()
            agent.wait()
