"""The DeviceClass form: text in, DeviceClass out, errors back to their fields."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from django.http import QueryDict

from dashboard.inventory.classes.forms import ClassForm, Sent, complain, from_class, to_class
from inventory.kinds.devices import DeviceClass
from manciple.wire.base import ObjectMeta


def class_form(*, selectors: Sequence[str] = (), configs: Sequence[tuple[str, str]] = (), **texts: str) -> ClassForm:
    """configs: (driver, parameters)"""
    rows = {
        "selector": list(selectors),
        "driver": [driver for driver, _ in configs],
        "parameters": [parameters for _, parameters in configs],
    }
    return ClassForm(Sent({name: [text] for name, text in texts.items()} | rows))


SELECTOR = 'device.driver == "gpu.example.com"'


def full() -> ClassForm:
    parameters = "kind: GpuConfig\nsharing:\n  strategy: TimeSlicing"
    return class_form(name="gpu", selectors=(SELECTOR, "", "true"), configs=(("", ""), ("gpu.example.com", parameters)))


def test_the_form_becomes_a_class_without_its_blanks_and_the_class_the_form_again() -> None:
    form = full()
    made = to_class(form, existing=None)
    assert not form.wrong
    assert [entry.cel.expression for entry in made.spec.selectors if entry.cel] == [SELECTOR, "true"]
    (config,) = made.spec.config
    assert config.opaque is not None
    assert config.opaque.parameters == {"kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing"}}
    assert to_class(from_class(made), existing=made) == made
    existing = DeviceClass(metadata=ObjectMeta(name="gpu", labels={"team": "a"}, resource_version="7"))
    kept = to_class(from_class(existing), existing=existing).metadata
    assert (kept.labels, kept.resource_version) == ({"team": "a"}, "7"), "what the form does not show is kept"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: [", "Line "),
        ("just words", "must be a mapping"),
        ("- a", "must be a mapping"),
        ("", "must be a mapping"),
    ],
)
def test_parameters_that_are_no_mapping_are_refused_under_their_field(text: str, message: str) -> None:
    form = class_form(configs=(("d.example.com", text),))
    assert form.wrong
    assert message in form.configs[0].errors["parameters"][0]


def test_causes_of_the_api_find_the_field_that_was_typed() -> None:
    form = full()
    causes = [
        {"field": "metadata.name", "message": "bad name"},
        {"field": "spec.selectors[1].cel.expression", "message": "no such thing"},
        {"field": "spec.config[0].opaque.driver", "message": "bad driver"},
        {"field": "spec.extendedResourceName", "message": "no such resource"},
        {"field": "spec.somethingNew", "message": "elsewhere"},
    ]
    complain(form, causes)
    assert form.errors == {"name": ["bad name"], "extended": ["no such resource"], "__all__": ["elsewhere"]}
    # the second that is not blank stands third in the form
    assert [row.errors for row in form.selectors] == [{}, {}, {"selector": ["no such thing"]}]
    assert [row.errors for row in form.configs] == [{}, {"driver": ["bad driver"]}]


def test_a_posted_form_is_read_field_by_field() -> None:
    form = ClassForm(
        QueryDict(
            "name=+gpu+&selector=a%0D%0Ab&selector=&driver=d&parameters=k%3A+1&extended=+example.com%2Fgpu&resource_version=5"
        )
    )
    assert [form["name"].value(), form["extended"].value()] == ["gpu", "example.com/gpu"]
    assert [row["selector"].value() for row in form.selectors] == ["a\nb", ""]
    assert [(row.text("driver"), row.cleaned_data["parameters"]) for row in form.configs] == [("d", {"k": 1})]
    assert form.text("resource_version") == "5"
