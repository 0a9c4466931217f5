"""A node's pods get what they name of Secrets, ConfigMaps and their account, and wait for what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodeagent.api.client import seconds_text
from nodeagent.runtimes.protocol import Runtime
from tests.nodeagent.fake_api import Address, FakeApi, Refused
from tests.nodeagent.machine import Machine
from tests.nodeagent.objects import container, pod
from tests.nodeagent.pods.given_sources import encoded

Document = dict[str, Any]


class WithFolders:
    """Simulated containers, for which there are folders of files."""

    def __init__(self, runtime: Runtime, folder: Path) -> None:
        self._runtime = runtime
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def files_folder(self, pod_uid: str, volume: str) -> Path:
        folder = self._folder / pod_uid / volume
        folder.mkdir(parents=True, exist_ok=True)
        return folder


class Accounts:
    """The tokens that the API gives: numbered, and for as long as was asked."""

    def __init__(self, machine: Machine) -> None:
        self.asked: list[tuple[Address, Document]] = []
        self.refused: Refused | None = None
        self._machine = machine
        machine.api.connects["token"] = self._give

    def _give(self, address: Address, body: Document) -> Document:
        self.asked.append((address, body["spec"]))
        if self.refused is not None:
            raise self.refused
        ends = seconds_text(self._machine.clock() + body["spec"]["expirationSeconds"])
        return {**body, "status": {"token": f"token-{len(self.asked)}", "expirationTimestamp": ends}}


@pytest.fixture
def simulated(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.start()
    return machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """With files."""
    made = Machine(tmp_path, wrapped=lambda runtime: WithFolders(runtime, tmp_path / "files"))
    made.start()
    return made


def secret(api: FakeApi, name: str = "login", **texts: str) -> None:
    data = {key: encoded(text) for key, text in texts.items()}
    meta = {"name": name, "namespace": "default"}
    api.put("secrets", {"kind": "Secret", "apiVersion": "v1", "metadata": meta, "data": data})


def config_map(api: FakeApi, name: str = "colours", **data: str) -> None:
    meta = {"name": name, "namespace": "default"}
    api.put("configmaps", {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, "data": data})


def of_volumes(*volumes: Document, name: str = "p", **metadata: Any) -> Document:
    spec = {"volumes": list(volumes), "serviceAccountName": "robot"}
    return pod(name, container("main"), spec=spec, metadata=metadata)


def files(machine: Machine, volume: str, name: str = "p") -> Mapping[str, str]:
    folder = machine.folder / "files" / f"uid-{name}" / volume
    return {path.name: path.read_text() for path in folder.iterdir() if not path.name.startswith("..")}


TOKEN = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}


def projected(*sources: Document) -> Document:
    return {"name": "v", "projected": {"sources": list(sources)}}


def waiting(machine: Machine, name: str = "p") -> tuple[str, str]:
    """(reason, message) of the container's waiting."""
    (status,) = machine.pod(name)["status"]["containerStatuses"]
    state = status["state"].get("waiting", {})
    return state.get("reason", ""), state.get("message", "")


# What is missing ------------------------------------------------------------------------------------------------------


VOLUMES: dict[str, tuple[Document, str]] = {
    "secret": ({"name": "v", "secret": {"secretName": "login"}}, 'secret "login" not found'),
    "config map": ({"name": "v", "configMap": {"name": "colours"}}, 'configmap "colours" not found'),
    "projected": (projected({"secret": {"name": "login"}}), 'secret "login" not found'),
}


@pytest.mark.parametrize("what", VOLUMES)
def test_a_pod_waits_for_the_sources_of_its_volumes(simulated: Machine, what: str) -> None:
    """Also where containers are simulated, and see no files."""
    volume, told = VOLUMES[what]
    simulated.api.put("pods", of_volumes(volume))
    simulated.look()
    assert simulated.events("FailedMount") == [f'MountVolume.SetUp failed for volume "v" : {told}']
    assert (waiting(simulated)[0], simulated.pod("p")["status"]["phase"]) == ("ContainerCreating", "Pending")
    assert simulated.condition("p", "PodReadyToStartContainers") == "False"

    secret(simulated.api)
    config_map(simulated.api)
    simulated.settle()
    assert simulated.pod("p")["status"]["phase"] == "Running"


def test_a_container_waits_for_the_sources_of_its_variables(simulated: Machine) -> None:
    variable = {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}}
    simulated.api.put("pods", pod("p", container("main", env=[variable])))
    simulated.look()
    assert waiting(simulated) == ("CreateContainerConfigError", 'secret "login" not found')
    assert simulated.events("Failed") == ['Error: secret "login" not found']

    secret(simulated.api, password="x")
    simulated.settle()
    assert simulated.pod("p")["status"]["phase"] == "Running"
    assert simulated.environment("p") == {"PASSWORD": ""}


def test_a_simulated_container_asks_for_no_token(simulated: Machine) -> None:
    simulated.api.put("pods", of_volumes(projected(TOKEN)))
    simulated.settle()
    assert not [one for one in simulated.api.requests if one.endswith("/token")]


