"""The policy that charts of drivers install: a driver writes the ResourceSlices of its own node, and no others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from manciple.access.authentication import chain
from manciple.access.authentication.chain import Authenticated
from manciple.wire.identity import MASTERS, Identity
from tests.manciple.admission.documents import BINDINGS, POLICIES, binding, policy, rule
from tests.manciple.api.requests import Api

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
DRIVER = "system:serviceaccount:gpu-driver:kubelet-plugin"
NODE_KEY = "authentication.kubernetes.io/node-name"


def chart() -> list[tuple[str, dict[str, object]]]:
    """As the drivers' charts have it: the same expressions."""
    document = policy(
        "resourceslices-policy-gpu-driver",
        rules=[rule("resourceslices", "CREATE", "UPDATE", "DELETE", group="resource.k8s.io", versions=("*",))],
        failurePolicy="Fail",
        matchConditions=[
            {
                "name": "isRestrictedUser",
                "expression": f'request.userInfo.username == "{DRIVER}"',
            }
        ],
        variables=[
            {
                "name": "userNodeName",
                "expression": f"request.userInfo.extra[?'{NODE_KEY}'][0].orValue('')",
            },
            {
                "name": "objectNodeName",
                "expression": ('(request.operation == "DELETE" ? oldObject : object).spec.?nodeName.orValue("")'),
            },
        ],
        validations=[
            {
                "expression": 'variables.userNodeName != ""',
                "message": "no node association found for user, this user must run in a pod on a node and "
                "ServiceAccountTokenPodNodeInfo must be enabled",
            },
            {
                "expression": "variables.userNodeName == variables.objectNodeName",
                "messageExpression": (
                    '"this user running on node \'"+variables.userNodeName+"\' may not modify " +\n'
                    '(variables.objectNodeName == "" ?"cluster resourceslices" : '
                    '"resourceslices on node \'" + variables.objectNodeName + "\'")'
                ),
            },
        ],
    )
    return [(POLICIES, document), (BINDINGS, binding("resourceslices-policy-gpu-driver"))]


class DriverTokens:
    """Knows a token for every node: that of the driver's pod there, "nowhere" for one that is bound to no pod."""

    def __init__(self, name: str = DRIVER) -> None:
        self._name = name

    def authenticate(self, token: str, audiences: Sequence[str], address: str) -> Authenticated | None:
        kind, _, node = token.partition("/")
        if kind != "driver":
            return None
        extra = {"authentication.kubernetes.io/credential-id": ("JTI=1",)}
        if node != "nowhere":
            extra[NODE_KEY] = (node,)
        # What it may do is not the question here.
        return Authenticated(Identity(self._name, (MASTERS,), extra=tuple(extra.items())))

    def remembered(self, token: str) -> Identity | None:
        return None


def published(name: str, node: str, api_version: str = "resource.k8s.io/v1") -> dict[str, object]:
    where = {"nodeName": node} if node else {"allNodes": True}
    return {
        "apiVersion": api_version,
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": "gpu.example.com",
            "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 1},
            **where,
            "devices": [],
        },
    }


@pytest.fixture
def guarded(api: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setitem(chain._tokens, "drivers", DriverTokens())
    for path, document in chart():
        api.made(path, document)
    return api


def driver_on(node: str) -> Api:
    return Api(f"driver/{node}")


def denied(message: str) -> str:
    name = "resourceslices-policy-gpu-driver"
    return f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: {message}"


def test_a_driver_writes_the_slices_of_its_own_node(guarded: Api) -> None:
    driver = driver_on("node-1")
    driver.made(SLICES, published("a", "node-1"))
    assert driver.patch(f"{SLICES}/a", {"metadata": {"labels": {"x": "y"}}}).code == 200
    assert driver.delete(f"{SLICES}/a").code == 200


REFUSED = {
    "another node's": ("node-2", "may not modify resourceslices on node 'node-2'"),
    "the cluster's": ("", "may not modify cluster resourceslices"),
}


@pytest.mark.parametrize(("owner", "why"), REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("version", ["v1", "v1beta2"])
def test_a_driver_writes_no_slice_of_others(guarded: Api, owner: str, why: str, version: str) -> None:
    theirs = published("b", owner, f"resource.k8s.io/{version}")
    answer = driver_on("node-1").post(f"/apis/resource.k8s.io/{version}/resourceslices", theirs)
    assert (answer.code, answer.reason) == (422, "Invalid")
    message = denied(f"this user running on node 'node-1' {why}")
    assert answer.message == f'resourceslices.resource.k8s.io "b" is forbidden: {message}'
    assert answer.json["details"] == {
        "name": "b",
        "group": "resource.k8s.io",
        "kind": "resourceslices",
        "causes": [{"message": message}],
    }


def test_a_driver_deletes_no_slice_of_others(guarded: Api) -> None:
    guarded.made(SLICES, published("c", "node-2"))
    for path in (f"{SLICES}/c", f"{SLICES}?labelSelector=!x"):
        answer = driver_on("node-1").delete(path)
        assert (answer.code, answer.reason) == (422, "Invalid")
    assert guarded.get(f"{SLICES}/c").code == 200


def test_a_driver_that_is_bound_to_no_node_writes_nothing(guarded: Api) -> None:
    answer = driver_on("nowhere").post(SLICES, published("d", "node-1"))
    assert answer.message.endswith(
        denied(
            "no node association found for user, this user must run in a pod on a node and "
            "ServiceAccountTokenPodNodeInfo must be enabled"
        )
    )


def test_others_are_not_asked(guarded: Api) -> None:
    guarded.made(SLICES, published("e", "node-7"))
