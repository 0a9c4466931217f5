"""The pages of errors say what happened and what to do next."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User
from django.template.loader import render_to_string
from django.test import Client

from manciple.api.faults import OutagesInBrief
from manciple.wire.identity import VIEWERS
from tests.dashboard import texts


@pytest.fixture
def visitor(db: None) -> Client:
    """Signed in, and no administrator."""
    client = Client()
    person = User.objects.create_user("vic")
    person.groups.add(Group.objects.create(name=VIEWERS))
    client.force_login(person)
    return client


def test_what_is_not_there_can_be_looked_for(visitor: Client) -> None:
    answer = visitor.get("/pods/lab/no-such-pod")
    shown = answer.content.decode()
    assert answer.status_code == 404
    assert texts.NO_SUCH_POD in shown
    assert 'action="/find"' in shown
    assert 'aria-label="Main"' in shown, "the navigation stays"


def test_what_is_not_allowed_says_who_may(visitor: Client) -> None:
    User.objects.create_user("zoe", is_staff=True)
    User.objects.create_user("gone", is_staff=True, is_active=False)
    told = "You may not change device classes. "
    for answer, unchanged in (
        (visitor.get("/classes/new"), ""),
        (visitor.post("/classes/new"), "Nothing was changed. "),
    ):
        assert answer.status_code == 403
        shown = " ".join(answer.content.decode().split())
        assert told in shown
        assert f"{unchanged}</p> <p>Administrators here: zoe.</p>" in shown
    assert 'aria-label="Main"' in shown, "the navigation stays"


def test_a_form_from_before_signing_in_is_refused_with_what_to_do(visitor: Client) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = visitor.cookies
    strict.get("/account")
    for path, fields in (("/account/password", {"csrfmiddlewaretoken": "x" * 64}), ("/views/save", {})):
        answer = strict.post(path, fields)
        shown = " ".join(answer.content.decode().split())
        assert answer.status_code == 403
        assert texts.FORM_FROM_BEFORE_SIGNING_IN in shown
        assert "CSRF" not in shown


def test_an_error_of_the_server_promises_nothing() -> None:
    shown = " ".join(render_to_string("500.html").split())
    assert texts.CHECK_WHETHER_IT_WAS_SAVED in shown
    assert "Nothing was changed" not in shown


@pytest.mark.parametrize(
    ("form", "page"),
    [
        ("/namespaces/lab/change", "/namespaces/lab"),
        ("/namespaces/lab/delete", "/namespaces/lab"),
        ("/nodes/gpu-a01/change", "/nodes/gpu-a01"),
        ("/classes/c/gpu/yaml", "/classes/c/gpu"),
    ],
)
def test_where_a_form_is_sent_to_leads_back_to_its_page(visitor: Client, form: str, page: str) -> None:
    """Who had to sign in again comes there by GET."""
    answer = visitor.get(form)
    assert (answer.status_code, answer.headers["Location"]) == (302, page)


def test_an_address_with_too_many_fields_is_refused_in_one_line_of_the_log(
    visitor: Client, caplog: pytest.LogCaptureFixture
) -> None:
    fields = "&".join(["cols="] * 2000)
    for answer in (visitor.get(f"/pods?{fields}"), visitor.get(f"/login?{fields}"), visitor.post(f"/login?{fields}")):
        assert answer.status_code in (200, 302, 400)
    assert visitor.get(f"/pods?{fields}").status_code == 400
    assert caplog.records
    for record in caplog.records:
        OutagesInBrief().filter(record)
        assert record.exc_info is None
        assert "TooManyFieldsSent" in record.getMessage() + record.name
        assert "\n" not in record.getMessage()
