"""The messages and calls of the plugin protocol: registration, preparing, health.

Sources: kubernetes staging/src/k8s.io/kubelet/pkg/apis/{pluginregistration/v1, dra/v1, dra/v1beta1,
dra-health/v1alpha1, dra-health/v1beta1, dra-health/v1}/api.proto. The versions of a service differ in its name alone;
v1alpha1 of the health service lacks timeout and message, which read as not given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Generic, TypeVar

from manciple.wire import protobuf
from manciple.wire.base import Int32, Int64, Value, pb

Question = TypeVar("Question", bound=Value)
Answer = TypeVar("Answer", bound=Value)

#: The type under which DRA drivers register.
DRA_PLUGIN: Final = "DRAPlugin"


class InfoRequest(Value):
    """Asks a plugin who it is."""


class PluginInfo(Value):
    """type: what the plugin is for. name: of the driver. endpoint: the socket of its services, the registration's own
    where empty. supported_versions: its services, as "v1.DRAPlugin"."""

    type: Annotated[str, pb(1)] = ""
    name: Annotated[str, pb(2)] = ""
    endpoint: Annotated[str, pb(3)] = ""
    supported_versions: Annotated[tuple[str, ...], pb(4)] = ()


class RegistrationStatus(Value):
    """Tells a plugin how its registration went. error: what is wrong, where it is not registered."""

    plugin_registered: Annotated[bool, pb(1)] = False
    error: Annotated[str, pb(2)] = ""


class RegistrationStatusResponse(Value):
    """Nothing."""


class Claim(Value):
    """A ResourceClaim by name and uid."""

    namespace: Annotated[str, pb(1)] = ""
    uid: Annotated[str, pb(2)] = ""
    name: Annotated[str, pb(3)] = ""


class ClaimsRequest(Value):
    """NodePrepareResourcesRequest and NodeUnprepareResourcesRequest."""

    claims: Annotated[tuple[Claim, ...], pb(1)] = ()


class Device(Value):
    """One device of a claim. request_names: empty means all requests of the claim. share_id: of a device with multiple
    allocations, which of them (only v1 knows it)."""

    request_names: Annotated[tuple[str, ...], pb(1)] = ()
    pool_name: Annotated[str, pb(2)] = ""
    device_name: Annotated[str, pb(3)] = ""
    cdi_device_ids: Annotated[tuple[str, ...], pb(4)] = ()
    share_id: Annotated[str | None, pb(5)] = None


class PreparedClaim(Value):
    """NodePrepareResourceResponse. error: not empty where preparing failed; then the devices mean nothing."""

    devices: Annotated[tuple[Device, ...], pb(1)] = ()
    error: Annotated[str, pb(2)] = ""


class PrepareResponse(Value):
    """NodePrepareResourcesResponse, by claim uid."""

    claims: Annotated[dict[str, PreparedClaim], pb(1)] = {}


class UnpreparedClaim(Value):
    """NodeUnprepareResourceResponse. error: not empty where it failed."""

    error: Annotated[str, pb(1)] = ""


class UnprepareResponse(Value):
    """NodeUnprepareResourcesResponse, by claim uid."""

    claims: Annotated[dict[str, UnpreparedClaim], pb(1)] = {}


class WatchRequest(Value):
    """NodeWatchResourcesRequest: nothing yet."""


class DeviceIdentifier(Value):
    """A device of the driver that speaks."""

    pool_name: Annotated[str, pb(1)] = ""
    device_name: Annotated[str, pb(2)] = ""


class DeviceReport(Value):
    """dra-health DeviceHealth. health: 0 unknown, 1 healthy, 2 unhealthy. last_updated_time: POSIX seconds.
    health_check_timeout_seconds: how long the report holds; not above 0: as long as usual. message: for people."""

    device: Annotated[DeviceIdentifier, pb(1)] = DeviceIdentifier()
    health: Annotated[Int32, pb(2)] = 0
    last_updated_time: Annotated[Int64, pb(3)] = 0
    health_check_timeout_seconds: Annotated[Int64, pb(4)] = 0
    message: Annotated[str, pb(5)] = ""


class HealthReport(Value):
    """NodeWatchResourcesResponse."""

    devices: Annotated[tuple[DeviceReport, ...], pb(1)] = ()


@dataclass(frozen=True, slots=True)
class Call(Generic[Question, Answer]):
    """One call of a service. path: as HTTP/2 carries it."""

    path: str
    question: type[Question]
    answer: type[Answer]

    @property
    def name(self) -> str:
        """How messages name it."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class DraService:
    """One version of the DRAPlugin service. name: as plugins list it."""

    name: str
    prepare: Call[ClaimsRequest, PrepareResponse]
    unprepare: Call[ClaimsRequest, UnprepareResponse]


@dataclass(frozen=True, slots=True)
class HealthService:
    """One version of the DRAResourceHealth service; `watch` answers with a stream. name: as plugins list it."""

    name: str
    watch: Call[WatchRequest, HealthReport]


def _dra(version: str) -> DraService:
    path = f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin"
    return DraService(
        name=f"{version}.DRAPlugin",
        prepare=Call(f"{path}/NodePrepareResources", ClaimsRequest, PrepareResponse),
        unprepare=Call(f"{path}/NodeUnprepareResources", ClaimsRequest, UnprepareResponse),
    )


def _health(version: str) -> HealthService:
    name = f"{version}.DRAResourceHealth"
    return HealthService(name, Call(f"/{name}/NodeWatchResources", WatchRequest, HealthReport))


GET_INFO: Final = Call("/pluginregistration.Registration/GetInfo", InfoRequest, PluginInfo)
NOTIFY: Final = Call(
    "/pluginregistration.Registration/NotifyRegistrationStatus", RegistrationStatus, RegistrationStatusResponse
)

#: Newest first.
DRA_SERVICES: Final = (_dra("v1"), _dra("v1beta1"))
HEALTH_SERVICES: Final = (_health("v1"), _health("v1beta1"), _health("v1alpha1"))

# Described here, in one thread: msgspec must not describe a struct to itself in two threads at once.
for _type in (
    *(InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse),
    *(Claim, ClaimsRequest, Device, PreparedClaim, PrepareResponse, UnpreparedClaim, UnprepareResponse),
    *(WatchRequest, DeviceIdentifier, DeviceReport, HealthReport),
):
    protobuf.decode(_type, b"")
