"""The messages and calls of the plugin protocol (registration, preparing, health), and a gRPC connection for them.

Sources: kubernetes staging/src/k8s.io/kubelet/pkg/apis/{pluginregistration/v1, dra/v1, dra/v1beta1,
dra-health/v1alpha1, dra-health/v1beta1, dra-health/v1}/api.proto. The versions of a service differ in its name alone;
v1alpha1 of the health service lacks timeout and message, which read as not given.

Before them stood the service Node: v1alpha3 (Kubernetes 1.28 to 1.30) and v1alpha2 (1.27), whose claims carry what the
driver's controller left for its plugin. Sources: kubernetes v1.30 staging/src/k8s.io/kubelet/pkg/apis/dra/{v1alpha2,
v1alpha3}/api.proto, v1.31 dra/v1alpha4.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, TypeVar, cast

import grpc

from inventory.kinds.named_resources import NamedResourcesResources, StructuredResourceHandle
from manciple.wire import protobuf
from manciple.wire.base import Int32, Int64, Value, pb
from manciple.wire.errors import BadRequest

Question = TypeVar("Question", bound=Value)
Answer = TypeVar("Answer", bound=Value)

#: The type under which DRA drivers register, and the one that KEP-4381 names.
DRA_PLUGIN: Final = "DRAPlugin"
RESOURCE_PLUGIN: Final = "ResourcePlugin"
#: The type of plugins of KEP-3063's first draft, which asks for a new one and gives it no name.
CDI_PLUGIN: Final = "CDIPlugin"


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
    """A ResourceClaim by name and uid; of v1alpha2 the whole question.

    resource_handle: what its controller left for the driver's plugin; structured_resource_handle: what the scheduler
    of 1.30 did, at most one. Only the service Node knows them.
    """

    namespace: Annotated[str, pb(1)] = ""
    uid: Annotated[str, pb(2)] = ""
    name: Annotated[str, pb(3)] = ""
    resource_handle: Annotated[str, pb(4)] = ""
    structured_resource_handle: Annotated[tuple[StructuredResourceHandle, ...], pb(5)] = ()


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


class HandledClaim(Value):
    """NodePrepareResourceResponse of the service Node. error: v1alpha2 has none, there the call itself fails.

    devices: the ids of CDI devices (v1alpha2, v1alpha3), or `Device` messages (v1alpha4), each in base64.
    """

    devices: Annotated[tuple[str, ...], pb(1, encoding="bytes")] = ()
    error: Annotated[str, pb(2)] = ""


class HandledResponse(Value):
    """NodePrepareResourcesResponse of the service Node, by claim uid."""

    claims: Annotated[dict[str, HandledClaim], pb(1)] = {}


class UnpreparedClaim(Value):
    """NodeUnprepareResourceResponse. error: not empty where it failed."""

    error: Annotated[str, pb(1)] = ""


class UnprepareResponse(Value):
    """NodeUnprepareResourcesResponse, by claim uid."""

    claims: Annotated[dict[str, UnpreparedClaim], pb(1)] = {}


class DraftResource(Value):
    """NodePrepareResourceRequest and NodeUnprepareResourceRequest of KEP-3063's first draft: the claim's uid, which it
    calls resource_uid in the one and resource_id in the other."""

    resource_uid: Annotated[str, pb(1)] = ""


class CDIDevice(Value):
    """A device by its kind (vendor.example.com/class) and its name."""

    kind: Annotated[str, pb(1)] = ""
    name: Annotated[str, pb(2)] = ""


class DraftDevices(Value):
    """NodePrepareResourceResponse of KEP-3063's first draft."""

    devices: Annotated[tuple[CDIDevice, ...], pb(1)] = ()


class Empty(Value):
    """A message without content, such as NodeUnprepareResourceResponse of v1alpha2: that it came is the answer."""


class ResourceModel(Value):
    """Instances that a driver of Kubernetes 1.30 has."""

    named_resources: Annotated[NamedResourcesResources | None, pb(1)] = None


class ResourcesResponse(Value):
    """NodeListAndWatchResourcesResponse: all that the driver has on the node."""

    resources: Annotated[tuple[ResourceModel, ...], pb(1)] = ()


class HealthRequest(Value):
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
class HealthService:
    """One version of the DRAResourceHealth service; `watch` answers with a stream. name: as plugins list it."""

    name: str
    watch: Call[HealthRequest, HealthReport]


def _health(version: str) -> HealthService:
    name = f"{version}.DRAResourceHealth"
    return HealthService(name, Call(f"/{name}/NodeWatchResources", HealthRequest, HealthReport))


GET_INFO: Final = Call("/pluginregistration.Registration/GetInfo", InfoRequest, PluginInfo)
NOTIFY: Final = Call(
    "/pluginregistration.Registration/NotifyRegistrationStatus", RegistrationStatus, RegistrationStatusResponse
)

#: Of Kubernetes 1.30 alone.
LIST_RESOURCES: Final = Call("/v1alpha3.Node/NodeListAndWatchResources", Empty, ResourcesResponse)

#: Newest first.
HEALTH_SERVICES: Final = (_health("v1"), _health("v1beta1"), _health("v1alpha1"))

# Described here, in one thread: msgspec must not describe a struct to itself in two threads at once.
for _type in (
    *(InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse),
    *(Claim, ClaimsRequest, Device, PreparedClaim, PrepareResponse, UnpreparedClaim, UnprepareResponse),
    *(HandledClaim, HandledResponse, Empty, ResourceModel, ResourcesResponse),
    *(HealthRequest, DeviceIdentifier, DeviceReport, HealthReport),
):
    protobuf.decode(_type, b"")


