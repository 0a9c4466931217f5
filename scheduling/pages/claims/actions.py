"""What deleting a claim, or releasing it by force, would do exactly; and doing it, with the identity of the person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import structs

from claims.kinds.resource_claims import ResourceClaim, ResourceClaimStatus
from manciple.api import verbs
from manciple.wire.errors import ApiError, Conflict, NotFound
from manciple.wire.identity import Identity
from manciple.wire.machinery import DeleteOptions, Preconditions
from scheduling.controllers.reservations import FINALIZER
from scheduling.pages.claims.reading import ClaimRow
from scheduling.resources import CLAIMS, kind


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionEffect:
    """What would happen. summary: one sentence; changes: each thing; warning: what cannot be known from here."""

    summary: str
    changes: tuple[str, ...]
    warning: str = ""
    refused: str = ""  # why it cannot be done now


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionPreview:
    """What is asked before `effect` is brought about: a POST to `url`/`action` does it. list: the page's name."""

    name: str
    uid: str
    effect: ActionEffect
    action: Literal["delete", "release"]
    noun: Literal["claim", "template"]
    list: Literal["claims", "templates"]
    url: str

    @property
    def word(self) -> str:
        return self.action.capitalize()

    @property
    def button(self) -> str:
        return "Release by force" if self.action == "release" else f"{self.word} {self.noun}"

    @property
    def question(self) -> str:
        by_force = " by force" if self.action == "release" else ""
        return f"{self.word} {self.noun} {self.name}{by_force}?"


def effect_of_deletion(claim: ResourceClaim, line: ClaimRow) -> ActionEffect:
    """What `kubectl delete` would do to it now."""
    living = [user.name for user in line.users if not user.is_over]
    changes = [_devices(claim, line, freed="are free for others" if not living else "stay held until then")]
    changes += [f"Pod {name} uses it now and goes on; the claim is removed when that pod has ended." for name in living]
    changes += [f"Pod {name} waits for it, and would wait forever: it names this claim." for name in line.wanted_by]
    others = line.facts.foreign_finalizers or tuple(name for name in claim.metadata.finalizers if name != FINALIZER)
    changes += [f"Finalizer {name} holds it until its owner removes it." for name in others]
    waits = bool(living or others)
    summary = "It is marked for deletion, and removed later." if waits else "It is removed immediately."
    return ActionEffect(summary=summary, changes=tuple(change for change in changes if change))


def effect_of_release(claim: ResourceClaim, line: ClaimRow) -> ActionEffect:
    """What a forced release would do to it now."""
    changes = [_devices(claim, line, freed="are free at once, for whoever waits")]
    changes += [
        f"The reservation for {f'pod {user.name}' if user.is_pod else user.title} is removed." for user in line.users
    ]
    changes += [f"Finalizer {name} is removed." for name in removed_finalizers(claim)]
    if claim.metadata.deletion_timestamp is not None:
        changes.append("The claim is already deleted, so it is removed.")
    refused = "" if line.state in ("stuck", "unused", "deleting") else in_use(line.name).message
    summary, warning = _release_in_words(claim, line)
    return ActionEffect(
        summary=summary, changes=tuple(change for change in changes if change), warning=warning, refused=refused
    )


def _release_in_words(claim: ResourceClaim, line: ClaimRow) -> tuple[str, str]:
    """One sentence, and what cannot be known from here."""
    if claim.status.allocation is None:
        others = [name for name in removed_finalizers(claim) if name != FINALIZER]
        who = f"whoever set finalizer {others[0]}" if others else "its controllers"
        return (
            f"{line.name} is removed without waiting for {who}.",
            f"What {who} wanted to do before the claim goes is not done. Do this only where that controller is gone.",
        )
    node = line.nodes[0] if line.nodes else "its node"
    return (
        f"{line.name} releases what it holds without asking {node}.",
        f"{node if line.nodes else 'Its node'} may still use what it held: what runs there is not stopped, and two "
        "pods may then share a device that neither expects to share. Do this only where the machine is off, or "
        "where you have seen that nothing runs on it.",
    )


def removed_finalizers(claim: ResourceClaim) -> tuple[str, ...]:
    """Delete protection; on a claim that is deleted, everything that holds it."""
    deleting = claim.metadata.deletion_timestamp is not None
    return tuple(name for name in claim.metadata.finalizers if deleting or name == FINALIZER)


def delete(identity: Identity, namespace: str, name: str, *, uid: str) -> bool:
    """Whether it is gone already. uid: of the claim that the person saw. Raises: ApiError."""
    options = DeleteOptions(preconditions=Preconditions(uid=uid) if uid else None)
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
    return Conflict.of(CLAIMS, name, "pods use it, and nothing is stuck; delete those pods instead")


def in_words(refusal: ApiError, *, what: str = "claim") -> str:
    """What the API says, with what to do next."""
    if refusal.reason == "Conflict":
        return f"Nothing was changed: {refusal.message}. Review the {what} as it is now."
    if refusal.reason == "NotFound":
        return f"Nothing was changed: the {what} no longer exists."
    return f"Nothing was changed: {refusal.message}"


def _devices(claim: ResourceClaim, line: ClaimRow, *, freed: str) -> str:
    allocation = claim.status.allocation
    if allocation is None:
        return "It holds no device."
    names = ", ".join(f"{one.pool}/{one.device}" for one in allocation.devices.results[:8])
    more = f" and {line.devices - 8} more" if line.devices > 8 else ""  # noqa: PLR2004 - as many as are named
    if line.devices == 1:
        return f"Its device {names} {freed.replace('are ', 'is ', 1).replace('stay ', 'stays ', 1)}."
    return f"Its {line.devices} devices {names}{more} {freed}."
