"""Cuts Inter down to what the pages need: `font.py FROM TO`. Wants fonttools with woff.

Latin alone, the weights from 400 to 700, and figures of one width in place of the usual ones: columns of numbers stand
in line without a feature that would widen hyphens and points as well.
"""

from __future__ import annotations

import sys
from typing import Any

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont
from fontTools.varLib.instancer import instantiateVariableFont

#: ASCII, Latin-1, and the signs that pages use: dashes, quotation marks, dots, primes, the euro, arrows, minus.
RANGES = (
    (0x20, 0x7E), (0xA0, 0xFF), (0x131, 0x131), (0x152, 0x153), (0x2C6, 0x2C6), (0x2DA, 0x2DA), (0x2DC, 0x2DC),
    (0x2013, 0x2014), (0x2018, 0x201A), (0x201C, 0x201E), (0x2022, 0x2022), (0x2026, 0x2026), (0x2032, 0x2033),
    (0x2039, 0x203A), (0x20AC, 0x20AC), (0x2122, 0x2122), (0x2190, 0x2193), (0x2212, 0x2212),
)  # fmt: skip
FEATURES = ("kern", "calt", "ccmp", "locl", "mark", "mkmk", "case")


def figures_of_one_width(font: Any) -> dict[str, str]:
    """glyph of a digit -> the one that is as wide as the others."""
    gsub = font["GSUB"].table
    lookups = {index for record in gsub.FeatureList.FeatureRecord if record.FeatureTag == "tnum"
               for index in record.Feature.LookupListIndex}  # fmt: skip
    found: dict[str, str] = {}
    for index in lookups:
        for table in gsub.LookupList.Lookup[index].SubTable:
            found |= getattr(getattr(table, "ExtSubTable", table), "mapping", {})
    return found


def main(source: str, target: str) -> None:
    font: Any = instantiateVariableFont(TTFont(source), {"wght": (400, 700)})
    even = figures_of_one_width(font)
    for table in font["cmap"].tables:
        for digit in range(0x30, 0x3A):
            table.cmap[digit] = even.get(table.cmap[digit], table.cmap[digit])
    options = Options(layout_features=list(FEATURES), flavor="woff2", hinting=False, desubroutinize=True)
    subsetter = Subsetter(options)
    subsetter.populate(unicodes=[code for first, last in RANGES for code in range(first, last + 1)])
    subsetter.subset(font)
    font.flavor = "woff2"
    font.save(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
