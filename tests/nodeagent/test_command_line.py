"""`python -m nodeagent`: options and kubeconfig files become a configuration, mistakes become sentences."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest
import yaml

from nodeagent.__main__ import PROGRAMS, main
from nodeagent.config import Token, access_of_pod, read_kubeconfig
from nodeagent.node.catalog import create_drivers
from nodeagent.options import configuration, driver_entries, parser


def kubeconfig(folder: Path, **changes: object) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "node",
        "contexts": [{"name": "node", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {
                "name": "c",
                "cluster": {
                    "server": "https://api:6443",
                    "certificate-authority-data": base64.b64encode(b"CA").decode(),
                },
            }
        ],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        **changes,
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def current(token: Token | None) -> str | None:
    return token() if callable(token) else token


@pytest.mark.parametrize("name", ["../x", "/etc", "Node-1", "node_1", ""])
@pytest.mark.parametrize("words", [[], ["join", "https://api", "--token", "abcdef.0123456789abcdef"]])
def test_an_invalid_node_name_is_refused_before_anything_is_written(
    name: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*words, "--node-name", name])
    assert f'argument --node-name: invalid node name "{name}"' in capsys.readouterr().err


def test_an_empty_token_file_is_told_at_the_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text("\n")
    assert main(["--node-name", "n1", "--server", "http://api", "--token-file", str(token)]) == 2
    assert f"{token} holds no token" in capsys.readouterr().err


def test_a_kubeconfig_gives_server_token_and_ca(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path)
    options = parser().parse_args(
        ["--node-name", "n1", "--kubeconfig", str(path), "--state-dir", str(tmp_path / "state"), "--label", "rack=7"]
    )

    config = configuration(options)

    assert (config.server, config.token, config.node_name) == ("https://api:6443", "secret", "n1")
    assert config.ca_file is not None
    assert config.ca_file.read_bytes() == b"CA"
    assert config.labels == {"rack": "7"}
    assert "secret" not in repr(config)


@pytest.mark.parametrize(
    "label", ["node-restriction.kubernetes.io/team=a", "node-role.kubernetes.io/gpu=", "k8s.io/x=y"]
)
def test_a_label_that_no_server_would_let_the_agent_set_is_told_at_the_start(
    label: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(kubeconfig(tmp_path))
    allowed = ["--label", "topology.kubernetes.io/zone=a", "--label", "x.node.kubernetes.io/y=z"]
    arguments = ["--node-name", "n1", "--kubeconfig", path, "--state-dir", str(tmp_path / "state"), *allowed]
    assert configuration(parser().parse_args(arguments)).labels["topology.kubernetes.io/zone"] == "a"
    assert main([*arguments, "--label", label]) == 2
    assert f" {label.partition('=')[0]};" in capsys.readouterr().err


def test_a_server_and_a_token_file_will_do(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    options = parser().parse_args(
        ["--node-name", "n1", "--server", "http://api", "--token-file", str(token), "--cpu", "4", "--memory", "8Gi"]
    )

    config = configuration(options)

    assert (current(config.token), config.cpu, config.memory, config.ca_file) == ("secret", "4", "8Gi", None)
    token.write_text("renewed\n")
    assert current(config.token) == "renewed", "whoever renews it need not restart the agent"
    assert config.cdi_dir.is_absolute()


def test_options_shape_the_simulated_driver() -> None:
    options = parser().parse_args(["--node-name", "n1", "--gpus", "3", "--driver-name", "acme.example.com"])

    [driver] = create_drivers(driver_entries(options), node_name="n1")

    assert driver.name == "acme.example.com"
    assert [d.name for d in driver.pools()[0].devices] == ["gpu-0", "gpu-1", "gpu-2"]


def test_a_node_may_run_no_driver_of_its_own() -> None:
    options = parser().parse_args(["--node-name", "n1", "--driver", "none"])

    assert driver_entries(options) == []


def test_where_drivers_behind_sockets_are_sought_none_is_simulated_unasked() -> None:
    """The simulated driver has the name of the example driver that everybody tries first."""
    given = ["--node-name", "n1", "--plugin-dir", "/var/lib/kubelet"]

    assert driver_entries(parser().parse_args(given)) == []
    assert [entry.driver for entry in driver_entries(parser().parse_args([*given, "--driver", "sim"]))] == ["sim"]


DRIVERS_FILE = """
drivers:
- driver: sim
  settings: {name: a.example.com, gpus: 2}
- driver: nodeagent.drivers.simulated:SimulatedDriver
  settings: {node_name: n1, name: b.example.com, gpus: 1}
