"""The versions of the service that prepares claims, and how each is asked: one or many claims a call, with handles or
without, answered with devices or with the ids of CDI devices. To the agent they are one.

Of the service Node a driver tells nothing when it registers but "1.0.0": it is asked in v1alpha3, and in v1alpha2 where
it does not know that, as kubelet 1.30 does. What 1.31 calls v1alpha4 is v1alpha3 by its address, and answers with
devices. Source: kubernetes v1.30 pkg/kubelet/cm/dra/plugin/{plugin, client}.go.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from manciple.wire import protobuf
from nodeagent.plugins.protocol import (
    Answer,
    Call,
    CallFailed,
    Claim,
    ClaimsRequest,
    Device,
    DraftDevices,
    DraftResource,
    Empty,
    HandledClaim,
    HandledResponse,
    PreparedClaim,
    PrepareResponse,
    Question,
    UnpreparedClaim,
    UnprepareResponse,
    decoded_as,
)


class Ask(Protocol):
    """Makes one call of a driver. Raises: CallFailed."""

    def __call__(self, call: Call[Question, Answer], question: Question, /) -> Answer: ...


class DraService(Protocol):
    """One version of the service that prepares claims. Claims are asked for by their uids, each once.

    names: as plugins list it, its own first. older: what to ask where a plugin does not know the call: of the versions
    of Node, drivers do not say which they serve. has_handles: whether its claims carry handles.
    """

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def older(self) -> DraService | None: ...
    @property
    def has_handles(self) -> bool: ...

    def prepare_claims(self, claims: tuple[Claim, ...], ask: Ask) -> Mapping[str, PreparedClaim]:
        """By uid. Raises: CallFailed."""

    def unprepare_claims(self, claims: tuple[Claim, ...], ask: Ask) -> Mapping[str, UnpreparedClaim]:
        """By uid. Raises: CallFailed."""


@dataclass(frozen=True, slots=True)
class PluginService:
    """One version of the DRAPlugin service."""

    names: tuple[str, ...]
    prepare: Call[ClaimsRequest, PrepareResponse]
    unprepare: Call[ClaimsRequest, UnprepareResponse]
    older: DraService | None = None
    has_handles: bool = False

    def prepare_claims(self, claims: tuple[Claim, ...], ask: Ask) -> Mapping[str, PreparedClaim]:
        return ask(self.prepare, _without_handles(claims)).claims

    def unprepare_claims(self, claims: tuple[Claim, ...], ask: Ask) -> Mapping[str, UnpreparedClaim]:
        return ask(self.unprepare, _without_handles(claims)).claims


def _without_handles(claims: tuple[Claim, ...]) -> ClaimsRequest:
    return ClaimsRequest(claims=tuple(Claim(namespace=c.namespace, uid=c.uid, name=c.name) for c in claims))


@dataclass(frozen=True, slots=True)
class NodeV1Alpha3:
    """The Node service of v1alpha3, and what 1.31 calls v1alpha4."""

    names: tuple[str, ...]
    prepare: Call[ClaimsRequest, HandledResponse]
    unprepare: Call[ClaimsRequest, UnprepareResponse]
    older: DraService | None
    has_handles: bool = True

    def prepare_claims(self, claims: tuple[Claim, ...], ask: Ask) -> Mapping[str, PreparedClaim]:
        answer = ask(self.prepare, ClaimsRequest(claims=claims))
        return {uid: prepared_claim(self.prepare, one) for uid, one in answer.claims.items()}

    def unprepare_claims(self, claims: tuple[Claim, ...], ask: Ask) -> Mapping[str, UnpreparedClaim]:
        return ask(self.unprepare, ClaimsRequest(claims=claims)).claims


@dataclass(frozen=True, slots=True)
class NodeV1Alpha2:
    """The Node service of v1alpha2: a call for each claim."""

    names: tuple[str, ...]
    prepare: Call[Claim, HandledClaim]
    unprepare: Call[Claim, Empty]
    older: DraService | None = None
    has_handles: bool = True

    def prepare_claims(self, claims: tuple[Claim, ...], ask: Ask) -> Mapping[str, PreparedClaim]:
        return {claim.uid: self._prepare(claim, ask) for claim in claims}

    def unprepare_claims(self, claims: tuple[Claim, ...], ask: Ask) -> Mapping[str, UnpreparedClaim]:
        return {claim.uid: self._unprepare(claim, ask) for claim in claims}

    def _prepare(self, claim: Claim, ask: Ask) -> PreparedClaim:
        try:
            return prepared_claim(self.prepare, ask(self.prepare, claim))
        except CallFailed as failure:
            return PreparedClaim(error=_of_one_claim(failure))

    def _unprepare(self, claim: Claim, ask: Ask) -> UnpreparedClaim:
        try:
            ask(self.unprepare, claim)
        except CallFailed as failure:
            return UnpreparedClaim(error=_of_one_claim(failure))
        return UnpreparedClaim()


@dataclass(frozen=True, slots=True)
class DraftNode:
    """The node service of KEP-3063's first draft: a call for each claim, which is told by its uid alone.

    NOT_FOUND means that there is no such resource: there is nothing to undo then. To one that is to be prepared the
    agent reads the claim again, and tries later, as with every failure.
    """

    names: tuple[str, ...]
    prepare: Call[DraftResource, DraftDevices]
    unprepare: Call[DraftResource, Empty]
    older: DraService | None = None
    has_handles: bool = True

    def prepare_claims(self, claims: tuple[Claim, ...], ask: Ask) -> Mapping[str, PreparedClaim]:
        return {claim.uid: self._prepare(claim.uid, ask) for claim in claims}

    def unprepare_claims(self, claims: tuple[Claim, ...], ask: Ask) -> Mapping[str, UnpreparedClaim]:
        return {claim.uid: self._unprepare(claim.uid, ask) for claim in claims}

    def _prepare(self, uid: str, ask: Ask) -> PreparedClaim:
        try:
            given = ask(self.prepare, DraftResource(resource_uid=uid)).devices
        except CallFailed as failure:
            return PreparedClaim(error=_of_one_claim(failure))
        ids = tuple(f"{device.kind}={device.name}" for device in given)
        return PreparedClaim(devices=(Device(cdi_device_ids=ids),) if ids else ())

    def _unprepare(self, uid: str, ask: Ask) -> UnpreparedClaim:
        try:
            ask(self.unprepare, DraftResource(resource_uid=uid))
        except CallFailed as failure:
            return UnpreparedClaim(error="" if failure.code == "NotFound" else _of_one_claim(failure))
        return UnpreparedClaim()


def _of_one_claim(failure: CallFailed) -> str:
    """Raises: CallFailed where the call is not known: that holds for every claim."""
    if failure.unimplemented:
        raise failure
    return str(failure)


def prepared_claim(call: Call[Any, Any], answer: HandledClaim) -> PreparedClaim:
    """As the later services answer: what ids are given without a device's name are those of one device.

    Raises: CallFailed.
    """
    given = [base64.b64decode(one) for one in answer.devices]
    ids = tuple(_text(call, one) for one in given if _is_text(one))
    devices = tuple(decoded_as(Device, call, one) for one in given if not _is_text(one))
    return PreparedClaim(devices=devices + ((Device(cdi_device_ids=ids),) if ids else ()), error=answer.error)


def handled_claim(answer: PreparedClaim) -> HandledClaim:
    """What `prepared_claim` reads: devices that have names as for 1.31, where claims name them; ids as for 1.30."""
    named = [protobuf.encode(device) for device in answer.devices if device.device_name]
    ids = [one.encode() for device in answer.devices if not device.device_name for one in device.cdi_device_ids]
    return HandledClaim(devices=tuple(base64.b64encode(one).decode() for one in (*named, *ids)), error=answer.error)


def _is_text(given: bytes) -> bool:
    """Whether it is an id. A message begins with the number of a field, which is no letter: 0x0a to 0x2a."""
    return bool(given) and given[0] > ord("*")


def _text(call: Call[Any, Any], given: bytes) -> str:
    try:
        return given.decode()
    except UnicodeDecodeError as error:
        raise CallFailed(f"{call.name}: its answer is no {call.answer.__name__}: {error}", code="Internal") from error


def _plugin(version: str) -> PluginService:
    path = f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin"
    return PluginService(
        names=(f"{version}.DRAPlugin",),
        prepare=Call(f"{path}/NodePrepareResources", ClaimsRequest, PrepareResponse),
        unprepare=Call(f"{path}/NodeUnprepareResources", ClaimsRequest, UnprepareResponse),
    )


PLUGIN_SERVICES: Final = (_plugin("v1"), _plugin("v1beta1"))
NODE_V1ALPHA2: Final = NodeV1Alpha2(
    names=("v1alpha2.Node",),
    prepare=Call("/v1alpha2.Node/NodePrepareResource", Claim, HandledClaim),
    unprepare=Call("/v1alpha2.Node/NodeUnprepareResource", Claim, Empty),
)
NODE_V1ALPHA3: Final = NodeV1Alpha3(
    # Drivers on Kubernetes' library of 1.26 to 1.31 list "1.0.0" alone.
    names=("v1alpha3.Node", "v1alpha4.Node", "1.0.0"),
    prepare=Call("/v1alpha3.Node/NodePrepareResources", ClaimsRequest, HandledResponse),
    unprepare=Call("/v1alpha3.Node/NodeUnprepareResources", ClaimsRequest, UnprepareResponse),
    older=NODE_V1ALPHA2,
)

CDI_NODE: Final = DraftNode(
    names=("cdi.v1alpha1.ResourceNodePlugin",),
    prepare=Call("/cdi.v1alpha1.ResourceNodePlugin/NodePrepareResource", DraftResource, DraftDevices),
    unprepare=Call("/cdi.v1alpha1.ResourceNodePlugin/NodeUnprepareResource", DraftResource, Empty),
)

#: Newest first.
DRA_SERVICES: Final[tuple[DraService, ...]] = (*PLUGIN_SERVICES, NODE_V1ALPHA3, NODE_V1ALPHA2, CDI_NODE)
