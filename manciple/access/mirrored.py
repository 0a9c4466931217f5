"""Rights in a mirror of another cluster (`settings.MIRROR`): everything may be read, and nothing of it changed here.

`refusal` is asked before every authorizer, so for administrators, too, and a gate in front of every write asks it
again: pages hide what it refuses, and the API answers 403 with its text. What belongs to the mirror itself and not to
the cluster stays possible: reviews, which write nothing, and looking after incidents. Kinds
that are not copied (`copy_only`) cannot be read either: that there is none of them would be untrue.

Whoever is in the group of `OWNERS` reads everything that was copied. The roles of the cluster are not copied.

A mirror that acts (`act_by`) sends what its pages write to the cluster (`manciple.api.destination`); then `refusal`
lets pages ask for `ACTS`, and the cluster says what its user may do of them: the owner by `ClusterRights`, each of its
users as of everything else (`manciple.access.cluster_users`). Nothing is ever written to the copy: the gate refuses
that all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from django.conf import settings

from manciple.access import authorization
from manciple.access.authorization import Attributes, Decision, HeldRules
from manciple.access.kinds.roles import PolicyRule
from manciple.per_process import PerProcess
from manciple.store import hooks, records
from manciple.store.hooks import Write
from manciple.wire.identity import Identity

#: Whoever started the mirror: they read it with the rights that their kubeconfig has in the cluster.
OWNERS: Final = "manciple:mirror"

_READING: Final = ("get", "list", "watch")
#: Answered by the kubelet of a pod's node, or by what runs there: nobody here reaches those.
_CONNECTIONS: Final = frozenset({"attach", "exec", "log", "portforward", "proxy"})
#: Questions about one's own rights, which are those of the mirror; and resources of our own.
_QUESTIONS: Final = frozenset({"selfsubjectreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"})
_OWN: Final = frozenset({"incidents.manciple.dev", "events.audit.manciple.dev"})
_EDITED: Final = frozenset({"create", "update", "patch", "delete"})
_MADE: Final = frozenset({"create", "delete"})
#: What a mirror may do in its cluster, by resource. Nothing of this needs what was left out of the copy, such as values
#: of environment variables: a Job made of a copied CronJob would lack them.
ACTS: Final[Mapping[str, frozenset[str]]] = {
    "deviceclasses.resource.k8s.io": _EDITED,
    "devicetaintrules.resource.k8s.io": _EDITED,
    "nodes": frozenset({"update", "patch"}),
    "pods": _MADE,
    "resourceclaims.resource.k8s.io": _MADE,
    "resourceclaimtemplates.resource.k8s.io": _MADE,
}
_copied = set[str]()


class ClusterRights:
    """What the cluster lets the owner do. This one has none."""

    #: the namespace of the kubeconfig, where whoever may not act everywhere most likely may
    namespace = ""

    def decide(self, _identity: Identity, _wanted: Attributes) -> Decision:
        return Decision(False)


#: Of the owner, and by which pages act; None while they do not.
_owners = PerProcess(ClusterRights)
_rights = PerProcess[ClusterRights | None](lambda: None)


def ask_for_owner(rights: ClusterRights) -> None:
    """From now on `answered` asks these."""
    _owners.value = rights


def answered(identity: Identity, wanted: Attributes) -> Decision:
    """What the cluster lets somebody do there, whatever this mirror does."""
    if identity.remote:
        return authorization.decided_there(identity, wanted)
    return _owners.value.decide(identity, wanted) if OWNERS in identity.groups else Decision(False)


def act_by(rights: ClusterRights | None) -> None:
    """From now on pages may do in the cluster what `rights` allow; None: nothing any more."""
    _rights.value = rights


def acts() -> bool:
    return _rights.value is not None


def likely_namespace() -> str:
    """Where to ask for a right that is not given everywhere; "" outside of a mirror that acts."""
    return _rights.value.namespace if _rights.value is not None else ""


def as_sent(wanted: Attributes) -> Attributes:
    """What is asked of the cluster: a page's update is sent as a patch."""
    return replace(wanted, verb="patch") if wanted.verb == "update" and _named(wanted) in ACTS else wanted


def copy_only(resources: Iterable[str]) -> None:
    """resources: `pods`, `resourceclaims.resource.k8s.io`."""
    _copied.update(resources)


def refusal(wanted: Attributes) -> str:
    """Why nobody may do that here; "" where the authorizers decide, as they do outside of a mirror."""
    if not settings.MIRROR or wanted.path:
        return ""
    cluster = settings.MIRROR_OF
    if wanted.subresource in _CONNECTIONS:
        return f"this is a mirror of {cluster}, whose nodes are reached there: kubectl --context {cluster}"
    resource = _named(wanted)
    if resource in _OWN or (wanted.resource in _QUESTIONS and wanted.verb == "create") or is_act(wanted):
        return ""
    if wanted.verb in _READING:
        if resource in _copied:
            return ""
        return f"this is a mirror of {cluster}, without {resource}: read them with kubectl --context {cluster}"
    return f"this is a mirror of {cluster}: change it there, for example with kubectl --context {cluster}"


def is_act(wanted: Attributes) -> bool:
    """Whether a page asks for something that this mirror does in its cluster."""
    if not acts() or wanted.subresource:
        return False
    request = records.origin()
    is_page = request is not None and not request.resource
    return is_page and wanted.verb in ACTS.get(_named(wanted), ())


def _named(wanted: Attributes) -> str:
    return f"{wanted.resource}.{wanted.group}" if wanted.group else wanted.resource


def refuse_write(write: Write) -> None:
    """A gate in front of the store. Raises: Forbidden."""
    kind, new = write.kind, write.new or write.old
    meta = new.metadata if new is not None else None
    wanted = authorization.on_object(
        write.verb or write.operation.lower(),
        kind,
        namespace=meta.namespace if meta else "",
        name=meta.name if meta else "",
        subresource=write.subresource,
    )
    why = refusal(wanted)
    if not why and is_act(wanted):
        why = "what a mirror does, it does in its cluster"
    if why:
        raise authorization.refusal(write.identity, wanted, why)


def authorize(identity: Identity, wanted: Attributes) -> Decision:
    """An authorizer; it is not asked about what `refusal` refuses."""
    if OWNERS not in identity.groups:
        return Decision(False)
    if is_act(wanted) and (rights := _rights.value) is not None:
        return rights.decide(identity, wanted)
    return Decision(True, "the mirror is theirs")


def held_rules(identity: Identity, _namespace: str) -> HeldRules:
    if OWNERS not in identity.groups:
        return HeldRules()
    return HeldRules(rules=(PolicyRule(api_groups=("*",), resources=("*",), verbs=_READING),))


def register() -> None:
    """In a mirror alone: elsewhere no request takes this way."""
    if not settings.MIRROR:
        return
    authorization.refuse_first(refusal)
    authorization.register_authorizer("mirror", authorize, resolve=held_rules)
    hooks.register_check(refuse_write, first=True)
