"""Why a pod or a claim waits, as values: one class for each cause, its fields are the cause's parameters. PURE.

A cause arises where something is refused (`scheduling.state.node_fit`, `scheduling.allocator`), and is kept as JSON
with the queued pod and with the event that tells of it. What people read is made by `claims.causes.messages`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

import msgspec
from msgspec import Struct


def _code(name: str) -> str:
    """`ClaimNotFound` -> `claim-not-found`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


class Cause(Struct, frozen=True, tag_field="code", tag=_code, rename="camel", omit_defaults=True):
    """One of the classes below; `code` in its JSON says which."""


# The pod itself ------------------------------------------------------------------------------------------------------


class Gated(Cause, frozen=True):
    """spec.schedulingGates is not empty."""


class ClaimNotCreated(Cause, frozen=True):
    """The claim of a template is still to be made. entry: of spec.resourceClaims; pod: `namespace/name`."""

    pod: str
    entry: str


class ClaimNotFound(Cause, frozen=True):
    name: str


class ClaimBeingDeleted(Cause, frozen=True):
    name: str


class ClaimNotForPod(Cause, frozen=True):
    """claim and pod: `namespace/name`. The pod is not the owner of a claim that should be its own."""

    claim: str
    pod: str


class ClaimInUse(Cause, frozen=True):
    """All reservations of an allocated claim are taken.

    claim: `namespace/name`; "" in what an earlier version wrote. most: how many may use it at once.
    """

    claim: str = ""
    most: int = 0


class ClaimNotShareable(Cause, frozen=True):
    """Its devices are an amount of a node's own resources, and another pod has them."""

    name: str


class ClassMissing(Cause, frozen=True):
    """request: `request` or `request/subrequest`, which names the DeviceClass."""

    request: str
    name: str


class ParametersMissing(Cause, frozen=True):
    """What the claim `name` asks for cannot be told. detail: what is missing, in words."""

    name: str
    detail: str


class NobodyAllocates(Cause, frozen=True):
    """Nobody allocates a claim of the pod until a class exists or a feature gate is on, as `message` says."""

    message: str


class VolumeClaimMissing(Cause, frozen=True):
    """A volume of the pod names a PersistentVolumeClaim that does not exist."""

    name: str
    volume: str = ""


class VolumeClaimNotCreated(Cause, frozen=True):
    """A volume of the pod is ephemeral, and its PersistentVolumeClaim is not made yet."""

    name: str
    volume: str = ""


class VolumeClaimUnusable(Cause, frozen=True):
    """A volume of the pod is one of a PersistentVolumeClaim that cannot be mounted, as `message` says."""

    name: str
    volume: str
    message: str


class QuotaUsedUp(Cause, frozen=True, kw_only=True):
    """A quota leaves less than the pod's claims would hold, or count by being made; entry: of which none is made."""

    quota: str
    key: str
    requested: str
    used: str
    hard: str
    entry: str = ""


class GroupMissing(Cause, frozen=True):
    name: str


class GroupIncomplete(Cause, frozen=True):
    """pods: how many name the PodGroup, fewer than are to be placed together."""

    name: str
    pods: int
    wanted: int


class GroupDoesNotFit(Cause, frozen=True):
    """`placed` of the group would have a place at once, this pod too. room: on this node one is kept until all have.

    annotated: it is a gang by annotation. where: the label of the nodes (`KEY=VALUE`) among which most of it fits,
    the best of `domains` that were tried.
    """

    name: str
    placed: int
    wanted: int
    room: str = ""
    annotated: bool = False
    where: str = ""
    domains: int = 0


class AwaitingBinding(Cause, frozen=True):
    """The devices are given; their binding conditions do not hold yet. node: where the pod is to run."""

    node: str


class BindingFailed(Cause, frozen=True):
    """A failure condition of a device holds, or the conditions of the claim's devices did not come true in time."""

    claim: str
    reason: str = ""  # of the condition, as the driver wrote it
    detail: str = ""  # likewise
    timed_out: bool = False