"""


def test_a_drivers_file_says_which_drivers_run_and_how(tmp_path: Path) -> None:
    (tmp_path / "drivers.yaml").write_text(DRIVERS_FILE)
    options = parser().parse_args(["--node-name", "n1", "--drivers-file", str(tmp_path / "drivers.yaml")])

    drivers = create_drivers(driver_entries(options), node_name="n1")

    assert [(d.name, len(d.pools()[0].devices)) for d in drivers] == [("a.example.com", 2), ("b.example.com", 1)]


BAD_DRIVERS: dict[str, tuple[str, str]] = {
    "an unknown driver": ("{driver: simm}", "driver simm: is not known; known are"),
    "an unknown setting": ("{driver: sim, settings: {gpu: 4}}", "driver sim: Object contains unknown field `gpu`"),
    "a setting of the wrong type": ("{driver: sim, settings: {gpus: many}}", r"driver sim: Expected `int`.*\$.gpus"),
    "a missing module": ("{driver: 'no.such:Driver'}", "driver no.such:Driver: No module named 'no'"),
    "a missing class": ("{driver: 'json:Driver'}", "driver json:Driver: module 'json' has no attribute 'Driver'"),
    "two of one name": ("{driver: sim}, {driver: sim}", "two drivers are called gpu.example.com"),
    "a field that no entry has": ("{drivr: sim}", "drivers.yaml: Object"),
}


@pytest.mark.parametrize("case", BAD_DRIVERS)
def test_a_drivers_file_that_cannot_be_used_says_why(
    tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    entries, message = BAD_DRIVERS[case]
    (tmp_path / "drivers.yaml").write_text(f"drivers: [{entries}]")
    (tmp_path / "token").write_text("t")

    access = ["--server", "http://api", "--token-file", str(tmp_path / "token")]
    code = main(["--node-name", "n1", *access, "--drivers-file", str(tmp_path / "drivers.yaml")])

    assert code == 2
    assert re.search(message, capsys.readouterr().err)


MISTAKES: dict[str, tuple[dict[str, object], str]] = {
    "no user of that name": ({"users": []}, '"u" is not among its users'),
    "no current context": ({"current-context": ""}, ': "" '),
    "no token": ({"users": [{"name": "u", "user": {}}]}, "user u has no token"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_kubeconfig_that_lacks_something_says_what(tmp_path: Path, case: str) -> None:
    changes, message = MISTAKES[case]

    with pytest.raises(ValueError, match=message):
        read_kubeconfig(kubeconfig(tmp_path, **changes), ca_target=tmp_path / "ca.crt")


def test_a_ca_file_is_found_beside_the_kubeconfig(tmp_path: Path) -> None:
    clusters = [{"name": "c", "cluster": {"server": "https://api", "certificate-authority": "pki/ca.crt"}}]

    access = read_kubeconfig(kubeconfig(tmp_path, clusters=clusters), ca_target=tmp_path / "unused")

    assert access.ca_file == tmp_path / "pki" / "ca.crt"


def test_a_ca_that_is_there_already_is_not_written_again(tmp_path: Path) -> None:
    """The disk may be full when the agent starts."""
    inline = {"server": "https://api", "certificate-authority-data": base64.b64encode(b"a CA").decode()}
    changes = {"clusters": [{"name": "c", "cluster": inline}]}
    read_kubeconfig(kubeconfig(tmp_path, **changes), ca_target=tmp_path / "state" / "ca.crt")
    before = (tmp_path / "state" / "ca.crt").stat().st_ino

    access = read_kubeconfig(kubeconfig(tmp_path, **changes), ca_target=tmp_path / "state" / "ca.crt")

    assert (tmp_path / "state" / "ca.crt").stat().st_ino == before
    assert access.ca_file is not None
    assert access.ca_file.read_bytes() == b"a CA"


def test_a_token_file_is_found_beside_the_kubeconfig_and_counts_more_than_a_token(tmp_path: Path) -> None:
    (tmp_path / "renewed").write_text("from the file\n")
    users = [{"name": "u", "user": {"token": "old", "tokenFile": "renewed"}}]

    access = read_kubeconfig(kubeconfig(tmp_path, users=users), ca_target=tmp_path / "ca.crt")

    assert current(access.token) == "from the file"
    (tmp_path / "renewed").write_text("renewed\n")
    assert current(access.token) == "renewed"


def test_without_a_server_the_command_says_what_to_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--node-name", "n1"]) == 2
    assert "--kubeconfig, or --server and --token-file" in capsys.readouterr().err


def test_help_lists_the_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert [name for name in PROGRAMS if f"  {name} " not in printed] == []


@pytest.mark.parametrize("words", [["run"], []], ids=["by its name", "by its options"])
def test_the_agent_is_run_by_its_name_or_by_its_options_alone(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--node-name", "n1", "--kubeconfig", "/nonexistent"]) == 2
    assert "/nonexistent" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["start"], ["driver"], ["driver", "chekc"]], ids=" ".join)
def test_an_unknown_program_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert f"{' '.join(words)} is not one of run, join, driver serve, driver check" in capsys.readouterr().err


# A program in a pod ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "server"), [("10.0.0.1", "https://10.0.0.1:16443"), ("fd00::1", "https://[fd00::1]:16443")]
)
def test_a_program_in_a_pod_has_the_access_of_its_service_account(tmp_path: Path, host: str, server: str) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "16443"}
    assert access_of_pod(environment, tmp_path) is None
    (tmp_path / "token").write_text("of the pod")
    assert access_of_pod({}, tmp_path) is None
    found = access_of_pod(environment, tmp_path)
    assert found is not None
    assert (found.server, current(found.token), found.ca_file) == (server, "of the pod", tmp_path / "ca.crt")
    (tmp_path / "token").write_text("renewed")
    assert current(found.token) == "renewed"
