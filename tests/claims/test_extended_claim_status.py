"""Which request of a pod's extended claim is for which container's resource (KEP-5004, "Note the validations")."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds.pod_rules import validate_pod_status_update
from claims.kinds.pods import ContainerExtendedResourceRequest, Pod, PodExtendedResourceClaimStatus
from tests.builders import CLASS, make_container, make_pod
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import JSON_PATCH, MERGE, PODS, STRATEGIC, Api

__all__ = ["api"]

GPU, FPGA, IMPLICIT = "example.com/gpu", "example.com/fpga", f"deviceclass.resource.kubernetes.io/{CLASS}"
AT = "status.extendedResourceClaimStatus"
MAPPING = f"{AT}.requestMappings[0]"
CONTAINER = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
RESOURCE = (
    "must match the extended resource name of an entry in spec.initContainers.resources.requests or "
    "spec.containers.resources.requests"
)
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must"
GOOD = {"container": "main", "resource": GPU, "request": "container-0-request-0"}


def the_pod(**spec: Any) -> Pod:
    main, side, init = (
        make_container(name, requests=dict.fromkeys(resources, "1"))
        for name, resources in (("main", (GPU, IMPLICIT, "cpu")), ("side", (FPGA,)), ("init", (FPGA,)))
    )
    return make_pod("p", containers=[main, side], init_containers=(init,), **spec)


def named(pod: Pod, *mappings: dict[str, str], claim: str = "p-extended-resources-x") -> Pod:
    requests = tuple(
        ContainerExtendedResourceRequest(
            container_name=one["container"], resource_name=one["resource"], request_name=one["request"]
        )
        for one in mappings
    )
    status = PodExtendedResourceClaimStatus(resource_claim_name=claim, request_mappings=requests)
    return replace(pod, status=replace(pod.status, extended_resource_claim_status=status))


def wrong(*mappings: dict[str, str], **fields: Any) -> list[tuple[str, str, str]]:
    errors = validate_pod_status_update(named(the_pod(), *mappings, **fields), the_pod())
    return [(one.type, str(one.field), one.body) for one in errors]


@pytest.mark.parametrize(
    "mappings",
    [
        pytest.param([GOOD], id="a container"),
        pytest.param([GOOD | {"resource": IMPLICIT}], id="a class by its name"),
        pytest.param([GOOD | {"container": "init", "resource": FPGA}], id="an init container"),
        pytest.param([GOOD, GOOD | {"request": "r"}], id="two requests for one resource"),
        pytest.param(
            [GOOD | {"container": "init", "resource": FPGA}, GOOD | {"container": "side", "resource": FPGA}],
            id="one request for two containers",
        ),
    ],
)
def test_mappings_of_what_the_containers_request_are_accepted(mappings: list[dict[str, str]]) -> None:
    assert wrong(*mappings) == []


@pytest.mark.parametrize(
    ("changed", "field", "message"),
    [
        pytest.param({"container": "no"}, f"{MAPPING}.containerName", CONTAINER, id="no such container"),
        pytest.param({"container": ""}, f"{MAPPING}.containerName", CONTAINER, id="no container"),
        pytest.param({"container": "Main_"}, f"{MAPPING}.containerName", CONTAINER, id="no label"),
        pytest.param({"resource": FPGA}, f"{MAPPING}.resourceName", RESOURCE, id="another container's resource"),
        pytest.param({"resource": "gpu"}, f"{MAPPING}.resourceName", RESOURCE, id="no such resource"),
        pytest.param({"resource": "cpu"}, f"{MAPPING}.resourceName", RESOURCE, id="no extended resource"),
        pytest.param({"resource": ""}, f"{MAPPING}.resourceName", RESOURCE, id="no resource"),
        pytest.param({"request": "R_"}, f"{AT}.requestName", LABEL, id="no label as request"),
        pytest.param({"request": ""}, f"{AT}.requestName", LABEL, id="no request"),
        pytest.param({"request": "a/b"}, f"{AT}.requestName", LABEL, id="a subrequest"),
    ],
)
def test_a_mapping_of_something_else_is_refused(changed: dict[str, str], field: str, message: str) -> None:
    ((kind, at, body),) = wrong(GOOD | changed)
    assert (kind, at) == ("FieldValueInvalid", field)
    assert body.endswith(message)


def test_all_errors_come_in_the_order_of_the_reference() -> None:
    bad = {"container": "no", "resource": "gpu", "request": "R_"}
    found = wrong(GOOD, bad, claim="C_")
    assert [at for _, at, _ in found] == [
        f"{AT}.requestMappings[1].containerName",
        f"{AT}.requestName",
        f"{AT}.resourceClaimName",
    ]
    assert SUBDOMAIN in found[-1][2]


def test_the_same_mapping_twice_is_refused_in_each_of_its_fields() -> None:
    fields = ("containerName", "resourceName", "requestName")
    assert [(kind, at) for kind, at, _ in wrong(GOOD, GOOD)] == [
        ("FieldValueDuplicate", f"{AT}.requestMappings[1].{field}") for field in fields
    ]


def test_a_claim_without_mappings_and_mappings_without_a_claim_are_refused() -> None:
    assert [(kind, at) for kind, at, _ in wrong()] == [("FieldValueRequired", f"{AT}.requestMappings")]
    assert [(kind, at) for kind, at, _ in wrong(GOOD, claim="")] == [("FieldValueRequired", f"{AT}.resourceClaimName")]


def test_the_claim_of_a_pod_with_a_node_stays() -> None:
    waiting = named(the_pod(), GOOD)
    running = named(the_pod(node="node-1"), GOOD)
    other = named(the_pod(node="node-1"), GOOD, claim="other")
    gone = replace(running, status=replace(running.status, extended_resource_claim_status=None))
    for following in (other, gone, named(running, GOOD | {"request": "r"})):
        (error,) = validate_pod_status_update(following, running)
        assert (error.type, error.field) == ("FieldValueInvalid", AT)
        assert error.body.endswith("field is immutable")
    assert validate_pod_status_update(running, running) == []
    assert validate_pod_status_update(replace(waiting, status=the_pod().status), waiting) == []


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC, JSON_PATCH, "application/apply-patch+yaml", "PUT"])
def test_it_is_validated_however_the_status_is_written(api: Api, content_type: str) -> None:
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: "1"}}}
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    made = api.made(PODS, head | {"spec": {"containers": [container]}})

    def write(resource: str) -> tuple[int, list[str]]:
        mapping = {"containerName": "main", "resourceName": resource, "requestName": "r"}
        status = {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": [mapping]}}
        path = f"{PODS}/p/status"
        if content_type == "PUT":
            answer = api.put(path, made | {"status": made["status"] | status, "metadata": {"name": "p"}})
        elif content_type == JSON_PATCH:
            steps = [{"op": "add", "path": f"/status/{name}", "value": value} for name, value in status.items()]
            answer = api.patch(path, steps, content_type=content_type)
        elif content_type.startswith("application/apply"):
            body = head | {"status": status}
            answer = api.patch(f"{path}?fieldManager=scheduler&force=true", body, content_type=content_type)
        else:
            answer = api.patch(path, {"status": status}, content_type=content_type)
        return answer.code, [one["field"] for one in answer.json.get("details", {}).get("causes", ())]

    assert write(FPGA) == (422, [f"{MAPPING}.resourceName"])
    assert write(GPU) == (200, [])
