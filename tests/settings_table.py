"""`make docs`: the table of settings in docs/how-to/operating.md, from their declarations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from manciple.declared_settings import SETTINGS, Setting

PAGE = Path(__file__).resolve().parents[1] / "docs" / "how-to" / "operating.md"
BEGIN = "<!-- Written by `make docs` from manciple/declared_settings.py. -->\n\n"
END = "\n<!-- End of the settings. -->\n"
HEAD = """\
| variable | value | default | meaning |
| --- | --- | --- | --- |
| `MANCIPLE_CONFIG` | path | `/etc/manciple/manciple.toml` for an installed `manciple`, none in a checkout | \
a file (TOML) with any of the settings below ([installing.md](installing.md#configuration)); `--config FILE` of every \
command sets it |
"""


def with_table(page: str) -> str:
    """The page with its table written again."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "".join([before, BEGIN, HEAD, *map(row, SETTINGS.values()), END, after])


def row(setting: Setting[Any]) -> str:
    default = setting.default_text or shown(setting.default)
    return f"| `{setting.name}` | {setting.type.shape} | {default} | {setting.meaning} |\n"


def shown(default: object) -> str:
    match default:
        case bool():
            return str(int(default))
        case float():
            return f"{default:g}"
        case "" | () | {}:
            return "none"
        case tuple():
            return f"`{','.join(default)}`"
        case str():
            return f"`{default}`"
    return str(default)


def undescribed() -> Iterator[str]:
    """Settings whose default is worked out, and described nowhere."""
    return (setting.name for setting in SETTINGS.values() if setting.default is None and not setting.default_text)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
