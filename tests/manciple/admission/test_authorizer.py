"""What `authorizer` says in expressions, compared with what it said in a Kubernetes 1.36."""

from __future__ import annotations

import json
import re
from typing import Any

from manciple.access.authentication import tokens
from tests import conformance
from tests.manciple.admission.documents import BINDINGS, POLICIES, binding, config_map, policy
from tests.manciple.api.requests import Api


def test_the_authorizer_of_expressions_says_what_the_reference_said(api: Api) -> None:
    recorded: dict[str, Any] = json.loads(conformance.read("admission_authorizer.json"))
    for step in recorded["setup"]:
        api.made(step["path"], step["body"])
    checks = [
        {"expression": expression, "message": f"false: {number}"}
        for number, (expression, _) in enumerate(recorded["answers"])
    ]
    api.made(POLICIES, policy("p", validations=checks))
    api.made(BINDINGS, binding("p", "Warn"))
    somebody = Api(tokens.issue(recorded["as"], []))
    answer = somebody.post(f"/api/v1/namespaces/{recorded['namespace']}/configmaps", config_map())
    assert answer.code == 201, answer.text
    found_false = set(map(int, re.findall(r"false: (\d+)", answer.header("Warning"))))
    found = [[expression, n not in found_false] for n, (expression, _) in enumerate(recorded["answers"])]
    assert found == recorded["answers"]
