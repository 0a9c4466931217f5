"""MANCIPLE_RUNTIME_CONFIG: which API versions are served, with the meaning of kube-apiserver's --runtime-config."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from inventory.kinds import gates
from manciple.api import openapi, runtime_config
from manciple.api.reviews import REVIEWS
from manciple.wire.registry import registry
from tests.manciple.api.requests import CLAIMS, CLASSES, Api, claim

RESOURCE = "resource.k8s.io"


@contextmanager
def serving(text: str, **changed: bool) -> Iterator[None]:
    """As after a start with this setting, and these gates."""
    openapi.renew()
    with gates.using(**changed), runtime_config.using(runtime_config.parse(text)):
        yield
    openapi.renew()


#: setting -> the versions of resource.k8s.io that are served, with the gates of older versions on
VERSIONS = {
    "": {"v1", "v1beta2", "v1beta1", "v1alpha3", "v1alpha2"},
    "api/beta=false": {"v1", "v1alpha3", "v1alpha2"},
    "api/alpha=false": {"v1", "v1beta2", "v1beta1"},
    "api/alpha=false,api/beta=false": {"v1"},
    "api/all=false,api/ga=true": {"v1"},
    "api/ga=true,api/all=false": {"v1"},
    "api/all=false,resource.k8s.io/v1=true": {"v1"},
    "api/beta=false,resource.k8s.io/v1beta1=true": {"v1", "v1beta1", "v1alpha3", "v1alpha2"},
    "resource.k8s.io/v1beta1=true,api/beta=false": {"v1", "v1beta1", "v1alpha3", "v1alpha2"},
    "resource.k8s.io/v1=false": {"v1beta2", "v1beta1", "v1alpha3", "v1alpha2"},
    "resource.k8s.io/v1beta2=false,resource.k8s.io/v1beta1=0": {"v1", "v1alpha3", "v1alpha2"},
    "api/all=true": {"v1", "v1beta2", "v1beta1", "v1alpha3", "v1alpha2"},
    "resource.k8s.io/v1alpha2": {"v1", "v1beta2", "v1beta1", "v1alpha3", "v1alpha2"},
}


@pytest.mark.parametrize("text", VERSIONS)
def test_discovery_schemas_and_paths_agree_on_what_is_served(api: Api, text: str) -> None:
    every = VERSIONS[""]
    with serving(text, DRAControlPlaneController=True):
        groups = {one["name"]: one for one in api.get("/apis").json["groups"]}
        assert {one["version"] for one in groups[RESOURCE]["versions"]} == VERSIONS[text]
        assert groups[RESOURCE]["preferredVersion"]["version"] == max(VERSIONS[text], key=preference)
        schemas = api.get("/openapi/v3").json["paths"]
        for version in every:
            on = version in VERSIONS[text]
            codes = [
                api.get(f"{at}/{RESOURCE}/{version}{below}").code
                for at, below in (
                    ("/apis", ""),
                    ("/apis", "/namespaces/default/resourceclaims"),
                    ("/openapi/v3/apis", ""),
                )
            ]
            assert codes == [200 if on else 404] * 3, (version, codes)
            assert (f"apis/{RESOURCE}/{version}" in schemas) is on


def preference(version: str) -> int:
    return ["v1alpha2", "v1alpha3", "v1beta1", "v1beta2", "v1"].index(version)


def test_a_version_that_is_not_served_is_not_found_for_any_verb(api: Api) -> None:
    with serving("resource.k8s.io/v1=false"):
        answers = [
            api.get(CLAIMS),
            api.get(f"{CLAIMS}/c"),
            api.get(f"{CLAIMS}?watch=true&timeoutSeconds=1"),
            api.post(CLAIMS, claim()),
            api.put(f"{CLAIMS}/c", claim()),
            api.patch(f"{CLAIMS}/c", {}),
            api.delete(f"{CLAIMS}/c"),
        ]
    for answer in answers:
        assert (answer.code, answer.message) == (404, "the server could not find the requested resource")


def test_what_is_stored_is_kept_and_shown_by_the_other_versions(api: Api) -> None:
    made = api.made(CLAIMS, claim())
    beta = CLAIMS.replace("/v1/", "/v1beta2/")
    with serving("resource.k8s.io/v1=false"):
        assert api.get(f"{beta}/c").json["metadata"]["uid"] == made["metadata"]["uid"]
        api.made(beta, {**claim("later"), "apiVersion": "resource.k8s.io/v1beta2"})
    assert {one["metadata"]["name"] for one in api.get(CLAIMS).json["items"]} == {"c", "later"}


def test_single_resources_of_a_version_can_be_turned_off_and_on(api: Api) -> None:
    with serving("resource.k8s.io/v1/deviceclasses=false"):
        assert (api.get(CLASSES).code, api.get(CLAIMS).code) == (404, 200)
        listed = {one["name"] for one in api.get(f"/apis/{RESOURCE}/v1").json["resources"]}
        assert "resourceclaims" in listed
        assert "deviceclasses" not in listed
    with serving("resource.k8s.io/v1=false,resource.k8s.io/v1/deviceclasses=true"):
        assert (api.get(CLASSES).code, api.get(CLAIMS).code) == (200, 404)


def test_kinds_that_are_only_answered_are_concerned_and_those_of_definitions_are_not(api: Api) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    where = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    with serving("authentication.k8s.io/v1=false"):
        assert api.post(where, review).code == 404
        assert "authentication.k8s.io" not in {one["name"] for one in api.get("/apis").json["groups"]}
    assert api.post(where, review).code == 201


def test_a_setting_does_not_turn_on_what_a_gate_turned_off(api: Api) -> None:
    with serving("api/all=true,resource.k8s.io/v1alpha2=true"):
        assert api.get(f"/apis/{RESOURCE}/v1alpha2").code == 404


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("api/all=false", "invalid key with only api/all=false"),
        ("api/beta=maybe", "invalid value api/beta=maybe"),
        ("api/beta", "invalid value api/beta="),
        ("resource.k8s.io/v1=maybe", "invalid value of resource.k8s.io/v1"),
        ("a/b/c/d=true", "invalid key a/b/c/d"),
        ("resource.k8s.io/v1/DeviceClasses=false", "invalid key"),
        ("nonsense.example.com/v1=true", "unknown api groups nonsense.example.com"),
        ("resource.k8s.io/v7=true", "group version resource.k8s.io/v7 has not been registered"),
        ("v7=true", "group version v7 has not been registered"),
        ("resource.k8s.io/v1/widgets=true", "no resource widgets in resource.k8s.io/v1"),
    ],
)
def test_what_kube_apiserver_would_refuse_at_its_start_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        runtime_config.parse(text).check({*(one.place for one in registry.registered()), *REVIEWS})


def test_the_core_group_has_a_name_without_a_group() -> None:
    assert not runtime_config.parse("v1=false").serves("", "v1", "pods")
    assert runtime_config.parse("v1=false").serves(RESOURCE, "v1", "resourceclaims")


def test_everything_is_served_by_default(api: Api) -> None:
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    before = json.loads(api.get("/apis", accept=aggregated).text)
    with serving("api/all=true"):
        assert json.loads(api.get("/apis", accept=aggregated).text) == before