# One gRPC connection to one Unix socket: typed calls, a stream, and word when the connection comes or goes. Messages go
# through our own codec, so grpc carries bytes. Every failure is a `CallFailed` that says what happened in a sentence;
# grpc itself is kept from writing to the terminal.


# Read once by grpc when it is imported. What it would say of a driver that is away, the agent says itself; its handling
# of forks concerns programs that go on with grpc in the child, while containers are started by exec.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")


#: Bytes of the headers of an answer. The reason of a call that failed is one of them, and a driver may have much to
#: tell; grpc would take 8 to 16 KiB and tell of its own limit instead. As many as kubelet takes.
_HEADERS_MAX: Final = 16 * 1024 * 1024

#: A driver that was restarted is met again soon. Connections are not shared with another channel to the same path:
#: that one may be waiting for a driver that was there before.
_OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5000),
    ("grpc.enable_http_proxy", 0),
    # As calls of kubelet say. grpc would send the path of the socket, percent-encoded, which is no host name: servers
    # that look (those in Rust, and .NET) end such calls with PROTOCOL_ERROR.
    ("grpc.default_authority", "localhost"),
    ("grpc.max_metadata_size", _HEADERS_MAX),
    ("grpc.absolute_max_metadata_size", _HEADERS_MAX),
)

_SECONDS_TO_UNSUBSCRIBE: Final = 1.0


class CallFailed(Exception):
    """A call did not give an answer. code: the status of gRPC, as Go spells it."""

    def __init__(self, reason: str, *, code: str = "Unavailable") -> None:
        super().__init__(reason)
        self.code = code

    @property
    def unimplemented(self) -> bool:
        """The other side does not know the call at all."""
        return self.code == "Unimplemented"


class Channel:
    """A connection to `endpoint`, the path of a Unix socket; made when first needed, again whenever it breaks.

    Thread-safe. connected: called from a thread of grpc with whether the connection is there, at every change; given
    such a function, the channel connects by itself and stays connected.
    """

    def __init__(self, endpoint: str, connected: Callable[[bool], None] | None = None) -> None:
        self.endpoint = endpoint
        self._connected = connected
        self._closed = False
        self._lock = threading.Lock()  # nobody subscribes to a channel that is being closed
        self._grpc = grpc.insecure_channel(f"unix:{endpoint}", options=_OPTIONS)
        if connected is not None:
            self._grpc.subscribe(self._changed, try_to_connect=True)

    def call(self, call: Call[Question, Answer], question: Question, *, seconds: float) -> Answer:
        """Raises: CallFailed, also when no answer has come after `seconds`."""
        try:
            data = self._grpc.unary_unary(call.path, _same, _same)(protobuf.encode(question), timeout=seconds)
        except grpc.RpcError as error:
            raise _failure(call.name, error, seconds) from error
        except ValueError as error:  # the channel was closed
            raise CallFailed(f"{call.name}: the connection to the driver was closed") from error
        return _decoded(call, data)

    def stream(self, call: Call[Question, Answer], question: Question) -> Iterator[Answer]:
        """The answers as they come; ends when the other side ends it. Raises: CallFailed."""
        try:
            for data in self._grpc.unary_stream(call.path, _same, _same)(protobuf.encode(question)):
                yield _decoded(call, data)
        except grpc.RpcError as error:
            raise _failure(call.name, error, 0.0) from error
        except ValueError as error:  # the channel was closed
            raise CallFailed(f"{call.name}: the connection to the driver was closed") from error

    def close(self) -> None:
        """End everything that goes on over it, at once or within a second."""
        if self._connected is None:
            self._grpc.close()
            return
        with self._lock:
            self._closed = True
            self._grpc.unsubscribe(self._changed)
        # grpc's thread that looks at the connection, five times a second, must have seen that nobody subscribes any
        # more: it ends with a traceback on the terminal when the channel is closed under it.
        closing = threading.Timer(_SECONDS_TO_UNSUBSCRIBE, self._grpc.close)
        closing.daemon = True
        closing.start()

    def _changed(self, state: grpc.ChannelConnectivity) -> None:
        with self._lock:
            if self._closed:
                return
            if state is grpc.ChannelConnectivity.IDLE:
                # It broke, or was quiet for long: grpc connects again only when asked to.
                self._grpc.subscribe(_ignore, try_to_connect=True)
                self._grpc.unsubscribe(_ignore)
        if self._connected is not None:
            self._connected(state is grpc.ChannelConnectivity.READY)


def _ignore(_state: grpc.ChannelConnectivity) -> None:
    """Whoever subscribes may ask for a connection."""


def _same(data: bytes) -> bytes:
    """What grpc carries is encoded and decoded by us."""
    return data


def _decoded(call: Call[Question, Answer], data: bytes) -> Answer:
    return decoded_as(call.answer, call, data)


def decoded_as(type_: type[Answer], call: Call[Any, Any], data: bytes) -> Answer:
    """What the driver answered to `call`, or part of it. Raises: CallFailed."""
    try:
        return protobuf.decode(type_, data)
    except BadRequest as error:
        reason = f"{call.name}: its answer is no {call.answer.__name__}: {error.message}"
        raise CallFailed(reason, code="Internal") from error


def _failure(name: str, error: grpc.RpcError, seconds: float) -> CallFailed:
    call = cast("grpc.Call", error)  # what calls raise is both
    code = call.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and seconds:
        return CallFailed(f"{name}: no answer within {seconds:g} s", code=_spelled(code))
    details = call.details() or "no details were given"
    return CallFailed(f"{name}: {details} ({code.name})", code=_spelled(code))


def _spelled(code: grpc.StatusCode) -> str:
    """DEADLINE_EXCEEDED as DeadlineExceeded; Go spells CANCELLED with one L."""
    if code is grpc.StatusCode.CANCELLED:
        return "Canceled"
    return str(code.name).title().replace("_", "")
