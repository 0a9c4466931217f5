"""Checks of what comes first: the registration socket, who the driver says it is, and the devices that it publishes."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Final

from inventory.kinds.devices import ResourceSlice
from inventory.kinds.registration import RESOURCE_SLICE
from manciple.wire.validation import DRIVER_NAME_MAX, check_driver_name
from nodeagent.driver_check.report import DriverCheck
from nodeagent.driver_check.subject import CheckFailed, DriverUnderTest, NotChecked
from nodeagent.plugins.protocol import DRA_PLUGIN, GET_INFO, NOTIFY, CallFailed, InfoRequest, RegistrationStatus
from nodeagent.plugins.registration import INFO_SECONDS, NOTIFY_SECONDS

#: Kubernetes' library looks at what others changed after half a minute, and remembers its own writes for a minute.
RESTORE_SECONDS: Final = 120.0
#: What is told to a driver that shall know a refusal.
REFUSAL: Final = "driver check: as if the kubelet did not want it"


def says_who_it_is(subject: DriverUnderTest) -> None:
    subject.ask_who()


def is_a_dra_plugin(subject: DriverUnderTest) -> None:
    if subject.info.type != DRA_PLUGIN:
        raise CheckFailed(f"its type is {subject.info.type!r}; a kubelet takes {DRA_PLUGIN!r} for a DRA driver")


def has_a_valid_name(subject: DriverUnderTest) -> None:
    name = subject.info.name
    problems = list(check_driver_name(name))
    if len(name.encode()) > DRIVER_NAME_MAX:
        problems.append(f"must be no more than {DRIVER_NAME_MAX} bytes")
    if problems:
        raise CheckFailed(f"its name is {name!r}: {'; '.join(problems)}")


def lists_a_service(subject: DriverUnderTest) -> None:
    try:
        _ = subject.service
    except NotChecked as error:
        listed = ", ".join(subject.info.supported_versions) or "nothing"
        raise CheckFailed(f"{error}; it lists {listed}") from error


def serves_at_its_endpoint(subject: DriverUnderTest) -> None:
    endpoint = subject.info.endpoint
    if endpoint and not Path(endpoint).is_absolute():
        raise CheckFailed(f"its endpoint {endpoint!r} is no absolute path")
    if not subject.endpoint.is_socket():
        raise CheckFailed(f"its endpoint {subject.endpoint} is no socket")


def takes_a_refusal(subject: DriverUnderTest) -> None:
    """What it answers is its own affair (Kubernetes' library answers with an error); it must live on."""
    with subject.connected(subject.options.socket) as channel:
        try:
            channel.call(NOTIFY, RegistrationStatus(plugin_registered=False, error=REFUSAL), seconds=NOTIFY_SECONDS)
        except CallFailed as error:
            if error.unimplemented:
                raise CheckFailed(str(error)) from error
        channel.call(GET_INFO, InfoRequest(), seconds=INFO_SECONDS)


def takes_its_registration(subject: DriverUnderTest) -> None:
    with subject.connected(subject.options.socket) as channel:
        channel.call(NOTIFY, RegistrationStatus(plugin_registered=True), seconds=NOTIFY_SECONDS)


def says_the_same_again(subject: DriverUnderTest) -> None:
    before = subject.info
    if subject.ask_who() != before:
        raise CheckFailed(f"asked again, it says {subject.info} in place of {before}")


# Publishing -----------------------------------------------------------------------------------------------------------


def publishes_devices(subject: DriverUnderTest) -> None:
    name = subject.info.name
    if subject.until(lambda: any(one.spec.devices for one in subject.slices())):
        return
    others = sorted({one.spec.driver for one in subject.api.slices()} - {name})
    found = f"; there are slices of {', '.join(others)}" if others else ""
    asked = "it asked the API server for something" if subject.api.requests else "it never asked the API server"
    seconds = subject.options.wait_seconds
    raise CheckFailed(f"within {seconds:g} s it published no ResourceSlice with devices as {name} ({asked}{found})")


def publishes_valid_slices(subject: DriverUnderTest) -> None:
    if subject.api.refusals:
        told = dict.fromkeys(subject.api.refusals)
        raise CheckFailed("the API server refused or did not know: " + "; ".join(told))


def publishes_for_its_node(subject: DriverUnderTest) -> None:
    node = subject.api.node
    elsewhere = [one.metadata.name for one in subject.slices() if one.spec.node_name not in (node, None)]
    if elsewhere:
        raise CheckFailed(f"ResourceSlices {', '.join(elsewhere)} are for another node than {node}")


def publishes_whole_pools(subject: DriverUnderTest) -> None:
    def problems() -> list[str]:
        pools: dict[str, list[ResourceSlice]] = defaultdict(list)
        for one in subject.slices():
            pools[one.spec.pool.name].append(one)
        found = []
        for name, slices in sorted(pools.items()):
            newest = max(one.spec.pool.generation for one in slices)
            current = [one for one in slices if one.spec.pool.generation == newest]
            wanted = current[0].spec.pool.resource_slice_count
            if len(current) != wanted:
                found.append(
                    f"pool {name} says that it has {wanted} slices; of generation {newest} it has {len(current)}"
                )
        return found

    if not subject.until(lambda: not problems(), seconds=min(subject.options.wait_seconds, 10.0)):
        raise CheckFailed("; ".join(problems()))


def restores_its_slices(subject: DriverUnderTest) -> None:
    gone = subject.slices()[0]
    devices = {device.name for device in gone.spec.devices}
    subject.api.remove(RESOURCE_SLICE, gone.metadata.name)

    def back() -> bool:
        return devices <= {device.name for one in subject.slices() for device in one.spec.devices}

    seconds = max(subject.options.wait_seconds, RESTORE_SECONDS)
    if not subject.until(back, seconds=seconds):
        name = gone.metadata.name
        raise CheckFailed(f"ResourceSlice {name} was deleted, and {seconds:g} s later its devices are not published")


_REGISTERED = ("registration.info", "registration.services")

CHECKS: Final = (
    DriverCheck(
        id="registration.info",
        title="says who it is at its registration socket",
        advice="serve pluginregistration.Registration at a Unix socket in the kubelet's plugins_registry directory, "
        f"and answer GetInfo within {INFO_SECONDS:g} s",
        run=says_who_it_is,
    ),
    DriverCheck(
        id="registration.type",
        title="is a DRA plugin",
        advice=f'answer GetInfo with the type "{DRA_PLUGIN}"',
        run=is_a_dra_plugin,
        needs=("registration.info",),
    ),
    DriverCheck(
        id="registration.name",
        title="has a name that ResourceSlices and claims may have",
        advice="use a DNS subdomain in small letters, such as gpu.example.com",
        run=has_a_valid_name,
        needs=("registration.info",),
    ),
    DriverCheck(
        id="registration.services",
        title="lists a service that kubelets of today ask",
        advice='list "v1.DRAPlugin", and "v1beta1.DRAPlugin" for kubelets before 1.34, as supported versions',
        run=lists_a_service,
        needs=("registration.info",),
    ),
    DriverCheck(
        id="registration.endpoint",
        title="serves at the endpoint that it names",
        advice="name the absolute path of the socket of its services, and listen there before it registers",
        run=serves_at_its_endpoint,
        needs=("registration.info",),
    ),
    DriverCheck(
        id="registration.refused",
        title="lives on when a kubelet refuses it",
        advice="answer NotifyRegistrationStatus with plugin_registered=false (an error will do) and go on: the kubelet "
        "asks again",
        run=takes_a_refusal,
        needs=("registration.info",),
    ),
    DriverCheck(
        id="registration.confirmed",
        title="takes the news that it is registered",
        advice="answer NotifyRegistrationStatus with plugin_registered=true without an error",
        run=takes_its_registration,
        needs=("registration.info",),
    ),
    DriverCheck(
        id="registration.again",
        title="says the same when it is asked again",
        advice="a kubelet that was restarted asks every driver again: let the answer depend on nothing from before",
        run=says_the_same_again,
        needs=("registration.info",),
    ),
    DriverCheck(
        id="slices.published",
        title="publishes its devices",
        advice="create ResourceSlices with its own name as spec.driver, at the API server of the kubeconfig that this "
        "check wrote",
        run=publishes_devices,
        needs=_REGISTERED,
    ),
    DriverCheck(
        id="slices.valid",
        title="writes nothing that an API server refuses",
        advice="correct the fields that are named here",
        run=publishes_valid_slices,
        needs=("slices.published",),
    ),
    DriverCheck(
        id="slices.node",
        title="publishes the devices of its own node",
        advice="take the node's name from its options or its pod (spec.nodeName), not from the machine",
        run=publishes_for_its_node,
        needs=("slices.published",),
    ),
    DriverCheck(
        id="slices.whole",
        title="publishes whole pools",
        advice="write as many slices of the newest generation as spec.pool.resourceSliceCount says: schedulers leave a "
        "pool alone that is incomplete",
        run=publishes_whole_pools,
        needs=("slices.published",),
    ),
)

#: Once everything else is done: a driver is busy for a while with what somebody took from it.
LAST: Final = (
    DriverCheck(
        id="slices.restored",
        title="publishes again what somebody deleted",
        advice="watch its own ResourceSlices and write those that are missing",
        run=restores_its_slices,
        needs=("slices.published",),
        slow=True,
    ),
)
