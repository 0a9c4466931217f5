"""The checks of a DRA driver: registration, published devices, calls around a pod, health stream, restarts.

A kubelet repeats calls after every failure, timeout and restart: a driver must handle repeated calls.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from claims.kinds.registration import RESOURCE_CLAIM
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.registration import RESOURCE_SLICE
from manciple.wire.validation import DRIVER_NAME_MAX, check_driver_name
from nodeagent.cdi import DEVICE_NAME, KIND, CdiRegistry, ContainerEdits, Mount, SpecFiles
from nodeagent.driver_check.report import DriverCheck
from nodeagent.driver_check.subject import NAMESPACE, REQUEST, CheckFailed, DriverProcess, DriverUnderTest, NotChecked
from nodeagent.drivers.preparing import CONTAINER_FOLDER
from nodeagent.plugins.protocol import (
    DRA_PLUGIN,
    GET_INFO,
    NOTIFY,
    CallFailed,
    Channel,
    Claim,
    ClaimsRequest,
    Device,
    DeviceReport,
    HealthRequest,
    InfoRequest,
    PreparedClaim,
    RegistrationStatus,
)
from nodeagent.plugins.registration import INFO_SECONDS, NOTIFY_SECONDS

# Registration ---------------------------------------------------------------------------------------------------------


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

_REGISTRATION_CHECKS: Final = (
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
_LAST_CHECKS: Final = (
    DriverCheck(
        id="slices.restored",
        title="publishes again what somebody deleted",
        advice="watch its own ResourceSlices and write those that are missing",
        run=restores_its_slices,
        needs=("slices.published",),
        slow=True,
    ),
)


# Preparing and unpreparing --------------------------------------------------------------------------------------------


#: Seconds after which a call is given up that is to be given up; a driver may have answered by then.
IMPATIENCE: Final = 0.02
#: Seconds that a driver has to be done with a call that nobody waits for any more, before its claim is given back.
SETTLING: Final = 0.25


def prepares_a_claim(subject: DriverUnderTest) -> None:
    with subject.claim() as claim:
        subject.prepared(claim)


def names_the_device(subject: DriverUnderTest) -> None:
    device = subject.devices()[0]
    with subject.claim(device) as claim:
        told = subject.prepared(claim).devices
    wanted = (device.pool, device.name)
    if wanted not in [(one.pool_name, one.device_name) for one in told]:
        given = ", ".join(f"{one.pool_name}/{one.device_name}" for one in told) or "no device"
        raise CheckFailed(f"the claim was given {'/'.join(wanted)}, and its answer names {given}")
    if strange := {name for one in told for name in one.request_names} - {REQUEST}:
        raise CheckFailed(f"its answer names the requests {sorted(strange)}, and the claim has only {REQUEST!r}")


def names_cdi_devices(subject: DriverUnderTest) -> None:
    with subject.claim() as claim:
        ids = cdi_ids(subject.prepared(claim))
    if not ids:
        raise CheckFailed("its answer names no CDI device, so that no container would get anything")
    if wrong := [one for one in ids if not _is_id(one)]:
        raise CheckFailed(f"{', '.join(map(repr, wrong))} is no CDI device id (vendor.example.com/class=name)")


def writes_cdi_files(subject: DriverUnderTest) -> None:
    with subject.claim() as claim:
        ids = cdi_ids(subject.prepared(claim))
        try:
            _edits(subject, ids)
        except LookupError as error:
            raise CheckFailed(f"a container runtime could not start a container: {error.args[0]}") from error


def breaks_no_rule_of_cdi(subject: DriverUnderTest) -> None:
    """Its files, by what their devices' names are; those of others are none of its business."""
    with subject.claim() as claim:
        ids = cdi_ids(subject.prepared(claim))
        kinds = {one.partition("=")[0] for one in ids}
        broken = [
            f"{file.path}: {file.problem}"
            for folder in subject.options.cdi_dirs
            for file in SpecFiles(folder).read()
            if file.problem and _is_of(file.path, kinds, claim)
        ]
    if broken:
        raise CheckFailed("; ".join(broken))


