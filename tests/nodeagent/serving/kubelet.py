"""The kubelet as a driver meets it: speaks the public protocol, with messages made by protobuf's own library."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import grpc

from tests.plugin_driver.messages import Messages, compiled

DRA = "k8s.io.kubelet.pkg.apis.dra"
SECONDS = 60.0


@cache
def messages() -> Messages:
    return Messages(compiled())


class Kubelet:
    """Calls what listens at the registration socket `path`, and what it says serves the calls."""

    def __init__(self, path: Path) -> None:
        self._registration = grpc.insecure_channel(f"unix:{path}")
        self.info = self._call(
            self._registration, "/pluginregistration.Registration/GetInfo", "InfoRequest", "PluginInfo"
        )
        self._service = grpc.insecure_channel(f"unix:{self.info.endpoint}")

    def notify(self, *, registered: bool, error: str = "") -> None:
        path = "/pluginregistration.Registration/NotifyRegistrationStatus"
        status = {"plugin_registered": registered, "error": error}
        self._call(self._registration, path, "RegistrationStatus", "RegistrationStatusResponse", **status)

    def prepare(self, *claims: str, version: str = "v1", **uids: str) -> dict[str, Any]:
        """By claim uid. The uid of a claim is "claim-<name>", as `objects.claim` makes it, unless `uids` says else."""
        return self._claims("NodePrepareResources", claims, version, uids)

    def unprepare(self, *claims: str, version: str = "v1", **uids: str) -> dict[str, str]:
        """Claim uid -> error."""
        answers = self._claims("NodeUnprepareResources", claims, version, uids)
        return {uid: answer.error for uid, answer in answers.items()}

    def node(self, method: str, version: str, **claim: Any) -> Any:
        """As kubelets before 1.32 ask, about one claim. Its answer; v1alpha2's call fails where the claim does."""
        answer = f"{method.removesuffix('s')}Response"
        if version == "v1alpha2":
            named = {"claim_uid": claim.pop("uid"), "claim_name": claim.pop("name")}
            return self._call(self._service, f"/v1alpha2.Node/{method}", f"{method}Request", answer, **named, **claim)
        asked = messages()["v1alpha3.Claim"](**claim)
        given = self._call(
            self._service, f"/v1alpha3.Node/{method}s", f"{method}sRequest", f"{method}sResponse", claims=[asked]
        )
        return given.claims[claim["uid"]]

    def watch(self, version: str = "v1") -> Any:
        """A call that is iterated, and cancelled."""
        return self._service.unary_stream(
            f"/{version}.DRAResourceHealth/NodeWatchResources",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=messages()[f"{version}.NodeWatchResourcesResponse"].FromString,
        )(messages()[f"{version}.NodeWatchResourcesRequest"](), timeout=SECONDS, wait_for_ready=True)

    def close(self) -> None:
        self._registration.close()
        self._service.close()

    def _claims(self, method: str, claims: tuple[str, ...], version: str, uids: dict[str, str]) -> dict[str, Any]:
        package = f"{DRA}.{version}"
        one = messages()[f"{package}.Claim"]
        named = [one(namespace="default", name=name, uid=uids.get(name, f"claim-{name}")) for name in claims]
        answer = self._call(
            self._service, f"/{package}.DRAPlugin/{method}", f"{method}Request", f"{method}Response", claims=named
        )
        return dict(answer.claims)

    def _call(self, channel: grpc.Channel, path: str, question: str, answer: str, **fields: Any) -> Any:
        package = path.strip("/").rpartition("/")[0].rpartition(".")[0]
        return channel.unary_unary(
            path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=messages()[f"{package}.{answer}"].FromString,
        )(messages()[f"{package}.{question}"](**fields), timeout=SECONDS, wait_for_ready=True)


def reports(call: Any) -> Iterator[dict[str, tuple[int, str]]]:
    """Of a watch: device -> (health, message)."""
    for answer in call:
        yield {one.device.device_name: (one.health, getattr(one, "message", "")) for one in answer.devices}
