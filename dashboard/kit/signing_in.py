"""Signing in: by name and password, by a link, by an OpenID Connect provider, or by a proxy's headers; users of a
mirrored cluster by a token of theirs, or by the provider (`manciple.access.cluster_users`).

Each begins a session with a new key, so that one which somebody else had put into the browser is worth nothing. With a
provider, OAuth's code flow with PKCE is used: the browser is sent there with a state, a nonce and a challenge, which
its session keeps, and comes back with a code that this process exchanges for an ID token. A state is good once, for ten
minutes, and for the browser that it was given to.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth import get_user_model, login, logout, views
from django.contrib.auth.forms import AuthenticationForm, SetPasswordForm
from django.contrib.auth.models import AnonymousUser
from django.contrib.auth.signals import user_login_failed
from django.core.exceptions import MiddlewareNotUsed
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import reverse, reverse_lazy
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_safe

from dashboard.kit.guards import public
from dashboard.kit.rendering import TemplateContext, render_page
from manciple.access import cluster_users, page_sessions, people, sign_ins
from manciple.access.authentication import external
from manciple.access.authentication.chain import CERTIFICATE, PEER, Credentials
from manciple.access.authentication.external import (
    OidcProvider,
    PersonRefused,
    ProviderAway,
    TokenRefused,
    person_of_provider,
    person_of_proxy,
    vouched_for,
)
from manciple.access.cluster_users import ClusterSilent, SessionOver
from manciple.access.invitations import LINK_TOKENS
from manciple.access.models import SignInAttempts
from manciple.access.page_sessions import BY_PROXY
from manciple.access.people import BROWSER_COOKIE, locked_for
from manciple.people import Person, person_of
from manciple.wire.errors import Unauthorized
from manciple.wire.identity import Identity
from manciple.wire.resources import CLASSES, NODES, SLICES

if TYPE_CHECKING:
    import httpx

UNPROCESSABLE, TOO_MANY, GONE = 422, 429, 410


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedContext(TemplateContext):
    """complaint: why nobody was signed in; oidc_name: of the provider to try again with."""

    complaint: str
    oidc_name: str


class SignInPage(views.LoginView):
    """Name and password."""

    redirect_authenticated_user = True

    def dispatch(self, request: HttpRequest, *arguments: Any, **parameters: Any) -> Any:
        if settings.CLUSTER_USERS:
            return show_token_form(request)
        return super().dispatch(request, *arguments, **parameters)

    def get_context_data(self, **known: Any) -> dict[str, Any]:
        oidc_name = settings.OIDC_NAME if settings.OIDC_ISSUER else ""
        return super().get_context_data(oidc_name=oidc_name, is_mirror=settings.MIRROR, **known)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        answer = super().form_valid(form)
        remember(answer, form.get_user())
        return answer

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        seconds = locked_for(self.request)
        context = self.get_context_data(form=form, locked_minutes=-(-seconds // 60))
        answer = self.render_to_response(context, status=TOO_MANY if seconds else UNPROCESSABLE)
        if seconds:
            answer.headers["Retry-After"] = str(seconds)
        return answer


class SetPasswordPage(views.PasswordResetConfirmView):
    """Where a link of `manciple.access.invitations` leads: whoever sets the password is signed in with it.

    The link's token is kept in the session and taken out of the address, so that no address with it is left behind.
    """

    template_name = "registration/welcome.html"
    token_generator = LINK_TOKENS
    reset_url_token = "set"  # noqa: S105 - stands in the address in place of the token
    post_reset_login = True
    success_url = reverse_lazy("home")

    def dispatch(self, *arguments: Any, **parameters: Any) -> Any:
        """Raises: Http404 where no password lets anybody in."""
        if settings.CLUSTER_USERS:
            raise Http404
        return super().dispatch(*arguments, **parameters)

    def form_valid(self, form: SetPasswordForm[Any]) -> HttpResponse:
        answer = super().form_valid(form)
        person = form.user
        SignInAttempts.objects.filter(key=people.name_key(person.get_username())).delete()
        sign_ins.end_others(person, but=self.request.session.session_key)
        remember(answer, person)
        return answer

    def form_invalid(self, form: SetPasswordForm[Any]) -> HttpResponse:
        return self.render_to_response(self.get_context_data(form=form), status=UNPROCESSABLE)

    def render_to_response(self, context: dict[str, Any], **response: Any) -> HttpResponse:
        if not self.validlink:
            response["status"] = GONE
        return super().render_to_response(context, **response)


def remember(answer: HttpResponse, person: Any) -> None:
    """Let the browser be known as one from which `person` signed in (see `manciple.access.people`)."""
    answer.set_cookie(
        BROWSER_COOKIE,
        people.remember_browser(person.get_username()),
        max_age=people.KNOWN_FOR,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )


@public
@require_safe
def enter(request: HttpRequest) -> HttpResponse:
    """The link that `manciple mirror` prints: signs its owner in, in place of a password."""
    key: str = settings.MIRROR_KEY
    if not settings.MIRROR or not key or settings.CLUSTER_USERS:
        raise Http404
    if not secrets.compare_digest(request.GET.get("key", "").encode(), key.encode()):
        return _refused(request, "The link is of an earlier start. Open the one that `manciple mirror` printed last.")
    person = get_user_model()._default_manager.get(username=settings.MIRROR_OWNER)
    login(request, person, backend=BACKEND)
    return redirect("home")


BACKEND = "manciple.access.people.CountedPasswords"
#: Where the session keeps the sign-ins that were begun: state -> what belongs to it.
BEGUN = "oidc"
#: Seconds that a person has to sign in at the provider, and how many sign-ins one browser may have begun.
PATIENCE, MOST = 600.0, 5
#: Of the page to which a person goes on after signing in.
LONGEST_PATH = 2000
FORBIDDEN, AWAY = 403, 503


class SignInRefused(Exception):
    """Its text is for the person who tried. status: of the answer."""

    def __init__(self, text: str, *, status: int = FORBIDDEN) -> None:
        super().__init__(text)
        self.status = status


def told_to_the_person(view: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """The view, whose refusals become a page."""

    @wraps(view)
    def answer(request: HttpRequest) -> HttpResponse:
        import httpx  # noqa: PLC0415 - takes 8 MiB; few processes need it

        try:
            return view(request)
        except SignInRefused as error:
            return _refused(request, str(error), status=error.status)
        except PersonRefused as error:
            return _refused(request, str(error))
        except (TokenRefused, cluster_users.TokenRefused) as error:
            return _refused(request, f"The answer of the identity provider cannot be used: {error}.")
        except (ProviderAway, httpx.HTTPError) as error:
            return _refused(request, f"The identity provider does not answer. Try again later. ({error})", status=AWAY)

    return answer


@public
@never_cache
@require_safe
@told_to_the_person
def begin(request: HttpRequest) -> HttpResponse:
    """Sends the browser to the provider."""
    from authlib.oauth2.rfc6749.parameters import prepare_grant_uri  # noqa: PLC0415 - only with a provider
    from authlib.oauth2.rfc7636 import create_s256_code_challenge  # noqa: PLC0415 - as above

    provider = _provider()
    address, _ = provider.endpoints()
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    begun = list(request.session.get(BEGUN, {}).items())[-(MOST - 1) :]
    if not request.user.is_authenticated:
        request.session.set_expiry(int(PATIENCE))  # anybody may begin; what is not finished is forgotten soon
    kept = {"nonce": nonce, "verifier": verifier, "next": request.GET.get("next", "")[:LONGEST_PATH], "at": time.time()}
    request.session[BEGUN] = {**dict(begun), state: kept}
    target: str = prepare_grant_uri(
        address,
        provider.options.client_id,
        "code",
        redirect_uri=_return_address(request),
        scope=["openid", *settings.OIDC_SCOPES],
        state=state,
        nonce=nonce,
        code_challenge=create_s256_code_challenge(verifier),
        code_challenge_method="S256",
    )
    return HttpResponseRedirect(target)


@public
@never_cache
@require_safe
@told_to_the_person
def finish(request: HttpRequest) -> HttpResponse:
    """Where the provider sends the browser back to."""
    provider = _provider()
    kept = _taken(request)
    if request.GET.get("iss", provider.options.issuer) != provider.options.issuer:
        raise SignInRefused("Another identity provider answered. Sign in again.")
    if error := request.GET.get("error"):
        told = request.GET.get("error_description") or error
        raise SignInRefused(f"The identity provider refused the sign-in: {told[:200]}")
    found = external.check(provider, _exchanged(request, provider, kept["verifier"]), nonce=kept["nonce"])
    if settings.CLUSTER_USERS:
        identity = cluster_users.sign_in_by_provider(request, found.identity, expires=found.expires)
        return redirect(_safe(request, kept["next"], otherwise=_entrance(identity)))
    person = person_of_provider(provider.options.issuer, found.subject, found.identity)
    login(request, person, backend=BACKEND)
    answer = redirect(_safe(request, kept["next"]))
    remember(answer, person)
    return answer


def _taken(request: HttpRequest) -> dict[str, Any]:
    """What was kept for the sign-in that this request ends; it is good once. Raises: SignInRefused."""
    begun: dict[str, Any] = request.session.get(BEGUN, {})
    kept: dict[str, Any] | None = begun.pop(request.GET.get("state", ""), None)
    request.session[BEGUN] = begun
    if kept is None or time.time() - kept["at"] > PATIENCE:
        raise SignInRefused("This sign-in has expired. Sign in again.")
    return kept


def _provider() -> OidcProvider:
    """Raises: Http404 where none is set."""
    found = external.provider()
    if found is None:
        raise Http404("No identity provider is configured.")
    return found


def _return_address(request: HttpRequest) -> str:
    if settings.CLUSTER_USERS and settings.PAGES_URL.startswith("https:"):  # behind an ingress
        return str(settings.PAGES_URL).rstrip("/") + reverse("oidc-return")
    return request.build_absolute_uri(reverse("oidc-return"))


def _exchanged(request: HttpRequest, provider: OidcProvider, verifier: str) -> str:
    """The ID token for the code of this request. Raises: ProviderAway, httpx.HTTPError, TokenRefused."""
    import httpx  # noqa: PLC0415 - takes 8 MiB; few processes need it
    from authlib.oauth2.rfc6749.parameters import prepare_token_request  # noqa: PLC0415 - only with a provider

    _, address = provider.endpoints()
    body = prepare_token_request(
        "authorization_code",
        redirect_uri=_return_address(request),
        code=request.GET.get("code", ""),
        code_verifier=verifier,
        client_id=provider.options.client_id,
    )
    secret: str = settings.OIDC_CLIENT_SECRET
    auth: httpx.Auth = httpx.BasicAuth(provider.options.client_id, secret) if secret else httpx.Auth()
    with provider.client() as client:
        answer = client.post(
            address,
            content=body,
            auth=auth,
            headers={"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"},
        )
    try:
        document = answer.json()
        if answer.is_success:
            return str(document["id_token"])
        told = str(document.get("error_description") or document.get("error"))
    except (ValueError, KeyError, AttributeError):
        told = f"it answered {answer.status_code}"
    raise TokenRefused(f"the code was not exchanged: {told[:200]}")


def _safe(request: HttpRequest, target: str, *, otherwise: str = "") -> str:
    """`target`, if it is a page of ours."""
    hosts = {request.get_host()}
    if url_has_allowed_host_and_scheme(target, allowed_hosts=hosts, require_https=request.is_secure()):
        return target
    return otherwise or str(settings.LOGIN_REDIRECT_URL)


def _refused(request: HttpRequest, complaint: str, *, status: int = FORBIDDEN) -> HttpResponse:
    context = RefusedContext(complaint=complaint, oidc_name=settings.OIDC_NAME)
    return render_page(request, "registration/refused.html", context, status=status)


# Users of a mirrored cluster ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenContext(TemplateContext):
    """complaint: why the last token did not do; oidc_name: of the provider, "" without one."""

    cluster: str
    next: str
    complaint: str
    oidc_name: str


@sensitive_post_parameters()
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def show_token_form(request: HttpRequest) -> HttpResponse:
    """Where they paste a token, or go to the provider."""
    target = request.POST.get("next", request.GET.get("next", ""))
    complaint, status = "", 200
    if request.method == "POST":
        try:
            identity = cluster_users.sign_in_by_token(request, request.POST.get("token", "").strip())
            return redirect(_safe(request, target, otherwise=_entrance(identity)))
        except cluster_users.TokenRefused as error:
            user_login_failed.send(sender=__name__, credentials={}, request=request)
            complaint, status = f"Not signed in: {error}.", UNPROCESSABLE
        except cluster_users.ClusterSilent as error:
            complaint, status = f"Not signed in: {error}.", AWAY
    elif request.user.is_authenticated:
        return redirect(_safe(request, target, otherwise=_entrance(person_of(request).identity)))
    oidc_name = settings.OIDC_NAME if settings.OIDC_ISSUER else ""
    context = TokenContext(cluster=settings.MIRROR_OF, next=target, complaint=complaint, oidc_name=oidc_name)
    return render_page(request, "registration/token.html", context, status=status)


GetResponse = Callable[[HttpRequest], HttpResponse]


def _entrance(identity: Identity) -> str:
    """Where they go first: who may read one namespace may see no device."""
    person = Person(identity)
    sees_devices = all(person.may("list", one) for one in (NODES, SLICES, CLASSES))
    return str(settings.LOGIN_REDIRECT_URL) if sees_devices else reverse("pods")


def confirm_with_cluster(get_response: GetResponse) -> GetResponse:
    """Middleware that ends sessions whose token the mirrored cluster does not accept any more.

    Raises: MiddlewareNotUsed where nothing is a mirror.
    """
    if not settings.MIRROR:
        raise MiddlewareNotUsed

    def answer(request: HttpRequest) -> HttpResponse:
        if not settings.CLUSTER_USERS or not request.user.is_authenticated:
            return get_response(request)
        try:
            identity = page_sessions.identity_in(request.session, request.user)
        except SessionOver:
            logout(request)
        except ClusterSilent as silent:
            request.user = AnonymousUser()  # the session stays for when the cluster answers
            if request.path != reverse("logout"):
                return _refused(request, f"Whether your token still counts cannot be asked now: {silent}.", status=AWAY)
        else:
            request.manciple_identity = identity  # type: ignore[attr-defined]  # for `person_of`
        return get_response(request)

    return answer


# Behind a proxy -------------------------------------------------------------------------------------------------------


def sign_in_by_proxy(get_response: GetResponse) -> GetResponse:
    """Middleware that signs in the person named by the proxy.

    Raises: MiddlewareNotUsed if the settings name no proxy header.
    """
    if not settings.PROXY_USER_HEADER:
        raise MiddlewareNotUsed

    def answer(request: HttpRequest) -> HttpResponse:
        shown = Credentials(
            headers=request.headers,
            certificate=request.META.get(CERTIFICATE),
            address=request.META.get("REMOTE_ADDR", ""),
            peer=request.META.get(PEER, ""),
        )
        try:
            identity = vouched_for(shown)
            if identity is not None and not _is_signed_in(request, identity):
                login(request, person_of_proxy(identity), backend=BACKEND)
                request.session[BY_PROXY] = list(identity.groups)
        except Unauthorized:
            return _refused(request, "The header that names a person did not come from the proxy.")
        except PersonRefused as error:
            return _refused(request, str(error))
        if identity is None and request.session.get(BY_PROXY):
            logout(request)
        return get_response(request)

    return answer


def _is_signed_in(request: HttpRequest, identity: Identity) -> bool:
    """Whether the session is theirs, and nothing about them has changed."""
    return identity.name == request.user.get_username() and request.session.get(BY_PROXY) == list(identity.groups)