def prepares_twice(subject: DriverUnderTest) -> None:
    with subject.claim() as claim:
        first, second = subject.prepared(claim), subject.prepared(claim)
    if in_order(first) != in_order(second):
        raise CheckFailed(f"the second answer for the same claim is another one: {second}, and before {first}")


def prepares_several(subject: DriverUnderTest) -> None:
    devices = subject.devices()
    if len(devices) == 1:
        raise NotChecked("it has one device only")
    with ExitStack() as stack:
        claims = [stack.enter_context(subject.claim(device)) for device in devices[:2]]
        answers = subject.prepare(*claims)
        for claim in claims:
            answer = answers.get(claim.uid)
            if answer is None:
                raise CheckFailed("asked for two claims in one call, it answers for one of them only")
            if answer.error:
                raise CheckFailed(f"asked for two claims in one call, it fails one of them: {answer.error}")


def prepares_nothing(subject: DriverUnderTest) -> None:
    for answered in ({**subject.prepare()}, {**subject.unprepare()}):
        if answered:
            raise CheckFailed(f"a call for no claim is answered for {', '.join(answered)}")


def prepares_after_a_call_that_was_given_up(subject: DriverUnderTest) -> None:
    with subject.claim() as claim:
        with suppress(CallFailed):
            subject.call(subject.service.prepare, ClaimsRequest(claims=(claim,)), seconds=IMPATIENCE)
        subject.prepared(claim)
        time.sleep(SETTLING)


def refuses_a_claim_that_is_not_there(subject: DriverUnderTest) -> None:
    document = subject.claim_document(subject.devices()[0])
    meta = document["metadata"]
    _refused(subject, Claim(namespace=NAMESPACE, name=meta["name"], uid=meta["uid"]), "does not exist")


def refuses_a_claim_that_was_replaced(subject: DriverUnderTest) -> None:
    with subject.claim() as claim:
        _refused(
            subject, replace(claim, uid=f"{claim.uid[:-1]}{'0' if claim.uid[-1] != '0' else '1'}"), "has another uid"
        )


def refuses_a_claim_without_devices(subject: DriverUnderTest) -> None:
    document = subject.claim_document(subject.devices()[0], allocated=False)
    subject.api.put(RESOURCE_CLAIM, document)
    meta = document["metadata"]
    try:
        _refused(subject, Claim(namespace=NAMESPACE, name=meta["name"], uid=meta["uid"]), "is not allocated")
    finally:
        subject.api.remove(RESOURCE_CLAIM, meta["name"], NAMESPACE)


def _refused(subject: DriverUnderTest, claim: Claim, what: str) -> None:
    """By an error of the claim or of the call; and the next claim is prepared all the same. Raises: CheckFailed."""
    try:
        answer = subject.prepare(claim).get(claim.uid, PreparedClaim(error="left out"))
    except CallFailed as error:
        if error.code in ("DeadlineExceeded", "Unavailable"):
            raise CheckFailed(f"asked for a claim that {what}: {error}") from error
    else:
        if not answer.error:
            raise CheckFailed(f"it prepares a claim that {what}, and answers without an error")
    prepares_a_claim(subject)


def answers_in_time(subject: DriverUnderTest) -> None:
    """Of all calls so far, and one more."""
    with suppress(CheckFailed):
        prepares_a_claim(subject)
    limit = subject.options.call_seconds
    name, seconds = max(subject.took, key=lambda one: one[1], default=("", 0.0))
    if seconds >= limit:
        raise CheckFailed(f"{name} took {seconds:.1f} s; a kubelet gives a call up after {limit:g} s")


def tells_what_the_device_is(subject: DriverUnderTest) -> None:
    device = subject.devices()[0]
    with subject.claim(device) as claim:
        ids = cdi_ids(subject.prepared(claim))
        mounts = [mount for edits in _edits(subject, ids) for mount in edits.mounts]
        told = [mount for mount in mounts if mount.container_path.startswith(CONTAINER_FOLDER)]
        if not told:
            raise NotChecked("it mounts no metadata of its devices (KEP-5304), which is optional")
        problems = list(_wrong_metadata(told[0], subject, claim, device.name))
    if problems:
        raise CheckFailed("; ".join(problems))


