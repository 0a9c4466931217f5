"""Guards around every view: rights, limits of work, outages, compression, and what browsers may keep.

**Rights.** Decorators declare the rights of a view (`manciple.access.authorization.ViewRights`) and enforce them:

    @listing(NODES, SLICES)      they may list both in the whole cluster
    @namespaced(NODES)           they see at least one namespace, and may list nodes; the view leaves out the others
    @authorizes                  the right depends on the request: the view asks for it
    @administrators_only
    @signed_in                   their own account, or a page for everyone who is signed in
    @with_account                likewise, but for users of a mirrored cluster, whose accounts are that cluster's
    @public                      signed in or not

Visitors without a session are redirected to sign in. A refusal says which right is missing and whom to ask, and keeps
the navigation. Programs may read the files of lists (`dashboard.kit.lists.FILES`) by the credentials of the API: with
their rights, whatever session the request has, and a Status where they are refused. `DeclaredRightsOnly` answers 403
for a view without any of these.

**Limits of work and outages.** The author of a link chooses the expressions and ranges of time in its address.
`manciple.api.flow_control` limits what they may cost. A page that can show a part of its answer does so; of any other,
`kit/costly.html` stands in its place. While the database is away (503 with Retry-After) or full (507), a page stands
there that asks it for nothing: errors of views come by `process_exception`, those of other middleware (sessions are
read and written there) by Django's handler of uncaught errors (`handle_uncaught`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db import OperationalError, connection
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.template.loader import render_to_string
from django.views import defaults

from dashboard.kit.lists import is_file
from manciple.access import cluster_users
from manciple.access.authorization import AUTHORIZES, PUBLIC, SIGNED_IN, ViewRights, rights_of
from manciple.api import faults
from manciple.api.answers import error_answer
from manciple.api.door import identify_sender
from manciple.api.flow_control import WORK, RequestWork
from manciple.gaps import NotEnoughKnown
from manciple.people import Person, person_of, person_of_identity
from manciple.wire.errors import (
    ApiError,
    Forbidden,
    InsufficientStorage,
    MethodNotAllowed,
    TooManyRequests,
    Unauthorized,
)
from manciple.wire.identity import ANONYMOUS, Identity
from manciple.wire.limits import Deadline, TimeLimitExceeded, check_time, time_limit

# Rights ---------------------------------------------------------------------------------------------------------------


View = Callable[..., HttpResponseBase]


def listing(*resources: str) -> Callable[[View], View]:
    """resources: `nodes`, `deviceclasses.resource.k8s.io`."""
    return _declared(ViewRights(lists=resources))


def namespaced(*resources: str) -> Callable[[View], View]:
    return _declared(ViewRights(lists=resources, namespaced=True))


def _declared(rights: ViewRights) -> Callable[[View], View]:
    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *arguments: Any, **parameters: Any) -> HttpResponseBase:
            if not rights.public:
                check(rights, person_of(request))
            return view(request, *arguments, **parameters)

        in_session = login_required(guarded)

        @wraps(view)
        def guarded_for_all(request: HttpRequest, *arguments: Any, **parameters: Any) -> HttpResponseBase:
            if "Authorization" in request.headers and is_file(request):
                return _served_to_program(request, lambda: guarded(request, *arguments, **parameters))
            return in_session(request, *arguments, **parameters)

        served: Any = guarded if rights.public else guarded_for_all
        served.rights = rights
        return served  # type: ignore[no-any-return]

    return decorate


def _served_to_program(request: HttpRequest, view: Callable[[], HttpResponseBase]) -> HttpResponseBase:
    if request.method not in _SAFE:
        return error_answer(MethodNotAllowed("Files of lists can only be read with a token."))
    try:
        identity = identify_sender(request)
        if identity == ANONYMOUS:
            raise Unauthorized("Unauthorized")
        request.user = AnonymousUser()  # of a session, if the request has one, nothing counts
        request.manciple_person = person_of_identity(identity)  # type: ignore[attr-defined]  # for `person_of`
        with limited_queries():
            return view()
    except ApiError as refusal:
        return error_answer(refusal)
    except PermissionDenied as refusal:
        return error_answer(Forbidden(str(refusal)))


authorizes = _declared(AUTHORIZES)
administrators_only = _declared(ViewRights(administers=True))
signed_in = _declared(SIGNED_IN)
with_account = _declared(ViewRights(accounts=True))
public = _declared(PUBLIC)


def demand_copied(what: str) -> None:
    """Of what no mirror has. Raises: PermissionDenied."""
    if settings.MIRROR:
        raise PermissionDenied(f"This is a mirror of {settings.MIRROR_OF}: its {what} are not copied.")


def check(rights: ViewRights, person: Person) -> None:
    """Raises: PermissionDenied."""
    if rights.administers:
        demand_copied("people and roles")
    if rights.accounts and person.identity.remote:
        raise PermissionDenied(f"Your account is {settings.MIRROR_OF}'s: its mirror keeps none, and notifies nobody.")
    if rights.administers and not person.administers:
        raise PermissionDenied("Only administrators may open this page: ask one.")
    hidden = [resource for resource in rights.lists if not person.may("list", resource)]
    if person.identity.remote and (hidden or not person.namespaces) and (why := cluster_users.silence()):
        raise PermissionDenied(f"What you may see cannot be asked now: {why}")
    if hidden:
        names = " and ".join(resource.partition(".")[0] for resource in hidden)
        raise PermissionDenied(f"You may not list {names}. Ask an administrator for a role.")
    if rights.namespaced and person.namespaces is not None and not (person.namespaces or person.lack):
        if person.identity.remote:
            raise PermissionDenied(
                f"In no namespace of {settings.MIRROR_OF} may you list pods, claims, claim templates and events. Ask "
                "for a role such as view."
            )
        raise PermissionDenied("You see no namespace yet. Ask an administrator for a group or a role.")


class DeclaredRightsOnly:
    """A middleware: views without declared rights are refused, wherever their URLs come from."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_view(self, _request: HttpRequest, view: View, _arguments: Any, _parameters: Any) -> None:
        """Raises: PermissionDenied."""
        if rights_of(view) is None:
            raise PermissionDenied("This page declares no rights, so nobody may open it.")


