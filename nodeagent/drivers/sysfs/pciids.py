"""Names of vendors, devices and classes, from the list that lspci uses.

A line without indentation is a vendor ("8086  Intel Corporation"), one with a tab a device of it, one with two tabs a
subsystem; further down "C 02  Network controller" is a class and what is indented below it a subclass.
Source: the head of pci.ids.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PciNames:
    """Names by ids of lower-case hexadecimal digits; empty where a name is not known."""

    vendors: dict[str, str] = field(default_factory=dict)
    devices: dict[tuple[str, str], str] = field(default_factory=dict)  # (vendor, device)
    classes: dict[str, str] = field(default_factory=dict)  # two digits, or four with the subclass

    def class_name(self, class_: str) -> str:
        """class_: six digits; the subclass's name where it has one."""
        return self.classes.get(class_[:4]) or self.classes.get(class_[:2], "")


def read_pci_ids(path: Path) -> PciNames:
    """Without the file, no name is known."""
    names = PciNames()
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return names
    above = ""
    for line in lines:
        if line and not line.startswith(("#", "\t\t")):
            above = _take(names, line, above)
    return names


def _take(names: PciNames, line: str, above: str) -> str:
    """Remember one line; returns the vendor or class ("C 02") to which the indented lines that follow belong."""
    indented, entry = line.startswith("\t"), line.strip()
    id_, _, name = entry.removeprefix("C ").partition("  ")
    if indented:
        if above.startswith("C "):
            names.classes[above[2:] + id_] = name
        else:
            names.devices[above, id_] = name
        return above
    if entry.startswith("C "):
        names.classes[id_] = name
        return f"C {id_}"
    names.vendors[id_] = name
    return id_
