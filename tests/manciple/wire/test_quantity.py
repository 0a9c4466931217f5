"""Quantities keep every digit, their family of suffixes, and upstream's words for what is not one."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manciple.wire import quantity
from manciple.wire.quantity import Format, Quantity

CANONICAL = {
    "zero": ("0", "0"),
    "zero of any family": ("0Gi", "0"),
    "fraction of a binary unit": ("1.5Gi", "1536Mi"),
    "half a unit": ("0.5", "500m"),
    "leading point": (".5", "500m"),
    "trailing point": ("1.", "1"),
    "decimal kilo": ("1000", "1k"),
    "not a whole kilo": ("1500", "1500"),
    "mega stays decimal": ("1000k", "1M"),
    "kibi": ("1024Ki", "1Mi"),
    "binary below 1024 is written plain": ("512Ki", "512Ki"),
    "small binary amount loses its family": ("0.5Ki", "512"),
    "binary amount with a fraction": ("1.1Ki", "1126400m"),
    "binary amount below one": ("0.0001Ki", "102400u"),
    "exponent family": ("12e6", "12e6"),
    "exponent is grouped by three": ("1e4", "10e3"),
    "negative exponent": ("1e-3", "1e-3"),
    "upper case exponent": ("1E3", "1e3"),
    "exa is not an exponent": ("1E", "1E"),
    "exbi": ("2Ei", "2Ei"),
    "below a nano rounds up": ("0.1n", "1n"),
    "below a nano rounds away from zero": ("-0.1n", "-1n"),
    "micro": ("1u", "1u"),
    "plus sign": ("+5", "5"),
    "leading zeros": ("007", "7"),
    "trailing zeros": ("1.500", "1500m"),
    "negative": ("-1Ki", "-1Ki"),
    "binary is capped at int64": ("9223372036854775808Ki", "9223372036854775807"),
    "more than exa keeps its digits": ("1000E", "1000E"),
}


@pytest.mark.parametrize(("text", "canonical"), CANONICAL.values(), ids=CANONICAL)
def test_canonical_text_is_that_of_upstream(text: str, canonical: str) -> None:
    assert Quantity.parse(text).canonical() == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    {
        "empty": ("", quantity.FORMAT_MESSAGE),
        "words": ("lots", quantity.FORMAT_MESSAGE),
        "only a suffix": ("Mi", quantity.FORMAT_MESSAGE),
        "space before": (" 1", quantity.FORMAT_MESSAGE),
        "space after": ("1 ", quantity.FORMAT_MESSAGE),
        "two points": ("1.1.1", quantity.FORMAT_MESSAGE),
        "only a point": (".", quantity.NUMBER_MESSAGE),
        "unknown suffix": ("1mi", quantity.SUFFIX_MESSAGE),
        "half a suffix": ("1i", quantity.SUFFIX_MESSAGE),
        "exponent without digits": ("1e", quantity.SUFFIX_MESSAGE),
        "exponent out of all measure": ("1e999999999", quantity.SUFFIX_MESSAGE),
    }.values(),
)
def test_what_is_not_a_quantity_is_refused_in_upstreams_words(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message[:25].replace("(", r"\(")) as refused:
        Quantity.parse(text)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("text", "whole", "milli"),
    [("1", 1, 1000), ("1500m", 2, 1500), ("-1500m", -2, -1500), ("1n", 1, 1), ("80Gi", 80 * 2**30, 80 * 2**30 * 1000)],
)
def test_whole_and_milli_values_round_away_from_zero(text: str, whole: int, milli: int) -> None:
    amount = Quantity.parse(text)
    assert (amount.as_int64_ceil(), amount.milli_value()) == (whole, milli)


def test_equal_amounts_are_one_key_whatever_their_text() -> None:
    assert {Quantity.parse("1Ki"): "a"}[Quantity.parse("1024")] == "a"


def test_a_sum_keeps_the_first_family_unless_it_is_zero() -> None:
    one, zero = Quantity.parse("1Gi"), Quantity.parse("0")
    assert (one + Quantity.parse("1k")).format is Format.BINARY_SI
    assert (zero + one).canonical() == "1Gi"
    assert (zero - one).canonical() == "-1Gi"


def test_a_quantity_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        Quantity.parse("1").nanos = 2


SCALES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(1000),
    "G": Fraction(10**9),
    "Ki": Fraction(1024),
    "Gi": Fraction(1024**3),
    "e3": Fraction(1000),
    "E-2": Fraction(1, 100),
}
numbers = st.builds(lambda whole, places: f"{whole}.{places}", st.integers(0, 10**6), st.text("0123456789", max_size=4))
amounts = st.builds(lambda number, suffix: number + suffix, numbers, st.sampled_from(list(SCALES)))


@given(amounts)
def test_canonical_text_means_the_same_amount_and_is_its_own_canonical_text(text: str) -> None:
    amount = Quantity.parse(text)
    again = Quantity.parse(amount.canonical())
    assert again == amount
    assert again.canonical() == amount.canonical()


@given(numbers, st.sampled_from(list(SCALES)))
def test_only_what_is_below_a_nano_is_rounded_and_then_up(number: str, suffix: str) -> None:
    exact = Fraction(number + "0") * SCALES[suffix] * 10**9
    assert Quantity.parse(number + suffix).nanos == -(-exact.numerator // exact.denominator)


@given(amounts, amounts)
def test_addition_subtraction_and_order_are_those_of_exact_numbers(left: str, right: str) -> None:
    a, b = Quantity.parse(left), Quantity.parse(right)
    assert (a + b) - b == a
    assert (a > b) - (a < b) == (a - b).sign
    assert -(a - b) == b - a
