"""The components of templates: what each draws, and that it escapes what it is given."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.template import Context, Template
from django.test import Client

from dashboard.kit.components import EXAMPLES
from dashboard.templatetags.kit import register

#: source -> what it draws of `HOSTILE` and some counts
DRAWN = {
    '{{ n|counted:"device" }}': "1,200 devices",
    '{{ one|counted:"device" }}': "1 device",
    '{{ one|counted:"claim holds,claims hold" }}': "1 claim holds",
    '{{ n|counted:"claim holds,claims hold" }}': "1,200 claims hold",
    "{{ names|listed:2 }}": "a, b and 2 more",
    "{{ names|listed }}": "a, b, c, d",
    "{% names linked 1 more=2 %}": '<a class="link" href="/a?x=1&amp;y=2">&lt;a&gt;</a> and 3 more',
    '{% mark "warn" %}': '<span class="sev warn" aria-hidden="true">!</span>',
    '{% mark "err" "!" %}': '<span class="sev err" aria-hidden="true">!</span>',
    '{% meter 130 state="over" %}': '<span class="meter over" aria-hidden="true" style="--p:100"><i></i></span>',
    '{% empty_state "" hostile %}<p>{{ hostile }}</p>{% endempty_state %}': (
        '<div class="empty"><h3>&lt;b&gt;</h3><p>&lt;b&gt;</p></div>'
    ),
    '{% card hostile name="x" %}{{ hostile }}{% endcard %}': (
        '<section class="sheet" aria-labelledby="h-x"><header><h2 id="h-x">&lt;b&gt;</h2></header>&lt;b&gt;</section>'
    ),
    '{% card "Pods" id="pods" topics="pods:" css="mb" aside=hostile data_keep=True %}…{% endcard %}': (
        '<section class="sheet mb" data-topics="pods:" id="pods" data-keep aria-labelledby="h-pods">'
        '<header><h2 id="h-pods">Pods</h2><span class="aside">&lt;b&gt;</span></header>…</section>'
    ),
    '{% card "Pods" %}{% aside %}<a href="/pods">{{ hostile }}</a>{% endaside %}…{% endcard %}'
    '{% card "Next" %}{% endcard %}': (
        '<section class="sheet" aria-labelledby="h-pods"><header><h2 id="h-pods">Pods</h2>'
        '<a href="/pods">&lt;b&gt;</a></header>…</section>'
        '<section class="sheet" aria-labelledby="h-next"><header><h2 id="h-next">Next</h2></header></section>'
    ),
}


@pytest.mark.parametrize(("source", "expected"), DRAWN.items(), ids=DRAWN.keys())
def test_what_it_draws(source: str, expected: str) -> None:
    values = {
        "n": 1200,
        "one": 1,
        "names": ["a", "b", "c", "d"],
        "linked": [("<a>", "/a?x=1&y=2"), ("b", "/b")],
        "hostile": "<b>",
    }
    assert Template(source).render(Context(values)) == expected


#: What templates have besides components: addresses, commands, and parts of the page's frame or of lists.
NO_COMPONENTS = re.compile(
    r".*_url$|time_of_server|(node_)?command|zone|zone_and_offset|pick|aside|age|clock|duration|ago|unknown"
)


def test_each_component_is_on_the_page_of_components() -> None:
    components = {name for name in (*register.tags, *register.filters) if not NO_COMPONENTS.fullmatch(name)}
    assert components == set(EXAMPLES)


@pytest.mark.django_db
def test_the_page_draws_each_in_both_themes() -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    page = client.get("/kit")
    assert page.status_code == 200
    text = page.content.decode()
    drawn = [one for _, examples in page.context["components"] for example in examples for one in example.drawn]
    assert {theme for theme, _ in drawn} == {"light", "dark"}
    assert [html for _, html in drawn if html not in text] == []
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
