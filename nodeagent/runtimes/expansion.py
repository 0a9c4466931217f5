"""`$(NAME)` in commands, arguments and values of variables.

`$$` is a dollar sign, a reference to an unknown name stays as it is written, and so does anything else.
Source: kubernetes third_party/forked/golang/expansion.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_TERM = re.compile(r"\$(?:\$|\((?P<name>[^)]*)\))")


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """`text` with its references replaced by the values of `variables`."""

    def value(match: re.Match[str]) -> str:
        name = match["name"]
        return "$" if name is None else variables.get(name, match[0])

    return _TERM.sub(value, text)
