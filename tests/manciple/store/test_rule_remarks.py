"""What rules have to say besides yes or no reaches whoever answers the request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from manciple.store import hooks, objects, records
from manciple.store.hooks import Write
from manciple.store.objects import Writer
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import LEASES, Api, lease
from tests.manciple.store.kinds import NOTES, note

__all__ = ["api"]


def _warn(_writer: Writer, write: Write) -> None:
    records.warn(f'"{write.new.metadata.name}" is old-fashioned')
    records.warn(f'"{write.new.metadata.name}" is old-fashioned')
    records.annotate("example.com/seen", write.new.metadata.name)


@pytest.fixture
def _warning() -> Iterator[None]:
    hooks.register_rule(_warn, operations={"CREATE"}, resources={NOTES.resource, "leases.coordination.k8s.io"})
    yield
    hooks.unregister_rule(_warn)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_warning")
def test_a_write_that_shares_its_transaction_tells_its_own_request() -> None:
    with records.collecting() as told:
        objects.write(lambda writer: writer.create(NOTES, note("a")))
    with records.collecting() as other:
        objects.write(lambda writer: writer.create(NOTES, note("b")))
    assert (told.warnings, told.annotations) == (('"a" is old-fashioned',), {"example.com/seen": "a"})
    assert (other.warnings, other.annotations) == (('"b" is old-fashioned',), {"example.com/seen": "b"})


@pytest.mark.usefixtures("_warning")
def test_a_client_gets_warnings_in_a_header_whatever_becomes_of_its_request(api: Api) -> None:
    warned = '299 - "\\"l\\" is old-fashioned"'
    assert api.post(LEASES, lease()).header("Warning") == warned
    assert api.post(LEASES, lease()).header("Warning") == warned
    assert api.post(f"{LEASES}?dryRun=All", lease("m")).header("Warning") == warned.replace("l\\", "m\\")


@pytest.mark.usefixtures("_warning")
def test_it_stands_beside_what_the_reader_of_the_document_warns_of(api: Api) -> None:
    assert api.post(LEASES, {**lease(), "strange": 1}).header("Warning") == (
        '299 - "unknown field \\"strange\\"", 299 - "\\"l\\" is old-fashioned"'
    )


def test_what_nobody_collects_is_lost() -> None:
    records.warn("unheard")
    records.annotate("key", "unheard")
    with records.collecting() as told:
        assert (told.warnings, told.annotations) == ((), {})
