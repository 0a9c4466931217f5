"""Functions and files stay of a size that one reads at once."""

from __future__ import annotations

from tests.architecture.sources import PACKAGES, Source, within

LONGEST_FUNCTION, LONGEST_FILE = 60, 500
#: Longer ones, each with its reason.
LONGER = {
    "scheduling/neighbours.py": 520,  # affinity, spreading and host ports are counted over the same groups of pods
}


def written() -> dict[str, Source]:
    """By people: migrations are generated."""
    return {place: source for place, source in within(*PACKAGES).items() if "/migrations/" not in place}


def test_no_function_is_longer_than_sixty_lines() -> None:
    long = [
        f"{place}:{function.line} {function.name}"
        for place, source in written().items()
        for function in source.functions
        if function.lines > LONGEST_FUNCTION
    ]
    assert long == []


def test_no_file_is_longer_than_five_hundred_lines() -> None:
    assert [place for place, source in written().items() if source.lines > LONGER.get(place, LONGEST_FILE)] == []