def _wrong_metadata(mount: Mount, subject: DriverUnderTest, claim: Claim, device: str) -> Iterator[str]:
    if "ro" not in mount.options:
        yield f"{mount.container_path} is mounted so that a container may write it"
    if not mount.container_path.endswith(f"/{subject.info.name}-metadata.json"):
        yield f"{mount.container_path} does not end with the driver's name and -metadata.json"
    try:
        content = Path(mount.host_path).read_text()
        documents = [msgspec.json.decode(line) for line in _json_values(content)]
    except (OSError, ValueError) as error:
        yield f"{mount.host_path}: {error}"
        return
    for document in documents:
        if document.get("kind") != "DeviceMetadata" or "metadata.resource.k8s.io/" not in document.get(
            "apiVersion", ""
        ):
            yield f"{mount.host_path} has an object that is no DeviceMetadata of metadata.resource.k8s.io"
        if document.get("metadata", {}).get("uid") != claim.uid:
            yield f"{mount.host_path} is about another claim than {claim.uid}"
        named = [one.get("name") for request in document.get("requests", ()) for one in request.get("devices", ())]
        if device not in named:
            yield f"{mount.host_path} does not name the device {device}"


def _json_values(text: str) -> Iterator[str]:
    """One JSON value after the other, as decoders of streams read them."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text.rstrip()):
        _, end = decoder.raw_decode(text, at)
        yield text[at:end]
        at = end + len(text[end:]) - len(text[end:].lstrip())


# Giving back ----------------------------------------------------------------------------------------------------------


def gives_a_claim_back(subject: DriverUnderTest) -> None:
    with subject.claim() as claim:
        subject.prepared(claim)
        subject.unprepared(claim)


def leaves_no_cdi_devices(subject: DriverUnderTest) -> None:
    """Those that are named after the claim: names that stand for a device itself may stay."""
    with subject.claim() as claim:
        ids = [one for one in cdi_ids(subject.prepared(claim)) if claim.uid in one]
        if not ids:
            raise NotChecked("its CDI devices are not named after the claim")
        subject.unprepared(claim)
        left = [one for one in ids if is_defined(subject, one)]
    if left:
        raise CheckFailed(f"the claim was given back, and the CDI devices {', '.join(left)} are still defined")


def gives_back_twice(subject: DriverUnderTest) -> None:
    with subject.claim() as claim:
        subject.prepared(claim)
        subject.unprepared(claim)
        subject.unprepared(claim)


def gives_back_what_it_never_had(subject: DriverUnderTest) -> None:
    meta = subject.claim_document(subject.devices()[0])["metadata"]
    subject.unprepared(Claim(namespace=NAMESPACE, name=meta["name"], uid=meta["uid"]))


def gives_back_what_was_deleted(subject: DriverUnderTest) -> None:
    with subject.claim() as claim:
        subject.prepared(claim)
        subject.api.remove(RESOURCE_CLAIM, claim.name, NAMESPACE)
        subject.unprepared(claim)


def gives_the_device_to_the_next(subject: DriverUnderTest) -> None:
    device = subject.devices()[0]
    for _ in range(2):
        with subject.claim(device) as claim:
            subject.prepared(claim)
            subject.unprepared(claim)


# What answers say -----------------------------------------------------------------------------------------------------


def cdi_ids(answer: PreparedClaim) -> list[str]:
    return [one for device in answer.devices for one in device.cdi_device_ids]


def _is_id(one: str) -> bool:
    kind, equals, name = one.partition("=")
    return bool(equals and KIND.fullmatch(kind) and DEVICE_NAME.fullmatch(name))


def _edits(subject: DriverUnderTest, ids: Iterable[str]) -> list[ContainerEdits]:
    """Raises: LookupError for names that no valid file defines."""
    return CdiRegistry(list(subject.options.cdi_dirs)).edits(list(ids))


def is_defined(subject: DriverUnderTest, one: str) -> bool:
    try:
        _edits(subject, [one])
    except LookupError:
        return False
    return True


def _is_of(path: Path, kinds: Iterable[str], claim: Claim) -> bool:
    """Whether a file that cannot be read as CDI is the driver's, as far as its name and its text tell."""
    text = path.read_text(errors="replace")
    return claim.uid in path.name or claim.uid in text or any(kind in text for kind in kinds)


