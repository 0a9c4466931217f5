"""What deleting a claim, or releasing it by force, would do exactly; and doing it, with the identity of the person."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from claims.controllers.reservations import FINALIZER
from claims.devices.cache import read_devices
from claims.devices.pools import DeviceSnapshot
from claims.devices.published import DeviceKey, pool_of
from claims.devices.states import DeviceState
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimStatus, node_of
from dashboard.kit.previews import ActionEffect, consequences, only_with
from dashboard.workloads.claims.reading import ClaimRow
from manciple.api import verbs
from manciple.wire.errors import ApiError, Conflict, NotFound
from manciple.wire.identity import Identity
from manciple.wire.resources import CLAIMS, kind

#: Why a claim is not released by force.
IN_USE = "it is in use, and nothing is stuck; delete the pods that use it instead"


def effect_of_deletion(claim: ResourceClaim, line: ClaimRow) -> ActionEffect:
    """What `kubectl delete` would do to it now."""
    living = [user.name for user in line.users if not user.is_over]
    others = line.facts.foreign_finalizers or tuple(name for name in claim.metadata.finalizers if name != FINALIZER)
    found = [
        ("Devices", _devices(claim, line, freed="are free for other claims" if not living else "stay held until then")),
        *(
            ("Pods", f"Pod {name} uses it now and goes on; the claim is removed when that pod has ended.")
            for name in living
        ),
        *(
            ("Pods", f"Pod {name} waits for it, and would wait forever: it names this claim.")
            for name in line.wanted_by
        ),
        *(("Finalizers", f"Finalizer {name} holds it until its owner removes it.") for name in others),
    ]
    waits = bool(living or others)
    summary = "It is marked for deletion, and removed later." if waits else "It is removed immediately."
    return ActionEffect(summary=summary, consequences=consequences(found))


def effect_of_release(claim: ResourceClaim, line: ClaimRow) -> ActionEffect:
    """What a forced release would do to it now."""
    users = [f"pod {user.name}" if user.is_pod else user.title for user in line.users]
    deleted = claim.metadata.deletion_timestamp is not None
    found = [
        ("Devices", _devices(claim, line, freed="are free at once, for waiting pods")),
        *(("Reserved for", f"The reservation for {user} is removed.") for user in users),
        *(("Finalizers", f"Finalizer {name} is removed.") for name in removed_finalizers(claim)),
        ("Claim", "The claim is already deleted, so it is removed." if deleted else ""),
    ]
    refused = "" if line.state in ("stuck", "unused", "deleting") else IN_USE
    summary, warning = _release_in_words(claim, line)
    return ActionEffect(summary=summary, consequences=consequences(found), warning=warning, refused=refused)


def _release_in_words(claim: ResourceClaim, line: ClaimRow) -> tuple[str, str]:
    """One sentence, and what cannot be known from here."""
    if claim.status.allocation is None:
        others = [name for name in removed_finalizers(claim) if name != FINALIZER]
        who = f"whoever set finalizer {others[0]}" if others else "its controllers"
        return (
            f"{line.name} is removed without waiting for {who}.",
            f"The cleanup that {who} wanted to do before the claim goes is skipped. Do this only if that controller is "
            "gone.",
        )
    node = line.nodes[0] if line.nodes else "its node"
    return (
        f"{line.name} releases what it holds without asking {node}.",
        f"{node if line.nodes else 'Its node'} may still use what it held: what runs there is not stopped, and two "
        "pods may then share a device that neither expects to share. Do this only if the machine is off, or "
        "if you have checked that nothing runs on it.",
    )


def removed_finalizers(claim: ResourceClaim) -> tuple[str, ...]:
    """Delete protection; on a claim that is deleted, everything that holds it."""
    deleting = claim.metadata.deletion_timestamp is not None
    return tuple(name for name in claim.metadata.finalizers if deleting or name == FINALIZER)


def delete(identity: Identity, namespace: str, name: str, *, uid: str) -> bool:
    """Whether it is gone already. uid: of the claim that the person saw. Raises: ApiError."""
    options = only_with(uid)
    return verbs.delete(kind(CLAIMS), namespace=namespace, name=name, identity=identity, options=options).gone


def force_release(identity: Identity, namespace: str, name: str, *, uid: str) -> bool:
    """Whether it is gone. The status goes first: should the second write fail, the claim controller ends what is left.

    Raises: ApiError.
    """

    def without_status(claim: ResourceClaim) -> ResourceClaim:
        _expect(claim, uid)
        return structs.replace(claim, status=ResourceClaimStatus())

    def without_finalizers(claim: ResourceClaim) -> ResourceClaim:
        _expect(claim, uid)
        dropped = removed_finalizers(claim)
        kept = tuple(one for one in claim.metadata.finalizers if one not in dropped)
        return structs.replace(claim, metadata=structs.replace(claim.metadata, finalizers=kept))

    claims = kind(CLAIMS)
    verbs.modify(claims, without_status, namespace=namespace, name=name, identity=identity, subresource="status")
    try:
        verbs.modify(claims, without_finalizers, namespace=namespace, name=name, identity=identity)
        verbs.current(claims, namespace, name)
    except NotFound:  # the claim controller was quicker
        return True
    return False


def _expect(claim: ResourceClaim, uid: str) -> None:
    """Raises: Conflict where another claim has the name now."""
    if uid and claim.metadata.uid != uid:
        raise Conflict.of(CLAIMS, claim.metadata.name, "another claim has this name now")


def in_use(name: str) -> ApiError:
    """The refusal to force the release of a claim that pods use."""
    return Conflict.of(CLAIMS, name, IN_USE)


#: Devices that are named in one sentence.
NAMED = 8


def _devices(claim: ResourceClaim, line: ClaimRow, *, freed: str) -> str:
    """freed: what becomes of its devices. Those that nobody would be given all the same are told besides."""
    allocation = claim.status.allocation
    if allocation is None:
        return "It holds no device."
    snapshot, node = read_devices(), node_of(allocation)
    names = {
        snapshot.find(one.driver, one.pool, one.device, node): f"{one.pool}/{one.device}"
        for one in allocation.devices.results
    }
    kept = _kept_back(names, snapshot) if freed.startswith("are free") else {}
    given = [name for key, name in names.items() if key not in kept]
    whose = "Its device" if len(given) == 1 else f"Its {len(given)} devices"
    if kept:
        whose = f"Of its {line.devices} devices"
    if len(given) == 1:
        freed = freed.replace("are ", "is ", 1).replace("stay ", "stays ", 1)
    more = f" and {len(given) - NAMED} more" if len(given) > NAMED else ""
    told = [f"{whose} {', '.join(given[:NAMED])}{more} {freed}."] if given else []
    for why in dict.fromkeys(kept.values()):
        alike = [names[key] for key in kept if kept[key] == why]
        more = f" and {len(alike) - NAMED} more" if len(alike) > NAMED else ""
        are, it = ("is", "it") if len(alike) == 1 else ("are", "they")
        told.append(f"{', '.join(alike[:NAMED])}{more} {are} {why}, so {it} cannot be allocated yet.")
    return " ".join(told)


_WHY_KEPT = {DeviceState.TAINTED: "tainted", DeviceState.UNHEALTHY: "unhealthy"}


def _kept_back(devices: Iterable[DeviceKey], snapshot: DeviceSnapshot) -> dict[DeviceKey, str]:
    """Those that nobody is given though nobody holds them -> why."""
    found = dict[DeviceKey, str]()
    for key in devices:
        candidate = snapshot.candidate(key)
        if candidate is None:
            found[key] = "not published"
        elif candidate.fence is not None:
            found[key] = _WHY_KEPT[candidate.fence]
        elif not snapshot.pools[pool_of(key)].complete:
            found[key] = "in an incomplete pool"
    return found
