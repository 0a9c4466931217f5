"""`/mirror`: what of a cluster is copied, what is not and why, and how current it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from dashboard.kit.guards import signed_in
from dashboard.kit.rendering import PageContext, render_page
from manciple.access.mirrored import OWNERS
from manciple.mirror import standing
from manciple.mirror.folders import running_beside
from manciple.mirror.sources import COPIED, Reach, Source
from manciple.mirror.standing import KindStanding, RemoteStanding
from manciple.people import person_of
from manciple.store.event_log import latest_revision


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredKind:
    """mark: of `kit.mark`. known: None before the cluster was asked."""

    source: Source
    known: KindStanding | None
    mark: str
    state: str

    @property
    def is_gap(self) -> bool:
        return self.known is not None and not self.known.is_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorContext(PageContext):
    """remote: None where this is no mirror, or its cluster never answered."""

    remote: RemoteStanding | None
    kinds: Sequence[MirroredKind]


@signed_in
@require_safe
def show_mirror(request: HttpRequest) -> HttpResponse:
    revision, remote, known = latest_revision(), standing.remote(), standing.kinds()
    kinds = [_described(source, known.get(source.resource), remote) for source in COPIED] if remote is not None else []
    kinds.sort(key=lambda one: not one.is_gap)
    context = MirrorContext(place="mirror", revision=revision, remote=remote, kinds=kinds)
    return render_page(request, "tools/mirror/page.html", context)


def _described(source: Source, known: KindStanding | None, remote: RemoteStanding) -> MirroredKind:
    if known is None:
        mark, state = "none", "Not read yet"
    elif known.reach is Reach.ABSENT:
        mark, state = "none", "The cluster does not have it"
    elif known.reach is Reach.FORBIDDEN:
        mark, state = "err", "The mirror may not list it" if settings.CLUSTER_USERS else "You may not list it"
    elif known.reach is Reach.FAILED:
        mark, state = "err", f"Could not be listed: {known.detail}"
    elif known.unread:
        mark, state = "warn", f"{known.unread} could not be read, and are left out"
    elif known.reach is Reach.NAMESPACE:
        mark, state = "warn", f"Namespace {remote.namespace} only"
    else:
        mark, state = "ok", "Copied"
    return MirroredKind(source=source, known=known, mark=mark, state=state)


@signed_in
@require_safe
def open_other(request: HttpRequest) -> HttpResponse:
    """Another mirror of the same owner, whose link signs in there."""
    others = running_beside(Path(settings.HOME)) if settings.MIRROR else {}
    other = others.get(request.GET.get("name", ""))
    identity = person_of(request).identity
    if other is None or identity.remote or OWNERS not in identity.groups:
        return redirect("mirror")
    return HttpResponseRedirect(other.link)
