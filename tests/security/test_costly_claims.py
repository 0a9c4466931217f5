"""Claims whose selectors are cheap one by one and costly together: bounded before anything is compiled, and in time.

`make test-all` sends the claim at the schema's limits to a real server, beside another tenant's requests.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from claims.kinds import resource_claims
from inventory.kinds import device_rules
from inventory.kinds.device_rules import (
    DISTINCT_EXPRESSIONS_MAX,
    EXPRESSION_BYTES_MAX,
    EXPRESSION_MAX,
    SELECTORS_MAX,
    TOO_COMPLEX,
    TOTAL_COST_MAX,
)
from manciple.access.authentication import tokens
from manciple.api.flow_control import CostlyRequests, RequestWork, WorkLimits
from manciple.wire.limits import time_limit
from scheduling.cel import selector as selectors_of_cel
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import CLAIMS, CLASSES, Api
from tests.manciple.api.server import ApiServer, api_server, server_certificates

__all__ = ["api", "api_server", "server_certificates"]

TEMPLATES = CLAIMS.replace("resourceclaims", "resourceclaimtemplates")
COST_OF_ONE = 900_000
#: Compiles in a few milliseconds.
NEAR_THE_LIMIT = "[{0}].all(x, [{0}].all(y, [{0}].all(z, x + y + z >= {1})))"


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    """The expressions that were compiled, each at a cost of COST_OF_ONE where it says so, else at 1."""
    seen: list[str] = []

    def check(expression: str) -> tuple[str, int]:
        seen.append(expression)
        return "", COST_OF_ONE if "costly" in expression else 1

    before = device_rules.set_checker(check)
    yield seen
    device_rules.set_checker(before)


def listed(expressions: list[str]) -> list[dict[str, Any]]:
    return [{"cel": {"expression": one}} for one in expressions]


def claim(*, requests: int, alternatives: int, expressions: list[list[str]]) -> dict[str, Any]:
    """expressions: of each alternative, in their order."""
    given = iter(expressions)

    def alternative(number: int) -> dict[str, Any]:
        return {"name": f"a{number}", "deviceClassName": "c", "selectors": listed(next(given))}

    made = [
        {"name": f"r{number}", "firstAvailable": [alternative(one) for one in range(alternatives)]}
        for number in range(requests)
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "large"},
        "spec": {"devices": {"requests": made}},
    }


def largest(each: int = 32, *, padding: str = "") -> dict[str, Any]:
    """As many requests and alternatives as the schema allows, with so many different selectors each."""
    expressions = [[f"device.driver != 'd{one}-{i}{padding}'" for i in range(each)] for one in range(256)]
    return claim(requests=32, alternatives=8, expressions=expressions)


def in_template(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "kind": "ResourceClaimTemplate", "spec": {"spec": document["spec"]}}


@pytest.mark.parametrize("dry_run", ["", "?dryRun=All"])
def test_too_many_different_selectors_are_refused_before_one_is_compiled(
    api: Api, compiled: list[str], dry_run: str
) -> None:
    began = time.process_time()
    answer = api.post(CLAIMS + dry_run, largest())
    assert time.process_time() - began < 4.0
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert ("FieldValueTooMany", "spec.devices.requests") in answer.causes
    assert compiled == []


def test_so_are_too_many_bytes_of_them(api: Api, compiled: list[str]) -> None:
    answer = api.post(TEMPLATES, in_template(largest(4, padding="x" * 300)))
    assert (answer.code, answer.reason) == (422, "Invalid")
    told = f"all different selector expressions together may not be more than {EXPRESSION_BYTES_MAX} bytes"
    assert f"spec.spec.devices.requests: Too long: {told}" in answer.message
    assert compiled == []


def test_compiling_stops_where_the_estimated_cost_of_all_passes_the_limit(api: Api, compiled: list[str]) -> None:
    expressions = [[f"'costly' != 'a{one}-{i}'" for i in range(32)] for one in range(8)]
    answer = api.post(CLAIMS, claim(requests=1, alternatives=8, expressions=expressions))
    assert (answer.code, answer.reason) == (422, "Invalid")
    most = TOTAL_COST_MAX // COST_OF_ONE + 1
    assert len(compiled) == most
    [cause] = answer.json["details"]["causes"]
    at = f"spec.devices.requests[0].firstAvailable[{(most - 1) // 32}].selectors[{(most - 1) % 32}].cel.expression"
    assert (cause["field"], cause["reason"]) == (at, "FieldValueForbidden")
    assert TOO_COMPLEX in cause["message"]


def test_a_claim_may_have_128_selectors_at_the_limit_of_one(api: Api, compiled: list[str]) -> None:
    expressions = [[f"'costly' != 'a{one}-{i}'" for i in range(32)] for one in range(4)]
    assert api.post(CLAIMS, claim(requests=1, alternatives=4, expressions=expressions)).code == 201
    assert len(compiled) == 128


def test_equal_expressions_count_once(api: Api, compiled: list[str]) -> None:
    expressions = [[f"'costly' != 'a{i}'" for i in range(32)]] * 256
    assert api.post(CLAIMS, claim(requests=32, alternatives=8, expressions=expressions)).code == 201


def test_what_one_list_of_selectors_may_hold_is_never_too_much(api: Api, compiled: list[str]) -> None:
    """A class, or a request, with the 32 selectors of the schema, each as long and as costly as one may be."""
    texts = [f"'costly' != '{i:02}{'x' * (EXPRESSION_MAX - 16)}'" for i in range(SELECTORS_MAX)]
    assert max(map(len, texts)) <= EXPRESSION_MAX
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "full"},
        "spec": {"selectors": listed(texts)},
    }
    assert api.post(CLASSES, document).code == 201
    assert DISTINCT_EXPRESSIONS_MAX >= SELECTORS_MAX * resource_claims.REQUESTS_MAX


def test_four_different_selectors_for_every_alternative_that_the_schema_allows_are_taken(
    api: Api, compiled: list[str]
) -> None:
    assert api.post(CLAIMS, largest(4)).code == 201


def test_selectors_that_did_not_change_are_not_compiled_again(api: Api, compiled: list[str]) -> None:
    made = api.made(TEMPLATES, in_template(largest(1)))
    compiled.clear()
    made["metadata"]["labels"] = {"a": "b"}
    assert api.put(f"{TEMPLATES}/large", made).code == 200
    assert compiled == []


def test_compiling_ends_with_the_time_of_the_request_and_goes_on_from_there(
    api: Api,
) -> None:
    selectors_of_cel._compiled.cache_clear()
    numbers = ",".join(map(str, range(9)))
    expressions = [[NEAR_THE_LIMIT.format(numbers, 100 * one - i) for i in range(8)] for one in range(8)]
    document = claim(requests=1, alternatives=8, expressions=expressions)
    codes = []
    for _ in range(20):
        work = RequestWork(WorkLimits(0.02, 0.1), lambda: "mallory", costly=CostlyRequests())
        work.begin()
        with time_limit(work):
            answer = api.post(f"{CLAIMS}?dryRun=All", document)
        work.end()
        codes.append(answer.code)
        assert work.spent < 1.0
        if answer.code != 504:
            break
        assert answer.reason == "Timeout"
        assert "nothing was changed" in answer.message
    assert codes[0] == 504
    assert codes[-1] == 201


@pytest.mark.long
def test_other_tenants_are_answered_while_one_sends_the_largest_claims(api_server: ApiServer) -> None:
    attacker = api_server.client(token=tokens.issue("mallory", ["system:masters"]))
    other = api_server.client(token=tokens.issue("bob", ["system:masters"]))
    documents = [largest(4, padding=f"{number}{'x' * 40}") for number in range(8)]
    waits: list[float] = []
    began = time.process_time()
    with ThreadPoolExecutor(8) as pool:
        attacks = [pool.submit(attacker.post, f"{CLAIMS}?dryRun=All", json=one) for one in documents]
        while not all(one.done() for one in attacks):
            sent = time.monotonic()
            assert other.get(CLAIMS).status_code == 200
            waits.append(time.monotonic() - sent)
            time.sleep(0.02)
    assert time.process_time() - began < 20
    assert {one.result().status_code for one in attacks} <= {201, 429, 504}
    assert sorted(waits)[int(len(waits) * 0.95)] < 0.5