class ClaimNotMade(Cause, frozen=True):
    """The claim for the extended resources of a pod was refused. pod: `namespace/name`; error: who refused says why."""

    pod: str
    error: str


class AwaitingDrivers(Cause, frozen=True):
    """Others decide: `drivers`, or their plugins. message: as in Kubernetes, where it has one."""

    message: str
    drivers: tuple[str, ...] = ()


class Interrupted(Cause, frozen=True):
    """The attempt was overtaken, or broke; the pod is tried again."""

    error: str


# Errors that a person must mend --------------------------------------------------------------------------------------


class Fault(StrEnum):
    NO_SUCH_KEY = "no-such-key"  #: a selector reads what a device does not have
    RUNTIME = "runtime"  #: a selector has no value for a device
    COMPILE = "compile"  #: a selector does not compile
    CLASS = "class"  #: a request names no class, or one that does not exist
    FEATURE = "feature"  #: a feature gate is off
    POOL = "pool"  #: a pool is incomplete or invalid
    CLAIM = "claim"  #: anything else in the claim


class Misconfigured(Cause, frozen=True):
    """A claim, class, selector or pool is wrong. error: Kubernetes' words."""

    fault: Fault
    error: str


class SearchStopped(Cause, frozen=True):
    """The search for devices had no answer after `trials` devices, or when its time was up.

    claims: whose selectors were being evaluated, or devices tried, when it was stopped after `seconds`. others_waited:
    it had more time, but pods of other namespaces were waiting.
    """

    trials: int
    timed_out: bool = False
    claims: str = ""
    seconds: float = 0.0
    others_waited: bool = False


# One node -------------------------------------------------------------------------------------------------------------


class NodeRefusal(Cause, frozen=True):
    """Why a node is not for a pod. plugin: of kube-scheduler's Filter.

    key: of the taint; the name of the resource ("pods" for their number); which part of the plugin refuses, where it
    has several; value: of the taint. resolvable: whether pods going away could change it.
    """

    plugin: str
    key: str = ""
    value: str = ""
    resolvable: bool = False


class CannotAllocate(Cause, frozen=True):
    """The node does not have the devices."""


# Too few devices for one request --------------------------------------------------------------------------------------


class TroubledPool(Struct, frozen=True, rename="camel"):
    """A pool that gives no device as it is."""

    driver: str
    name: str
    trouble: str  # "incomplete" or "invalid"
    detail: str  # "1 of 2 slices of generation 1"


class TooFew(Cause, frozen=True, kw_only=True):
    """A request has too few devices: on the only node that was asked, or on each of several.

    The subclass says which question left too few. Devices are counted over all nodes: one that several of them see
    counts once.
    """

    claim: str  # namespace/name
    request: str  # `request` or `request/subrequest`
    wanted: int  # on one node; where "all" are asked for, as many as there are, at least 1
    everything: bool = False  # allocationMode: All
    before: int  # devices that were left before the question
    left: int  # after it
    most: int  # after it, on one node
    node: str = ""  # the only one that was asked
    #: the first pools that the request could have devices of but for what is wrong with them; of more, how many
    pools: tuple[TroubledPool, ...] = ()
    more_pools: int = 0
    #: the pool that keeps most of the wanted devices back
    worst_pool: TroubledPool | None = None
    #: (nodes on which it is short so, nodes that were asked), where these differ
    nodes: tuple[int, int] | None = None

    @property
    def is_scattered(self) -> bool:
        """The nodes together have enough, but none has."""
        return self.left >= self.wanted and not self.everything


class TooFewPublished(TooFew, frozen=True):
    pass


class PoolsUnusable(TooFew, frozen=True, kw_only=True):
    """accepted: how many devices of pools that cannot be used the request would take; 0 where that is not known."""

    accepted: int = 0


class NotVisible(TooFew, frozen=True):
    """The devices are on other nodes."""


