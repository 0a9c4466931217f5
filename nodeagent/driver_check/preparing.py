"""Checks of the calls around a pod: NodePrepareResources and NodeUnprepareResources, CDI and metadata.

A kubelet asks again after every failure, timeout and restart: a driver must bear being asked again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from claims.kinds.registration import RESOURCE_CLAIM
from nodeagent.cdi.files import CdiRegistry, SpecFiles
from nodeagent.cdi.spec import DEVICE_NAME, KIND, ContainerEdits, Mount
from nodeagent.driver_check.report import DriverCheck
from nodeagent.driver_check.subject import NAMESPACE, REQUEST, CheckFailed, DriverUnderTest, NotChecked
from nodeagent.drivers.metadata import CONTAINER_FOLDER
from nodeagent.plugins.protocol import CallFailed, Claim, ClaimsRequest, Device, PreparedClaim

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

CHECKS: Final = (
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
