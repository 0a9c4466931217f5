"""Semantic versions as github.com/blang/semver/v4 parses and orders them: build metadata does not count."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from scheduling.cel.values import Strict

_MAX_PART = 2**64 - 1
_NORMALIZABLE = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?([-+].*)?", re.ASCII)
_IDENTIFIER = re.compile(r"[0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True, eq=False)
class Semver(Strict):
    major: int
    minor: int
    patch: int
    #: numbers as (0, n, ""), words as (1, 0, word): numbers order before words
    prerelease: tuple[tuple[int, int, str], ...] = ()
    build: tuple[str, ...] = ()

    def same(self, other: Semver) -> bool:
        return self._order() == other._order()

    def __hash__(self) -> int:
        return hash(self._order())

    def compare(self, other: Semver) -> int:
        """-1, 0 or 1."""
        mine, theirs = self._order(), other._order()
        return (mine > theirs) - (mine < theirs)

    def _order(self) -> tuple[object, ...]:
        # A release orders after its prereleases.
        return (self.major, self.minor, self.patch, not self.prerelease, self.prerelease)


@lru_cache(maxsize=65536)
def parse_semver(text: str) -> Semver:
    """Strict: three parts, no v, no leading zero. Raises: ValueError with the library's message."""
    if not text:
        raise ValueError("Version string empty")
    first, _, remainder = text.partition(".")
    second, dot, remainder = remainder.partition(".")
    if not dot:
        raise ValueError("No Major.Minor.Patch elements found")
    major, minor = _number(first, "major"), _number(second, "minor")
    rest, plus, build = remainder.partition("+")
    patch, dash, prerelease = rest.partition("-")
    return Semver(
        major,
        minor,
        _number(patch, "patch"),
        tuple(_prerelease_part(part) for part in prerelease.split(".")) if dash else (),
        tuple(_build_part(part) for part in build.split(".")) if plus else (),
    )


def normalize(text: str) -> str:
    """What Kubernetes' semver(x, true) reads: a leading v, missing parts and leading zeros are repaired."""
    match = _NORMALIZABLE.fullmatch(text)
    if match is None:
        return text
    numbers = [str(int(part or "0")) for part in match.groups()[:3]]
    return ".".join(numbers) + (match.group(4) or "")


def _number(text: str, part: str) -> int:
    if not text or not text.isascii() or not text.isdigit():
        raise ValueError(f'Invalid character(s) found in {part} number "{text}"')
    if len(text) > 1 and text.startswith("0"):
        raise ValueError(f'{part.capitalize()} number must not contain leading zeroes "{text}"')
    if int(text) > _MAX_PART:
        raise ValueError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def _prerelease_part(text: str) -> tuple[int, int, str]:
    if not text:
        raise ValueError("Prerelease is empty")
    if text.isascii() and text.isdigit():
        if len(text) > 1 and text.startswith("0"):
            raise ValueError(f'Numeric PreRelease version must not contain leading zeroes "{text}"')
        return (0, int(text), "")
    if not _IDENTIFIER.fullmatch(text):
        raise ValueError(f'Invalid character(s) found in prerelease "{text}"')
    return (1, 0, text)


def _build_part(text: str) -> str:
    if not text:
        raise ValueError("Build meta data is empty")
    if not _IDENTIFIER.fullmatch(text):
        raise ValueError(f'Invalid character(s) found in build meta data "{text}"')
    return text
