"""A selector that describes a device, for who wants more like it: what it has in common with others, as CEL."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping

from claims.devices.published import CandidateDevice, short_name
from inventory.kinds.devices import DeviceAttribute

#: Where a device sits, which says nothing about its kind.
_PLACES = {"index", "numaNode", "rack", "placement", "resource.kubernetes.io/pcieRoot"}


def selector_of(candidate: CandidateDevice, counts: Mapping[str, Counter[str]]) -> str:
    """counts: name -> value -> how many devices have it. What is different on every device (a uuid) is left out."""
    driver = candidate.key[0]
    clauses = [f"device.driver == {json.dumps(driver)}"]
    for name, attribute in sorted(candidate.device.attributes.items()):
        short = short_name(driver, name)
        common = counts.get(short, Counter())
        tells_apart = 1 < len(common) == common.total()
        if short not in _PLACES and not tells_apart:
            clauses += _of_attribute(_access("attributes", driver, name), attribute)
    for name, capacity in sorted(candidate.device.capacity.items()):
        where = _access("capacity", driver, name)
        clauses.append(f'{where}.compareTo(quantity("{capacity.value}")) >= 0')
    return " &&\n".join(clauses)


def _access(kind: str, driver: str, name: str) -> str:
    domain, slash, identifier = name.rpartition("/")
    return f"device.{kind}[{json.dumps(domain if slash else driver)}].{identifier}"


def _of_attribute(where: str, attribute: DeviceAttribute) -> Iterator[str]:
    """Nothing of attributes with several values: which of them matters is for a person to say."""
    if attribute.bool_value is not None:
        yield where if attribute.bool_value else f"!{where}"
    elif attribute.int_value is not None:
        yield f"{where} == {attribute.int_value}"
    elif attribute.string_value is not None:
        yield f"{where} == {json.dumps(attribute.string_value)}"
    elif attribute.version_value is not None:
        yield f'{where}.compareTo(semver("{attribute.version_value}")) >= 0'
