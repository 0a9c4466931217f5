"""Which types fit which, and what their type parameters then stand for.

A `Bindings` maps type parameters to types while one expression is checked. `assignable` tries to make one type fit
another, binding parameters on the way; when it fails, nothing stays bound. Source: cel-go checker/types.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scheduling.cel.types import DYN, CelType, Kind, is_dynamic

#: Types that null is assignable to, as in cel-go: an operand of such a type may be null when it is evaluated.
NULLABLE = (Kind.NULL, Kind.STRUCT, Kind.OPAQUE, Kind.WRAPPER, Kind.TIME)


class Bindings:
    """What the type parameters of one expression stand for."""

    def __init__(self) -> None:
        self._bound: dict[CelType, CelType] = {}
        self._fresh = 0

    def fresh(self) -> CelType:
        """A type parameter that nothing else uses."""
        self._fresh += 1
        return CelType(Kind.PARAM, f"_var{self._fresh}")

    def assignable(self, given: CelType, wanted: CelType) -> bool:
        return self.all_assignable((given,), (wanted,))

    def all_assignable(self, given: Sequence[CelType], wanted: Sequence[CelType]) -> bool:
        """Binds parameters where all fit; changes nothing where one does not."""
        before = dict(self._bound)
        if self._fit_all(given, wanted):
            return True
        self._bound = before
        return False

    def resolve(self, type_: CelType, *, unbound_to_dyn: bool) -> CelType:
        """The type with every bound parameter replaced, and unbound ones by dyn where asked."""
        bound = self._bound.get(type_)
        if bound is not None:
            return self.resolve(bound, unbound_to_dyn=unbound_to_dyn)
        if type_.kind is Kind.PARAM and unbound_to_dyn:
            return DYN
        if not type_.params:
            return type_
        params = tuple(self.resolve(part, unbound_to_dyn=unbound_to_dyn) for part in type_.params)
        return replace(type_, params=params)

    def _fit_all(self, given: Sequence[CelType], wanted: Sequence[CelType]) -> bool:
        return len(given) == len(wanted) and all(map(self._fit, given, wanted))

    def _fit(self, given: CelType, wanted: CelType) -> bool:
        if wanted.kind is Kind.PARAM:
            valid, had = self._bind(given, wanted)
            if valid or had:
                return valid
        if given.kind is Kind.PARAM:
            return self._bind(wanted, given)[0]
        if Kind.ERROR in (given.kind, wanted.kind) or is_dynamic(given) or is_dynamic(wanted):
            return True
        return self._fit_concrete(given, wanted)

    def _fit_concrete(self, given: CelType, wanted: CelType) -> bool:
        if given.kind is Kind.NULL:
            return wanted.kind in NULLABLE
        if given.kind is Kind.WRAPPER:
            return self._fit(given.params[0], wanted.params[0] if wanted.kind is Kind.WRAPPER else wanted)
        if wanted.kind is Kind.WRAPPER:
            return given == wanted.params[0]
        if given.kind is Kind.TYPE:
            return wanted.kind is Kind.TYPE
        return given.kind is wanted.kind and given.name == wanted.name and self._fit_all(given.params, wanted.params)

    def _bind(self, type_: CelType, parameter: CelType) -> tuple[bool, bool]:
        """(whether `parameter` may stand for `type_`, whether it already stood for something)."""
        if type_ == parameter:
            return True, True
        bound = self._bound.get(parameter)
        if bound is not None:
            if type_ == bound:
                return True, True
            if not self._fit(type_, bound):
                return False, True
            general = more_general(type_, bound)
            if not self._occurs(parameter, general):
                self._bound[parameter] = general
            return True, True
        if self._occurs(parameter, type_):
            return False, False
        self._bound[parameter] = type_
        return True, False

    def _occurs(self, parameter: CelType, type_: CelType) -> bool:
        if type_ == parameter:
            return True
        if type_.kind is Kind.PARAM:
            bound = self._bound.get(type_)
            return bound is not None and self._occurs(parameter, bound)
        return any(self._occurs(parameter, part) for part in type_.params)


def more_general(first: CelType, second: CelType) -> CelType:
    """The less specific of two types that fit each other."""
    return first if _no_more_specific(first, second) else second


def _no_more_specific(first: CelType, second: CelType) -> bool:
    if is_dynamic(first) or first.kind is Kind.PARAM:
        return True
    if is_dynamic(second) or second.kind is Kind.PARAM:
        return False
    if first.kind is Kind.NULL or second.kind is Kind.NULL:
        return first.kind is not Kind.NULL
    if first.kind is not second.kind or first.name != second.name or len(first.params) != len(second.params):
        return first.kind is Kind.WRAPPER
    return first.kind is Kind.TYPE or all(map(_no_more_specific, first.params, second.params))