def test_a_container_that_runs_goes_on_without_what_is_gone(machine: Machine) -> None:
    config_map(machine.api, sky="blue")
    machine.api.put("pods", of_volumes({"name": "v", "configMap": {"name": "colours"}}))
    machine.settle()
    machine.api.delete("configmaps", "colours")
    machine.clock.now += 61
    machine.look()
    assert machine.pod("p")["status"]["phase"] == "Running"
    assert machine.events("FailedMount") == ['MountVolume.SetUp failed for volume "v" : configmap "colours" not found']
    assert files(machine, "v") == {"sky": "blue"}


# What changes ---------------------------------------------------------------------------------------------------------


def test_files_follow_the_objects_and_the_pod(machine: Machine) -> None:
    config_map(machine.api, sky="blue")
    secret(machine.api, user="ada")
    labels = {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}
    sources = ({"configMap": {"name": "colours"}}, {"secret": {"name": "login"}}, {"downwardAPI": labels})
    machine.api.put("pods", of_volumes(projected(*sources), labels={"app": "web"}))
    machine.settle()
    assert files(machine, "v") == {"sky": "blue", "user": "ada", "labels": 'app="web"'}

    config_map(machine.api, sea="green")
    machine.api.put("pods", {**(found := machine.pod("p")), "metadata": {**found["metadata"], "labels": {"app": "x"}}})
    machine.look()
    assert files(machine, "v") == {"sky": "blue", "user": "ada", "labels": 'app="x"'}
    machine.clock.now += 61
    machine.look()
    assert files(machine, "v") == {"sea": "green", "user": "ada", "labels": 'app="x"'}


def test_a_new_pod_sees_what_stands_there_when_it_comes(machine: Machine) -> None:
    volume = {"name": "v", "configMap": {"name": "colours"}}
    config_map(machine.api, sky="blue")
    machine.api.put("pods", of_volumes(volume))
    machine.settle()
    config_map(machine.api, sky="grey")
    machine.api.put("pods", of_volumes(volume, name="second"))
    machine.settle()
    assert files(machine, "v", "second") == {"sky": "grey"}


def test_what_pods_share_is_read_once_a_minute(machine: Machine) -> None:
    config_map(machine.api, "kube-root-ca.crt", **{"ca.crt": "PEM"})
    for name in ("a", "b", "c"):
        machine.api.put("pods", of_volumes(projected({"configMap": {"name": "kube-root-ca.crt"}}), name=name))
    machine.settle()
    read = [one for one in machine.api.requests if one.endswith("/configmaps/kube-root-ca.crt")]
    assert len(read) == 1
    assert files(machine, "v", "c") == {"ca.crt": "PEM"}


# Tokens ---------------------------------------------------------------------------------------------------------------


def test_a_token_is_asked_for_with_the_pod_that_it_is_for(machine: Machine) -> None:
    accounts = Accounts(machine)
    vault = {"serviceAccountToken": {"path": "vault", "audience": "vault", "expirationSeconds": 700}}
    machine.api.put("pods", of_volumes(projected(TOKEN, vault)))
    machine.settle()
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p"}
    address = ("serviceaccounts", "default", "robot")
    assert accounts.asked == [
        (address, {"audiences": [], "expirationSeconds": 3600, "boundObjectRef": bound}),
        (address, {"audiences": ["vault"], "expirationSeconds": 700, "boundObjectRef": bound}),
    ]
    assert files(machine, "v") == {"token": "token-1", "vault": "token-2"}


def test_a_token_is_replaced_when_four_fifths_of_its_life_are_over(machine: Machine) -> None:
    Accounts(machine)
    machine.api.put("pods", of_volumes(projected(TOKEN)))
    machine.settle()
    machine.clock.now += 2879
    machine.look()
    assert files(machine, "v") == {"token": "token-1"}
    machine.clock.now += 1
    machine.look()
    assert files(machine, "v") == {"token": "token-2"}


def test_a_token_is_kept_to_its_end_while_no_other_is_to_be_had(machine: Machine) -> None:
    accounts = Accounts(machine)
    machine.api.put("pods", of_volumes(projected(TOKEN)))
    machine.settle()
    accounts.refused = Refused(500, "InternalError", "no keys")
    machine.clock.now += 3599
    machine.look()
    assert (files(machine, "v"), machine.events("FailedMount")) == ({"token": "token-1"}, [])
    machine.clock.now += 1
    machine.look()
    assert machine.events("FailedMount") == ['MountVolume.SetUp failed for volume "v" : failed to fetch token: no keys']


def test_the_next_pod_of_a_name_gets_a_token_of_its_own(machine: Machine) -> None:
    accounts = Accounts(machine)
    machine.api.put("pods", of_volumes(projected(TOKEN)))
    machine.settle()
    machine.api.delete("pods", "p", grace=0)
    machine.settle()
    again = of_volumes(projected(TOKEN))
    again["metadata"]["uid"] = "uid-p2"
    machine.api.put("pods", again)
    machine.settle()
    assert [spec["boundObjectRef"]["uid"] for _, spec in accounts.asked] == ["uid-p", "uid-p2"]
