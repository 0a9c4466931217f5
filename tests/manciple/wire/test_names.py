"""Names: what may be one, in upstream's words, and how generated ones are made."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manciple.wire import validation

LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


@pytest.mark.parametrize(
    ("text", "messages"),
    {
        "plain": ("gpu-0", ()),
        "upper case": ("A", (LABEL_RULE,)),
        "empty": ("", (LABEL_RULE,)),
        "dots": ("a.b", ("must not contain dots",)),
        "newline at the end": ("a\n", (LABEL_RULE,)),
        "63 characters": ("a" * 63, ()),
        "64 characters": ("a" * 64, ("must be no more than 63 characters",)),
    }.values(),
)
def test_dns_labels(text: str, messages: tuple[str, ...]) -> None:
    assert validation.check_dns_label(text) == messages


@pytest.mark.parametrize("text", ["a", "a.b-c.d", "1.2.3", "a" * 253])
def test_dns_subdomains_that_are_valid(text: str) -> None:
    assert validation.check_dns_subdomain(text) == ()


@pytest.mark.parametrize("text", ["", ".a", "a.", "a..b", "A.b", "a_b", "-a", "a" * 254])
def test_dns_subdomains_that_are_not(text: str) -> None:
    assert len(validation.check_dns_subdomain(text)) == 1


@pytest.mark.parametrize("text", ["app", "example.com/app", "A_b.c", "1/2"])
def test_label_keys_that_are_valid(text: str) -> None:
    assert validation.check_label_key(text) == ()


@pytest.mark.parametrize(
    ("text", "beginnings"),
    {
        "empty": ("", ["name part must be non-empty", "name part must consist of"]),
        "empty prefix": ("/a", ["prefix part must be non-empty"]),
        "empty name": ("a/", ["name part must be non-empty", "name part must consist of"]),
        "two slashes": ("a/b/c", ["a valid label key must consist of"]),
        "upper case prefix": ("A/b", ["prefix part a lowercase RFC 1123 subdomain"]),
        "long name": ("a" * 64, ["name part must be no more than 63 bytes"]),
        "long prefix": (f"{'a' * 254}/b", ["prefix part must be no more than 253 bytes"]),
    }.values(),
)
def test_label_keys_that_are_not(text: str, beginnings: list[str]) -> None:
    messages = validation.check_label_key(text)
    assert [message[: len(start)] for message, start in zip(messages, beginnings, strict=True)] == beginnings


def test_label_values_may_be_empty_and_mixed() -> None:
    assert [validation.check_label_value(text) == () for text in ("", "A_b.c-1", "-a", "a" * 64)] == [
        True,
        True,
        False,
        False,
    ]


def test_driver_names_may_have_upper_case_letters() -> None:
    assert validation.check_driver_name("GPU.example.com") == ()
    assert len(validation.check_driver_name("gpu_example")) == 1


@pytest.mark.parametrize(
    ("text", "valid"),
    {
        "vendor's": ("example.com/gpu", True),
        "no domain": ("gpu", False),
        "kubernetes' own": ("kubernetes.io/gpu", False),
        "below kubernetes' own": ("device.kubernetes.io/gpu", False),
        "quota prefix": ("requests.example.com/gpu", False),
        "bad name": ("example.com/-", False),
    }.values(),
)
def test_extended_resource_names(text: str, valid: bool) -> None:
    assert validation.is_extended_resource_name(text) is valid


def test_a_generated_name_fits_a_dns_label_and_uses_the_safe_alphabet() -> None:
    name = validation.generate_name("b" * 80, Random(1))
    assert len(name) == 63
    assert name[:58] == "b" * 58
    assert set(name[58:]) <= set("bcdfghjklmnpqrstvwxz2456789")


def test_the_same_randomness_generates_the_same_name() -> None:
    assert validation.generate_name("web-", Random(7)) == validation.generate_name("web-", Random(7))


@pytest.mark.parametrize(
    ("pod", "claim", "expected"),
    {
        "short": ("web", "gpu", "web-gpu-"),
        "just fitting": ("p" * 28, "c" * 27, "p" * 28 + "-" + "c" * 27 + "-"),
        "long pod": ("p" * 100, "gpu", "p" * 54 + "-g"),
        "both long": ("p" * 100, "c" * 60, "p" * 35 + "-" + "c" * 21),
    }.values(),
)
def test_a_claims_generate_name_is_cut_in_proportion(pod: str, claim: str, expected: str) -> None:
    assert validation.claim_generate_name(pod, claim) == expected


@given(st.from_regex(r"\A[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?\Z"), st.from_regex(r"\A[a-z]([-a-z0-9]{0,60}[a-z0-9])?\Z"))
def test_a_claims_generate_name_never_needs_further_cutting(pod: str, claim: str) -> None:
    assert len(validation.claim_generate_name(pod, claim)) <= validation.GENERATED_BASE_MAX


@given(st.text(max_size=70))
def test_what_is_a_label_is_a_subdomain(text: str) -> None:
    if not validation.check_dns_label(text):
        assert validation.check_dns_subdomain(text) == ()