class RefusingOperand(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The operand of a selector that refused most devices. What they have there is told where all could be asked."""

    text: str
    refuses: int
    refuses_all: bool = False
    #: where it compares something of the device with a literal
    subject: str = ""
    operator: str = ""
    limit: str = ""
    #: (value, devices that have it), most first
    values: tuple[tuple[str, int], ...] = ()
    more_values: bool = False
    least: str = ""
    greatest: str = ""
    all_asked: bool = True


class NotSelected(TooFew, frozen=True, kw_only=True):
    """A selector of the class or of the request refuses devices."""

    class_name: str
    by_class: bool = False  # else by the request
    of_class: bool = False  # the class has chosen the devices beforehand
    selector: int = 0  # from 1, where there are several
    expression: str
    operand: RefusingOperand | None = None


class Tainted(TooFew, frozen=True, kw_only=True):
    #: (key, value, effect), the most frequent first
    taints: tuple[tuple[str, str, str], ...]
    #: for each of them the DeviceTaintRule that puts it there, and how many more do; ("", 0): the driver does
    rules: tuple[tuple[str, int], ...] = ()


class TooSmall(TooFew, frozen=True, kw_only=True):
    #: (capacity, amount asked for)
    capacity: tuple[tuple[str, str], ...]
    #: those of them that no device in question has
    unpublished: tuple[str, ...] = ()


class DevicesInUse(TooFew, frozen=True, kw_only=True):
    """Others hold the devices, or (shared) their shares.

    held: devices that are not shared, beside shared ones. takes: (capacity, amount) of what the request would take of a
    shared device, "" where devices differ. by_default: the capacities of which it does not say how much.
    """

    shared: bool = False
    held: int = 0
    takes: tuple[tuple[str, str], ...] = ()
    by_default: tuple[str, ...] = ()


# Requests that could each be met --------------------------------------------------------------------------------------


class NotTogether(Cause, frozen=True):
    """Each request has enough devices for itself, but not all of them together."""


class NoCommonValue(NotTogether, frozen=True, kw_only=True):
    """matchAttribute: of the free devices with the same value, at most `most` can be given to the `requests`.

    meant: a similar attribute, where no device has this one.
    """

    claim: str
    attribute: str
    wanted: int
    most: int
    requests: tuple[str, ...] = ()
    meant: str = ""


class TooFewValues(NotTogether, frozen=True, kw_only=True):
    """distinctAttribute: fewer values than devices. meant: a similar attribute, where no device has this one."""

    claim: str
    attribute: str
    wanted: int
    values: int
    meant: str = ""


class CountersExhausted(NotTogether, frozen=True, kw_only=True):
    """What is left of shared counters serves too few. served: one by one; None where it fails only together.

    unpublished: devices that draw on these counters because they are held, though nobody publishes them any more.
    """

    request: str
    wanted: int
    accepted: int
    served: int | None = None
    unpublished: tuple[str, ...] = ()


class RequestsCompete(NotTogether, frozen=True):
    """The requests want `wanted` devices together, and `serving` of the free ones would do.

    claim: whose requests they are, also those with admin access, for which devices need not be free; "" where they are
    all of those without, of all claims.
    """

    wanted: int
    serving: int
    claim: str = ""


class ConstraintsUnmet(NotTogether, frozen=True):
    """constraints: `matchAttribute: NAME` or `distinctAttribute: NAME`."""

    claim: str
    constraints: tuple[str, ...]


OfPod = (
    Gated | ClaimNotCreated | ClaimNotFound | ClaimBeingDeleted | ClaimNotForPod | ClaimInUse | ClaimNotShareable
    | ClassMissing | ParametersMissing | VolumeClaimMissing | VolumeClaimNotCreated
    | VolumeClaimUnusable | QuotaUsedUp | GroupMissing
    | GroupIncomplete | AwaitingDrivers | NobodyAllocates | BindingFailed
)  # fmt: skip
OfDevices = (
    TooFewPublished | PoolsUnusable | NotVisible | NotSelected | Tainted | TooSmall | DevicesInUse
    | NotTogether | NoCommonValue | TooFewValues | CountersExhausted | RequestsCompete | ConstraintsUnmet
)  # fmt: skip
OfNode = NodeRefusal | CannotAllocate | Misconfigured | SearchStopped


# Preemption -----------------------------------------------------------------------------------------------------------


class PreemptionNotHelpful(Cause, frozen=True):
    """The node would not take the pod whoever left it."""


class NoVictims(Cause, frozen=True):
    """Nobody on the node has a lower priority."""


class Ineligible(StrEnum):
    """Why a pod may evict nobody."""

    POLICY = "policy"  #: its preemptionPolicy is Never
    WAITING = "waiting"  #: pods on the node that it is nominated for are on their way out
    UNDECIDED = "undecided"  #: the search was stopped; it is tried again


class NotEligible(Cause, frozen=True):
    because: Ineligible


class Unhelpful(Cause, frozen=True):
    """nodes: why evicting pods would not help there, each with the number of nodes."""

    nodes: tuple[tuple[PreemptionNotHelpful | NoVictims | OfNode, int], ...] = ()


class NamedVictim(Struct, frozen=True, rename="camel"):
    namespace: str
    name: str
    priority: int


class Evicting(Cause, frozen=True, kw_only=True):
    """Room is made on `node`. victims: the most important first; of more than are named, how many."""

    node: str
    victims: tuple[NamedVictim, ...] = ()
    more: int = 0


OfPreemption = NotEligible | Unhelpful | Evicting


class NoNodeFits(Cause, frozen=True, kw_only=True):
    """What an attempt came to. nodes: how many there are."""

    nodes: int
    #: none of the pod's claims could be deallocated: it has none, or one of them cannot be used
    without_claims: bool = False
    #: what evicting others would do for it, where that was asked
    preemption: OfPreemption | None = None
    #: the node on which room is kept for it, because it has waited for longest
    room: str = ""
    #: what speaks against the nodes, each with the number of nodes, the most frequent first
    refused: tuple[tuple[OfNode, int], ...] = ()
    #: what forbids all nodes at once; or why devices are lacking, where they are
    because: OfPod | OfDevices | None = None
    #: an idle allocation was in the way and is given back
    deallocated: bool = False


# Of a pod that another scheduler places, in a cluster that is only looked at ---------------------------------------


class NotPlaced(Cause, frozen=True, kw_only=True):
    """It fits, and `scheduler` has not placed it. nodes: some of those on which it fits, and how many more.

    seconds: since when it waits; 0 where that stands beside it. silent: its scheduler's Lease is overdue.
    """

    scheduler: str
    nodes: tuple[str, ...] = ()
    more: int = 0
    seconds: int = 0
    silent: bool = False


class NotJudged(Cause, frozen=True):
    """Why it waits cannot be judged. why: what is not known, each the end of "It cannot be judged: ".

    forbidden: some of it for lack of a right.
    """

    why: tuple[str, ...]
    forbidden: bool = False


OfOthers = NotPlaced | NotJudged

AnyCause = (
    OfPod | OfDevices | OfNode | NoNodeFits | AwaitingBinding | BindingFailed | ClaimNotMade | Interrupted
    | GroupDoesNotFit | OfOthers
)  # fmt: skip

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyCause] = msgspec.json.Decoder(AnyCause)


def encode(cause: Cause | None) -> str:
    """JSON; "" for none."""
    return "" if cause is None else _encoder.encode(cause).decode()


def decode(text: str) -> AnyCause | None:
    """None for "", and for what another version wrote that this one does not know."""
    try:
        return _decoder.decode(text) if text else None
    except msgspec.ValidationError:
        return None


def claim_of(cause: AnyCause | None) -> str:
    """The claim (`namespace/name`) that is short of devices; "" where none is."""
    found = cause.because if isinstance(cause, NoNodeFits) else cause
    return found.claim if isinstance(found, TooFew) else ""


def counted(refused: Iterable[Iterable[OfNode]]) -> tuple[tuple[OfNode, int], ...]:
    """For each refused node what speaks against it -> each of these with its number of nodes, most first."""
    return tuple(Counter(one for found in refused for one in found).most_common())
