"""The DeviceClass form: text in, DeviceClass out, errors back to their fields."""

from __future__ import annotations

import pytest
from django.http import QueryDict

from inventory.kinds.devices import DeviceClass
from manciple.wire.base import ObjectMeta
from scheduling.pages.classes.form import (
    ClassForm,
    ConfigText,
    FormErrors,
    from_class,
    from_post,
    place_causes,
    to_class,
)

FULL = ClassForm(
    name="gpu",
    selectors=('device.driver == "gpu.example.com"', "", "true"),
    configs=(ConfigText(), ConfigText("gpu.example.com", "kind: GpuConfig\nsharing:\n  strategy: TimeSlicing")),
)


def test_the_form_becomes_a_class_without_its_blanks() -> None:
    errors = FormErrors()
    made = to_class(FULL, existing=None, errors=errors)
    assert not errors
    assert [entry.cel.expression for entry in made.spec.selectors if entry.cel] == [FULL.selectors[0], "true"]
    (config,) = made.spec.config
    assert config.opaque is not None
    assert config.opaque.parameters == {"kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing"}}


def test_a_class_survives_the_form() -> None:
    made = to_class(FULL, existing=None, errors=FormErrors())
    again = to_class(from_class(made), existing=made, errors=FormErrors())
    assert again == made


def test_what_the_form_does_not_show_is_kept() -> None:
    existing = DeviceClass(metadata=ObjectMeta(name="gpu", labels={"team": "a"}, resource_version="7"))
    made = to_class(from_class(existing), existing=existing, errors=FormErrors())
    assert made.metadata.labels == {"team": "a"}
    assert made.metadata.resource_version == "7"


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
    errors = FormErrors()
    to_class(ClassForm(configs=(ConfigText("d.example.com", text),)), existing=None, errors=errors)
    assert message in errors.by_field["config-0-parameters"][0]


def test_causes_of_the_api_find_the_field_that_was_typed() -> None:
    errors = FormErrors()
    causes = [
        {"field": "metadata.name", "message": "bad name"},
        {"field": "spec.selectors[1].cel.expression", "message": "no such thing"},
        {"field": "spec.config[0].opaque.driver", "message": "bad driver"},
        {"field": "spec.extendedResourceName", "message": "no such resource"},
        {"field": "spec.somethingNew", "message": "elsewhere"},
    ]
    place_causes(FULL, causes, errors)
    assert errors.by_field == {
        "name": ["bad name"],
        "selector-2": ["no such thing"],  # the second that is not blank stands third in the form
        "config-1-driver": ["bad driver"],
        "extended": ["no such resource"],
        "": ["elsewhere"],
    }


def test_a_posted_form_is_read_field_by_field() -> None:
    data = QueryDict(
        "name=+gpu+&selector=a%0D%0Ab&selector=&driver=d&parameters=k%3A+1&extended=+example.com%2Fgpu&resource_version=5"
    )
    assert from_post(data) == ClassForm(
        name="gpu",
        selectors=("a\nb", ""),
        configs=(ConfigText("d", "k: 1"),),
        extended="example.com/gpu",
        resource_version="5",
    )
