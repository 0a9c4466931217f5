"""Errors of forms, as people read them."""

from __future__ import annotations

import pytest
from django import forms

from dashboard.kit.forms import PageForm, plain
from manciple.wire import validation
from manciple.wire.errors import Invalid
from manciple.wire.quantity import FORMAT_MESSAGE

#: What the API says against values -> what people are told to write
RULES = {
    validation.regex_message('Invalid value: "x": a rule', "[a-z](\\.[a-z])?"): 'Invalid value: "x": a rule',
    validation.regex_message("a rule", "[a-z]+", "one"): "a rule (e.g. 'one')",
    validation.regex_message("a rule", "[a-z]+", "one", "two", "three"): "a rule (e.g. 'one' or 'two' or 'three')",
    f'Invalid value: "abc": {FORMAT_MESSAGE}': 'Invalid value: "abc": write an amount such as 8, 500m or 10Gi',
    'Invalid value: "-3": must be positive': 'Invalid value: "-3": must be positive',
}


@pytest.mark.parametrize(("said", "told"), RULES.items(), ids=RULES.values())
def test_no_form_quotes_a_regular_expression(said: str, told: str) -> None:
    assert plain(said) == told


class NameForm(PageForm):
    name = forms.CharField()


def test_a_refusal_of_the_api_is_plain_at_its_field() -> None:
    form = NameForm({"name": "Bad Name"})
    cause = {"field": "metadata.name", "message": validation.regex_message("a rule", "[a-z]+", "one")}
    form.add_refusal(Invalid("no", details={"causes": [cause]}))
    form.add_refusal(Invalid("no", details={"causes": [cause]}))
    assert form.errors == {"name": [plain(cause["message"])]}
