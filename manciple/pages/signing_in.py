"""Signing in, and setting a password by a link that an administrator sent.

Both begin a session with a new key, so that one which somebody else had put into the browser is worth nothing.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth import views
from django.contrib.auth.forms import AuthenticationForm, SetPasswordForm
from django.http import HttpResponse
from django.urls import reverse_lazy

from manciple.access import passwords, sign_ins
from manciple.access.invitations import LINK_TOKENS
from manciple.access.models import SignInAttempts
from manciple.access.passwords import BROWSER_COOKIE, locked_for

UNPROCESSABLE, TOO_MANY, GONE = 422, 429, 410


class SignInPage(views.LoginView):
    """Name and password."""

    redirect_authenticated_user = True

    def get_context_data(self, **known: Any) -> dict[str, Any]:
        return super().get_context_data(oidc_name=settings.OIDC_NAME if settings.OIDC_ISSUER else "", **known)

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

    def form_valid(self, form: SetPasswordForm[Any]) -> HttpResponse:
        answer = super().form_valid(form)
        person = form.user
        SignInAttempts.objects.filter(key=passwords.name_key(person.get_username())).delete()
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
    """Let the browser be known as one from which `person` signed in (see `manciple.access.passwords`)."""
    answer.set_cookie(
        BROWSER_COOKIE,
        passwords.remember_browser(person.get_username()),
        max_age=passwords.KNOWN_FOR,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