def in_order(answer: PreparedClaim) -> list[Device]:
    return sorted(answer.devices, key=lambda one: (one.pool_name, one.device_name, one.request_names))


_PREPARES = ("prepare.answers",)
_CDI = ("prepare.cdi_files",)

_PREPARING_CHECKS: Final = (
    DriverCheck(
        id="prepare.answers",
        title="prepares an allocated claim",
        advice="read the claim from the API server of the kubeconfig that this check wrote, and answer by its uid",
        run=prepares_a_claim,
        needs=("slices.published",),
    ),
    DriverCheck(
        id="prepare.devices",
        title="names the device that the claim was given, for its request",
        advice="answer for each of the driver's results in status.allocation.devices with pool, device and request",
        run=names_the_device,
        needs=_PREPARES,
    ),
    DriverCheck(
        id="prepare.cdi_ids",
        title="names CDI devices by their full names",
        advice="answer with ids such as vendor.example.com/class=name",
        run=names_cdi_devices,
        needs=_PREPARES,
    ),
    DriverCheck(
        id="prepare.cdi_files",
        title="has written the CDI files of what it names before it answers",
        advice="write the file, whole, into a directory of --cdi-dir; runtimes look in /etc/cdi and /var/run/cdi",
        run=writes_cdi_files,
        needs=("prepare.cdi_ids",),
    ),
    DriverCheck(
        id="prepare.cdi_valid",
        title="breaks no rule of CDI in its files",
        advice="correct the file; a cdiVersion must be no lower than its fields need",
        run=breaks_no_rule_of_cdi,
        needs=("prepare.cdi_ids",),
    ),
    DriverCheck(
        id="prepare.twice",
        title="prepares a claim again with the same answer",
        advice="let preparing be idempotent: a kubelet asks again after each restart and each failure",
        run=prepares_twice,
        needs=_PREPARES,
    ),
    DriverCheck(
        id="prepare.several",
        title="prepares several claims in one call",
        advice="answer for every claim of the request, each with its own devices or its own error",
        run=prepares_several,
        needs=_PREPARES,
    ),
    DriverCheck(
        id="prepare.nothing",
        title="answers a call about no claim",
        advice="answer with no claims and no error",
        run=prepares_nothing,
        needs=_PREPARES,
    ),
    DriverCheck(
        id="prepare.given_up",
        title="prepares a claim again whose call was given up",
        advice="let no state stay half-made when a call is cancelled, and wait for a call under way before the next",
        run=prepares_after_a_call_that_was_given_up,
        needs=_PREPARES,
    ),
    DriverCheck(
        id="prepare.missing",
        title="refuses a claim that does not exist, and goes on",
        advice="read the claim before anything is done for it; fail that claim or the call, and nothing else",
        run=refuses_a_claim_that_is_not_there,
        needs=_PREPARES,
    ),
    DriverCheck(
        id="prepare.replaced",
        title="refuses a claim of another uid than it was asked for",
        advice="compare the uid of the claim that was read with that of the request: a name may have been used again",
        run=refuses_a_claim_that_was_replaced,
        needs=_PREPARES,
    ),
    DriverCheck(
        id="prepare.unallocated",
        title="refuses a claim that is not allocated",
        advice="fail a claim without status.allocation",
        run=refuses_a_claim_without_devices,
        needs=_PREPARES,
    ),
    DriverCheck(
        id="prepare.metadata",
        title="tells containers what their devices are, where it tells anything",
        advice="write metadata as KEP-5304 has it: one DeviceMetadata object for each version, mounted read-only",
        run=tells_what_the_device_is,
        needs=_CDI,
    ),
    DriverCheck(
        id="unprepare.answers",
        title="gives a claim back",
        advice="answer by the claim's uid, without an error",
        run=gives_a_claim_back,
        needs=_PREPARES,
    ),
    DriverCheck(
        id="unprepare.cdi",
        title="leaves no CDI device of a claim that was given back",
        advice="remove the file before the call is answered",
        run=leaves_no_cdi_devices,
        needs=(*_CDI, "unprepare.answers"),
    ),
    DriverCheck(
        id="unprepare.twice",
        title="gives a claim back that was given back already",
        advice="let giving back be idempotent: what is gone already is no error",
        run=gives_back_twice,
        needs=("unprepare.answers",),
    ),
    DriverCheck(
        id="unprepare.unknown",
        title="gives back what it never prepared",
        advice="answer without an error: a kubelet asks so after a prepare that failed before anything was done",
        run=gives_back_what_it_never_had,
        needs=("unprepare.answers",),
    ),
    DriverCheck(
        id="unprepare.deleted",
        title="gives a claim back that is gone from the API",
        advice="do not read the claim to give it back: find what was made for it by its uid",
        run=gives_back_what_was_deleted,
        needs=("unprepare.answers",),
    ),
    DriverCheck(
        id="unprepare.next",
        title="prepares the device for the next claim",
        advice="forget the claim that was given back altogether",
        run=gives_the_device_to_the_next,
        needs=("unprepare.answers",),
    ),
    DriverCheck(
        id="calls.in_time",
        title="answers every call before a kubelet gives it up",
        advice="start what takes long before it is asked for, or answer with an error and let the kubelet ask again",
        run=answers_in_time,
        needs=("slices.published",),
    ),
)