# Limits of work -------------------------------------------------------------------------------------------------------


GetResponse = Callable[[HttpRequest], HttpResponse]
#: Seconds after which it is worth trying again: what was judged by then is kept.
RETRY_AFTER = 2
_SAFE = ("GET", "HEAD")
#: Steps of SQLite's machine between two looks at the limit: about a millisecond.
_STEPS = 100_000
#: What databases say of a statement that was stopped because of its time: SQLite, PostgreSQL.
_STOPPED = ("interrupted", "canceling statement due to statement timeout")


@contextmanager
def limited_queries() -> Iterator[None]:
    """Within, a statement of this thread ends when the page has taken twice its time: a page that shows a part of its
    answer still has to read the rest of what it shows.

    SQLite works in this thread and is asked to stop. PostgreSQL works elsewhere, so there a clock runs.
    """
    connection.ensure_connection()
    raw: Any = connection.connection
    deadline = Deadline.after_work(2 * settings.PAGE_WORK_SECONDS)

    def is_over() -> bool:
        try:
            check_time()
        except TooManyRequests:
            return True
        except TimeLimitExceeded:
            return deadline.has_passed
        return False

    if connection.vendor == "sqlite":
        raw.set_progress_handler(is_over, _STEPS)
        try:
            yield
        finally:
            raw.set_progress_handler(None, 0)
        return
    raw.execute(f"SET statement_timeout = {round(2000 * settings.PAGE_WORK_SECONDS)}")
    try:
        yield
    finally:
        with suppress(Exception):  # a connection that broke is replaced
            raw.execute("RESET statement_timeout")


class CostlyPages:
    """A middleware behind the one that finds out who is signed in."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        work: RequestWork | None = request.META.get(WORK)
        known = request.user.is_authenticated
        if work is not None and known:
            work.sender = Identity(request.user.get_username())
        # Without a lane of ours (Django's own server, tests) the limit is set here.
        limit = None if work is not None else time_limit(Deadline.after_work(settings.PAGE_WORK_SECONDS))
        reading = limited_queries() if known and request.method in _SAFE else nullcontext()
        with limit or nullcontext(), reading:
            return self._get_response(request)

    def process_exception(self, _request: HttpRequest, error: Exception) -> HttpResponse | None:
        return answer_to(error)


def answer_to(error: BaseException) -> HttpResponse | None:
    """The page that stands in place of one that took too long, or may not begin; None for any other error."""
    stopped = isinstance(error, OperationalError) and any(text in str(error) for text in _STOPPED)
    if stopped or isinstance(error, TimeLimitExceeded):
        return _page(busy=False, status=503, retry_after=RETRY_AFTER)
    if isinstance(error, TooManyRequests):
        seconds = int((error.details or {}).get("retryAfterSeconds", RETRY_AFTER))
        return _page(busy=True, status=error.code, retry_after=seconds)
    return None


def begin_costly(request: HttpRequest, *, seconds: float) -> None:
    """What follows takes long, up to so many seconds of processor time. Raises: TooManyRequests."""
    work: RequestWork | None = request.META.get(WORK)
    if work is not None:
        work.become_costly(seconds)


def _page(*, busy: bool, status: int, retry_after: int) -> HttpResponse:
    # Without a context of its own: that would ask the database.
    answer = HttpResponse(render_to_string("kit/costly.html", {"busy": busy}), status=status)
    answer.headers["Retry-After"] = str(retry_after)
    answer.headers["Cache-Control"] = "no-store"
    return answer


# Outages --------------------------------------------------------------------------------------------------------------


class Outages:
    """A middleware (see Django's "process_exception")."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if isinstance(error, NotEnoughKnown):  # in a mirror, which may not read all of its cluster
            return defaults.permission_denied(request, error)
        outage = faults.unavailable(error)
        if outage is None:
            return None
        faults.note(error)
        return _outage_page(outage)


def handle_uncaught(request: HttpRequest) -> HttpResponse:
    """Django's `handler500`: called while the error is being handled."""
    error = sys.exc_info()[1]
    if error is not None and (costly := answer_to(error)) is not None:
        return costly
    outage = faults.unavailable(error) if error is not None else None
    if error is None or outage is None:
        return defaults.server_error(request)
    faults.note(error)
    return _outage_page(outage)


def _outage_page(outage: ApiError) -> HttpResponse:
    full = outage.code == InsufficientStorage.code
    answer = HttpResponse(render_to_string("507.html" if full else "503.html"), status=outage.code)
    if not full:
        answer.headers["Retry-After"] = str(faults.RETRY_AFTER)
    answer.headers["Cache-Control"] = "no-store"
    return answer


# Answers --------------------------------------------------------------------------------------------------------------


class Compression(GZipMiddleware):
    """All but files that are written as they are read: Django would pack each piece of those by itself, and browsers
    unpack the first one alone."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if response.streaming and getattr(response, "is_async", False):
            return response
        return super().process_response(request, response)


def no_store(get_response: GetResponse) -> GetResponse:
    """A middleware. An answer that says how long it may be kept is left as it is; static files come before it."""

    def answer(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    return answer
