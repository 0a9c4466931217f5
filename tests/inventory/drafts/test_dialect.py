"""Selectors of the KEP-4381 draft: the verdicts of their translation, rule by rule."""

from __future__ import annotations

import re

import pytest

from inventory.drafts.structured.dialect import translated
from inventory.kinds.devices import Device, DeviceAttribute, DeviceCapacity
from manciple.cel.errors import CompileError, EvaluationError
from scheduling.cel import compile_selector
from scheduling.cel.device import DeviceView

DRIVER = "cards.dra.example.com"
GPU = DeviceView.of(
    DRIVER,
    Device(
        name="gpu-1",
        attributes={
            "UUID": DeviceAttribute(string_value="GPU-6aa0af9e-a2be-88c8-d2b3-2240d25318d7"),
            "size": DeviceAttribute(string_value="16Gi"),
            "driverVersion": DeviceAttribute(version_value="1.2.3"),
            "runtimeVersion": DeviceAttribute(version_value="11.1.42"),
            "cores": DeviceAttribute(int_value=8),
            "ecc": DeviceAttribute(bool_value=True),
            "links": DeviceAttribute(int_values=(1, 2)),
            "modes": DeviceAttribute(string_values=("fast", "red")),
        },
        capacity={"memory": DeviceCapacity(value="32Gi"), "cache": DeviceCapacity(value="2048")},
    ),
)
#: a rule -> selectors -> their verdict on the GPU; None for an error
RULES: dict[str, dict[str, bool | None]] = {
    "the examples of the draft": {
        'attributes["runtimeVersion"] >= "v12.0.0" && attributes["memory"] >= "32Gi"': False,
        'attributes["runtimeVersion"] >= "v11.1" && attributes["memory"] >= "32Gi"': True,
        'attributes["memory"] <= "16Gi"': False,
    },
    "a text beside a quantity is read as a quantity": {
        'attributes.memory == "32768Mi"': True,
        'attributes["memory"] != "32Gi"': False,
        'attributes["memory"] < "100Gi"': True,
        'attributes["memory"] > "32Gi"': False,
        '"16Gi" < attributes["memory"]': True,
        '"32Gi" > attributes["memory"]': False,
        '"32Gi" <= attributes["memory"]': True,
        '"33Gi" <= attributes["memory"]': False,
        '"31Gi" >= attributes["memory"]': False,
        'attributes["memory"] == "much"': None,
        'attributes["memory"] >= ""': None,
    },
    "a number beside a quantity is read as a quantity": {
        "attributes.cache == 2048": True,
        "2047 < attributes.cache": True,
        "attributes.cache >= 2049": False,
        "attributes.memory == true": None,
    },
    "a text beside a version is read tolerantly as a version": {
        'attributes["driverVersion"] == "v1.2.3"': True,
        'attributes["driverVersion"] == " 01.2.3"': True,
        'attributes["driverVersion"] >= "1"': True,
        'attributes["driverVersion"] > "1.10"': False,
        '"v1.2" < attributes["driverVersion"]': True,
        '"v2" < attributes["driverVersion"]': False,
        'attributes["driverVersion"] == "newest"': None,
        'attributes["driverVersion"] == 1': None,
    },
    "two attributes of one type are compared by it": {
        "attributes.memory > attributes.cache": True,
        "attributes.cache == attributes.cache": True,
        "attributes.runtimeVersion > attributes.driverVersion": True,
        "attributes.runtimeVersion <= attributes.driverVersion": False,
        "attributes.size != attributes.UUID": True,
        "attributes.cores == attributes.cores": True,
        "attributes.links == attributes.modes": False,
        "attributes.links < attributes.links": None,
        "attributes.cores == attributes.ecc": False,
        "attributes.memory == attributes.size": None,
        "attributes.driverVersion == attributes.cores": None,
    },
    "what is no quantity and no version is the value that it is": {
        'attributes.size == "16384Mi"': False,
        'attributes.size == "16Gi"': True,
        "attributes.cores > 7": True,
        "attributes.cores <= 7": False,
        'attributes.cores == "8"': False,
        'attributes.cores < "9"': None,
        "attributes.ecc": True,
        "!attributes.ecc": False,
        "attributes.links.exists(one, one == 2)": True,
        '"red" in attributes["modes"]': True,
        'attributes["UUID"].startsWith("GPU-")': True,
        "attributes.cores + 1 == 9": True,
        "1 + 1 == 2": True,
        '"16Gi" == "16384Mi"': False,
    },
    "an attribute in a list is compared with each element": {
        'attributes["memory"] in ["16Gi", "32Gi"]': True,
        'attributes["driverVersion"] in ["v1.2.3"]': True,
        'attributes["memory"] in ["16Gi", 1]': False,
        "attributes.cores in [1, 8]": True,
        'attributes["memory"] in []': False,
        'attributes["memory"] in ["much", "32Gi"]': True,
        "3 in [1, 2]": False,
    },
    "a name that the resource lacks is an error, and presence can be asked": {
        'attributes["absent"] == "x"': None,
        "attributes.absent": None,
        'attributes["absent"] == "x" || true': True,
        'attributes["absent"] == "x" && false': False,
        '"absent" in attributes && attributes["absent"] == "x"': False,
        '"memory" in attributes && "UUID" in attributes': True,
        "has(attributes.memory) && has(attributes.UUID)": True,
        "has(attributes.absent)": False,
        'attributes["ab" + "sent"] == 1': None,
        'attributes["mem" + "ory"] == "32Gi"': True,
    },
    "a map of one type has only the attributes of that type": {
        '"memory" in attributes.quantity': True,
        '"UUID" in attributes.quantity': False,
        '"UUID" in attributes.string': True,
        '"memory" in attributes.string || "cores" in attributes.string': False,
        '"cores" in attributes.int && "ecc" in attributes.bool && "driverVersion" in attributes.version': True,
        '"links" in attributes.intslice && "links" in attributes.intSlice': True,
        '"modes" in attributes.stringslice && "modes" in attributes.stringSlice': True,
        'attributes.quantity["memory"].isGreaterThan(quantity("31Gi"))': True,
        'attributes.version["driverVersion"].isLessThan(semver("1.2.4"))': True,
        'attributes.string["size"] < "2"': True,
        'attributes.int["cores"] >= 9': False,
        "attributes.int.cores == 8": True,
        "8 == attributes.int.cores": True,
        "attributes.int.cores == attributes.cores": True,
        'attributes.string.size == "16384Mi"': False,
        'attributes.string["cores"] == "8"': None,
        'attributes.int["absent"] == 1': None,
        'attributes.quantity["UUID"] == quantity("1")': None,
    },
    "functions and macros of current CEL are there": {
        'attributes["memory"] >= quantity("1Gi") && attributes.runtimeVersion < semver("12.0.0")': True,
        'quantity("1Gi") >= attributes["memory"]': False,
        'attributes["memory"] == quantity("32Gi")': True,
        'attributes.runtimeVersion == semver("11.1.42")': True,
        'semver("11.1.42") > attributes.runtimeVersion': False,
        'attributes.quantity.memory == quantity("32Gi")': True,
        '["memory", "UUID"].all(name, name in attributes)': True,
        'cel.bind(least, "16Gi", attributes["memory"] >= "32Gi")': True,
        'attributes.ecc ? attributes.memory == "32Gi" : false': True,
    },
}