# The health stream (KEP-4680), for drivers that list the service ------------------------------------------------------


#: What the protocol numbers: unknown, healthy, unhealthy.
STATES: Final = (0, 1, 2)


def reports_health(subject: DriverUnderTest) -> None:
    first_report(subject)


def reports_its_devices(subject: DriverUnderTest) -> None:
    published = {(one.pool, one.name) for one in subject.devices()}
    reported = first_report(subject)
    if not reported:
        raise CheckFailed("its first report tells of no device")
    strange = sorted({(one.device.pool_name, one.device.device_name) for one in reported} - published)
    if strange:
        raise CheckFailed(
            f"it reports on devices that are not published: {', '.join('/'.join(one) for one in strange)}"
        )


def reports_known_states(subject: DriverUnderTest) -> None:
    if wrong := sorted({one.health for one in first_report(subject)} - set(STATES)):
        raise CheckFailed(f"it reports the health {wrong[0]}; there are 0 (unknown), 1 (healthy) and 2 (unhealthy)")


def reports_to_whoever_comes_back(subject: DriverUnderTest) -> None:
    for _ in range(2):
        first_report(subject)


def first_report(subject: DriverUnderTest) -> Sequence[DeviceReport]:
    """Of a watch that is ended then. Raises: NotChecked, CheckFailed."""
    services = subject.health_services()
    if not services:
        raise NotChecked("it lists no DRAResourceHealth service, which is optional")
    channel = Channel(str(subject.endpoint))
    seconds = subject.options.wait_seconds
    impatience = threading.Timer(seconds, channel.close)
    impatience.daemon = True
    impatience.start()
    try:
        for report in channel.stream(services[0].watch, HealthRequest()):
            return report.devices
    except CallFailed as error:
        raise CheckFailed(f"{services[0].name}: within {seconds:g} s it reported nothing: {error}") from error
    finally:
        impatience.cancel()
        channel.close()
    raise CheckFailed(f"{services[0].name}: it ends the stream before it has reported anything")


_STREAMS = ("health.stream",)

_HEALTH_CHECKS: Final = (
    DriverCheck(
        id="health.stream",
        title="reports the health of its devices",
        advice="send a report as soon as somebody watches, and keep the stream open",
        run=reports_health,
        needs=("slices.published",),
    ),
    DriverCheck(
        id="health.devices",
        title="reports on the devices that it publishes",
        advice="name pool and device as in its ResourceSlices",
        run=reports_its_devices,
        needs=_STREAMS,
    ),
    DriverCheck(
        id="health.states",
        title="reports states that there are",
        advice="report 0, 1 or 2",
        run=reports_known_states,
        needs=_STREAMS,
    ),
    DriverCheck(
        id="health.again",
        title="reports again to a kubelet that was away",
        advice="begin each watch with a report of all devices",
        run=reports_to_whoever_comes_back,
        needs=_STREAMS,
    ),
)


# Restarts of a driver that the check itself started -------------------------------------------------------------------


