"""Finding things by their name: the best first, and only what the person may see."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from manciple.pages.people import person_of_user
from scheduling.pages.finding.views import EXACT, PART, PREFIX, Sought, search
from tests.builders import make_claim, make_devices, make_namespace, make_node, make_pod, make_slice, make_template
from tests.scheduling.cluster import Cluster
from tests.scheduling.pages.browsing import admin, signed_in, viewer, words

__all__ = ["admin", "viewer"]

RANKS = {
    ("llama", "llama", ""): EXACT,
    ("LLAMA", "llama", ""): EXACT,
    ("llama", "llama-7b", ""): PREFIX,
    ("lama", "llama", ""): PART,
    ("camel", "llama", ""): None,
    ("lab/llama", "llama", "lab"): EXACT,
    ("la/llama", "llama", "lab"): PREFIX,
    ("den/llama", "llama", "lab"): None,
    ("lab/", "llama", "lab"): PREFIX,
}


@pytest.mark.parametrize("case", RANKS)
def test_how_well_a_name_fits(case: tuple[str, str, str]) -> None:
    text, name, place = case
    assert Sought(text).rank(name, place) == RANKS[case]


@pytest.fixture
def lab(cluster: Cluster) -> Cluster:
    """One thing of each kind whose name holds `alpha`."""
    cluster.create(make_namespace("alpha-lab"))
    cluster.create(make_node("alpha-1"))
    cluster.create(make_slice(node="alpha-1", driver="alpha.example.com", devices=make_devices(2)))
    cluster.create(make_claim("my-alpha", namespace="alpha-lab"))
    cluster.create(make_template("alpha-template", namespace="alpha-lab"))
    cluster.create(make_pod("alpha", namespace="alpha-lab"))
    return cluster


def sections(client: Client, text: str) -> dict[str, list[str]]:
    """title -> what was found, in order."""
    page = client.get("/find", {"q": text}).content.decode()
    parts = re.split(r'<section class="sheet mb"', page)[1:]
    plain = {re.sub(r"<[^>]*>", "", re.findall(r"<h2[^>]*>(.*?)</h2>", part)[0]): part for part in parts}
    return {
        title: [re.sub(r"<[^>]*>", "", one) for one in re.findall(r'<a class="ent"[^>]*>(.*?)</a>', part)]
        for title, part in plain.items()
    }


def test_every_kind_is_found(viewer: Client, lab: Cluster) -> None:
    assert sections(viewer, "alpha") == {
        "Pods": ["alpha"],
        "Claim templates": ["alpha-template"],
        "Nodes": ["alpha-1"],
        "Drivers": ["alpha.example.com"],
        "Namespaces": ["alpha-lab"],
        "Devices": ["alpha-1 / gpu-0", "alpha-1 / gpu-1"],
        "Claims": ["my-alpha"],
    }


def test_the_best_match_comes_first_within_a_kind(viewer: Client, cluster: Cluster) -> None:
    for name in ("a-web", "web", "web-2", "aa-web"):
        cluster.create(make_pod(name))
    assert sections(viewer, "web")["Pods"] == ["web", "web-2", "a-web", "aa-web"]


DEVICES = {
    "gpu-1": ["alpha-1 / gpu-1"],
    "alpha-1 / gpu-0": ["alpha-1 / gpu-0"],
    "alpha.example.com/alpha-1/gpu-0": ["alpha-1 / gpu-0"],
    "alpha-1/": ["alpha-1 / gpu-0", "alpha-1 / gpu-1"],
}


@pytest.mark.parametrize("text", DEVICES)
def test_a_device_is_found_as_it_is_shown(viewer: Client, lab: Cluster, text: str) -> None:
    assert sections(viewer, text)["Devices"] == DEVICES[text]


def test_a_namespace_narrows(viewer: Client, cluster: Cluster) -> None:
    cluster.create(make_pod("web", namespace="here"))
    cluster.create(make_pod("web", namespace="there"))
    cluster.create(make_pod("web", namespace="away"))
    assert "here" in words(viewer, "/find?q=here/web")
    assert "away" not in words(viewer, "/find?q=here/web")


GOES = {
    "q=alpha-1&go=1": "/nodes/alpha-1",
    "q=ALPHA-LAB&go=1": "/namespaces/alpha-lab",
    "q=alpha-lab/alpha&go=1": "/pods/alpha-lab/alpha",
    "q=alpha-1+/+gpu-0&go=1": "/devices/d/alpha.example.com/alpha-1/gpu-0",
    "q=alpha-&go=1": None,
    "q=alpha-1": None,
    "q=nothing&go=1": None,
}


@pytest.mark.parametrize("query", GOES)
def test_a_match_that_is_exact_and_alone_opens(viewer: Client, lab: Cluster, query: str) -> None:
    answer = viewer.get(f"/find?{query}")
    assert answer.headers.get("Location") == GOES[query]


def test_two_exact_matches_are_shown_to_choose_from(viewer: Client, lab: Cluster) -> None:
    lab.create(make_claim("alpha", namespace="alpha-lab"))
    assert viewer.get("/find?q=alpha&go=1").status_code == 200


def test_only_what_one_may_see_is_found(lab: Cluster) -> None:
    mia = signed_in("mia", "namespace:other")
    found = sections(mia, "alpha")
    assert set(found) == {"Nodes", "Drivers", "Devices"}
    assert mia.get("/find?q=alpha-lab/alpha&go=1").status_code == 200


def test_of_many_the_first_are_shown_with_a_bounded_number_of_queries(viewer: Client, cluster: Cluster) -> None:
    person = person_of_user(viewer.get("/find").wsgi_request.user)
    with CaptureQueriesContext(connection) as few:
        search("web", person)
    for index in range(30):
        cluster.create(make_pod(f"web-{index}"))
    with CaptureQueriesContext(connection) as many:
        (section,) = search("web", person)
    assert (len(section.found), section.more) == (20, True)
    assert len(many) == len(few)
    assert "the first 20; write more of the name to see fewer" in words(viewer, "/find?q=web")


def test_nothing_found_says_how_names_are_compared(viewer: Client) -> None:
    assert "Nothing is called “<zebra>”" in words(viewer, "/find?q=<zebra>")


def test_without_a_question_there_are_the_places(viewer: Client) -> None:
    text = words(viewer, "/find")
    for place in ("Devices", "Nodes", "Drivers", "Namespaces"):
        assert place in text
