"""Requests that once came to a 500, or to a page where a document belongs. `make fuzz` looks for more."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest
from django.contrib.auth.models import User
from django.test import Client

from manciple.live.consumers import _after
from manciple.wire.identity import MASTERS
from manciple.wire.quantity import whole
from manciple.wire.wireformat import Envelope, write_envelope
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import PODS, Api, pod
from tests.security.fuzz.driving import Sender, judged
from tests.security.fuzz.front import Request

__all__ = ["api"]

ENVELOPE = write_envelope(Envelope(api_version="v1", kind="Pod"))
MANY_DIGITS = "1" * 5000
#: The token of a list of revision 2**63.
TOO_LATE = b64encode(b'[9223372036854775808,"","",1]').decode()
#: what is strange -> (address, the answer's code and reason)
STRANGE = {
    "an end of line in a name": (f"{PODS}/a%0Ab", 404, "NotFound"),
    "an end of line in a resource": ("/api/v1/namespaces/default/po%0Ads", 404, "NotFound"),
    "an end of line in a group": ("/apis/a%0Ab/v1/things", 404, "NotFound"),
    "an end of line behind what is served": ("/openapi/v3%0A", 404, "NotFound"),
    "NUL in a name": (f"{PODS}/a%00b", 404, "NotFound"),
    "NUL in a namespace": ("/api/v1/namespaces/a%00b/pods/p", 404, "NotFound"),
    "NUL in a selector of fields": (f"{PODS}?fieldSelector=spec.nodeName%3D%00", 200, None),
    "a revision of thousands of digits": (f"{PODS}/p?resourceVersion={MANY_DIGITS}", 400, "BadRequest"),
    "a revision of more than 64 bits": (f"{PODS}?resourceVersion={1 << 64}", 400, "BadRequest"),
    "a token of a revision of more than 64 bits": (
        f"{PODS}?continue={TOO_LATE}",
        400,
        "BadRequest",
    ),
    "a revision in another script": (f"{PODS}?resourceVersion=%D9%A3", 400, "BadRequest"),
    "a revision that is none, of one object": (f"{PODS}/p?resourceVersion=abc", 400, "BadRequest"),
    "a limit of more than 64 bits": (f"{PODS}?limit={1 << 63}", 400, "BadRequest"),
    "a limit with an underscore": (f"{PODS}?limit=1_0", 400, "BadRequest"),
    "a timeout of thousands of digits": (f"{PODS}?timeoutSeconds={MANY_DIGITS}", 400, "BadRequest"),
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_strange_address_is_answered(api: Api, what: str) -> None:
    api.made(PODS, pod())
    address, code, reason = STRANGE[what]
    answer = api.get(address)
    assert (answer.code, answer.json.get("reason")) == (code, reason)


def test_a_query_that_is_not_encoded_is_read_as_if_it_were(transactional_db: None) -> None:
    # Of a namespace alone: what others leave behind is no question here, and every page would be opened to answer it.
    with judged(Sender("root", (MASTERS,), namespace="default")) as (judge, _):
        judge.send(Request(method="GET", path=PODS, query="x=\xe9&labelSelector=app%3Dweb"))
        assert judge.tally.codes == {200: 1}


PAGES = (
    "what-if?replicas={}&nodes={}",
    "pods/default/p?tab=logs&lines={}",
    "devices?page={}",
    "events?before={}",
    "audit?before={}",
)


@pytest.mark.parametrize("number", [MANY_DIGITS, "\u0663", "²", "\uff11", "-1", "1e3"])
def test_a_strange_number_in_the_address_of_a_page_is_no_number(api: Api, number: str) -> None:
    api.made(PODS, pod())
    client = Client()
    client.force_login(User.objects.create_user("ada", is_staff=True))
    assert whole(number) is None
    assert {client.get(f"/{page.format(number, number)}").status_code for page in PAGES} == {200}


@pytest.mark.parametrize("query", [b"after=%b" % MANY_DIGITS.encode(), b"after=%C2%B2", b"after=\xff", b"\xff=1", b""])
def test_a_socket_that_names_no_revision_hears_of_everything(query: bytes) -> None:
    assert _after(query) == -1


@pytest.mark.parametrize("media", ["application/json", "application/vnd.kubernetes.protobuf"])
def test_what_is_sent_along_to_be_deleted_is_not_taken_for_options(api: Api, media: str) -> None:
    """Whose dry run, asked for in the address, would be none: where a body is, options are read from it alone."""
    api.made(PODS, pod())
    sent = json.dumps(pod()).encode() if media == "application/json" else ENVELOPE
    answer = api.send("delete", f"{PODS}/p?dryRun=All", body=sent, content_type=media)
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert api.get(f"{PODS}/p").code == 200