def process_of(subject: DriverUnderTest) -> DriverProcess:
    """Raises: NotChecked."""
    if subject.process is None:
        raise NotChecked("the check has not started the driver: give --run COMMAND")
    return subject.process


@contextmanager
def killed_while_prepared(subject: DriverUnderTest) -> Iterator[tuple[Claim, PreparedClaim]]:
    """A claim and the answer for it; then the driver is killed as kill -9 does, and runs again."""
    process = process_of(subject)
    with subject.claim() as claim:
        before = subject.prepared(claim)
        process.kill()
        subject.disconnect()
        process.start()
        subject.ask_who()
        yield claim, before


def comes_back_after_a_kill(subject: DriverUnderTest) -> None:
    with killed_while_prepared(subject):
        pass


def prepares_again_after_a_kill(subject: DriverUnderTest) -> None:
    with killed_while_prepared(subject) as (claim, before):
        after = subject.prepared(claim)
    if in_order(after) != in_order(before):
        raise CheckFailed(f"after it was killed it answers otherwise for the same claim: {after}, and before {before}")


def gives_back_after_a_kill(subject: DriverUnderTest) -> None:
    with killed_while_prepared(subject) as (claim, before):
        subject.unprepared(claim)
        left = [one for one in cdi_ids(before) if claim.uid in one and is_defined(subject, one)]
    if left:
        raise CheckFailed(
            f"what it prepared before it was killed was given back, and the CDI devices {', '.join(left)} are still "
            "defined"
        )


def keeps_its_slices(subject: DriverUnderTest) -> None:
    process = process_of(subject)
    wanted = {(one.pool, one.name) for one in subject.devices()}
    process.kill()
    subject.disconnect()
    process.start()
    subject.ask_who()
    subject.until(lambda: {(one.pool, one.name) for one in subject.devices()} == wanted)
    found = [(one.pool, one.name) for one in subject.devices()]
    if sorted(found) != sorted(wanted):
        raise CheckFailed(f"number of devices: {len(found)} after it was killed, {len(wanted)} before")


def ends_when_it_is_asked_to(subject: DriverUnderTest) -> None:
    """Kubernetes ends a pod so, and waits 30 s."""
    process = process_of(subject)
    seconds = min(subject.options.wait_seconds, 30.0)
    ended = process.stop(seconds=seconds)
    subject.disconnect()
    left = subject.options.socket.exists()
    process.start()
    subject.ask_who()
    if not ended:
        raise CheckFailed(f"{seconds:g} s after SIGTERM it has not ended")
    if left:
        raise CheckFailed(f"it has ended in order and left its registration socket {subject.options.socket} behind")


_NEEDS = ("prepare.answers", "unprepare.answers")

_RESTART_CHECKS: Final = (
    DriverCheck(
        id="restart.killed",
        title="comes back after it was killed",
        advice="take the place of a socket that is left from before",
        run=comes_back_after_a_kill,
        needs=_NEEDS,
    ),
    DriverCheck(
        id="restart.prepare",
        title="prepares again what it had prepared before it was killed",
        advice="keep what it must remember on the disk, written before the call is answered",
        run=prepares_again_after_a_kill,
        needs=("restart.killed", "prepare.twice"),
    ),
    DriverCheck(
        id="restart.unprepare",
        title="gives back what it had prepared before it was killed",
        advice="find what was made for a claim by its uid, in names of files and directories",
        run=gives_back_after_a_kill,
        needs=("restart.killed",),
    ),
    DriverCheck(
        id="restart.slices",
        title="publishes the same devices after it was killed",
        advice="take over the slices of its predecessor; do not write others beside them",
        run=keeps_its_slices,
        needs=("restart.killed",),
    ),
    DriverCheck(
        id="restart.stopped",
        title="ends when it is asked to, and takes its registration away",
        advice="on SIGTERM remove the registration socket first, answer the calls under way, and exit",
        run=ends_when_it_is_asked_to,
        needs=("registration.info",),
    ),
)

#: All checks, in the order in which they run.
CHECKS: Final[tuple[DriverCheck, ...]] = (
    *_REGISTRATION_CHECKS,
    *_PREPARING_CHECKS,
    *_HEALTH_CHECKS,
    *_RESTART_CHECKS,
    *_LAST_CHECKS,
)