def verdict(expression: str, device: DeviceView) -> bool | None:
    try:
        return compile_selector(translated(expression, DRIVER)).matches(device)
    except EvaluationError:
        return None


@pytest.mark.parametrize("rule", RULES)
def test_a_translated_selector_gives_the_verdict_that_the_draft_gives(rule: str) -> None:
    assert {expression: verdict(expression, GPU) for expression in RULES[rule]} == RULES[rule]


def test_a_selector_sees_only_what_its_driver_published() -> None:
    view = DeviceView.of("other.example.com", Device(name="x", capacity={"memory": DeviceCapacity(value="64Gi")}))
    assert verdict('attributes["memory"] >= "32Gi"', view) is False


@pytest.mark.parametrize(
    ("expression", "column"),
    [
        ("size(attributes) > 1", 6),
        ("attributes.quantity == 1", 1),
        ('device.driver == "x"', 1),
        ("[1].all(device, true)", 9),
        ('attributes["memory"] >=', 24),
    ],
)
def test_an_unknown_name_or_a_syntax_error_is_refused_at_its_column(expression: str, column: int) -> None:
    with pytest.raises(CompileError) as refused:
        translated(expression, DRIVER)
    assert (refused.value.line, refused.value.column) == (1, column)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("size(attributes) > 1", 'attributes can only be asked by name, such as attributes["memory"]'),
        ('device.driver == "x"', "undeclared reference to 'device' (in container '')"),
    ],
)
def test_a_compile_error_names_the_cause(expression: str, message: str) -> None:
    with pytest.raises(CompileError, match=re.escape(message)):
        translated(expression, DRIVER)
