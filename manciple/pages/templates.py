"""Loads templates without their indentation, which people need and browsers do not."""

from __future__ import annotations

import re

from django.template import Origin
from django.template.loaders import filesystem

#: A line's end with what is blank around it, and lines that are. One line break is left: inline elements stay apart.
_LINE_END = re.compile(r"[ \t]*\n\s*")


class Loader(filesystem.Loader):
    """Reads from the folders of `TEMPLATES`; behind Django's cached loader, so each template is stripped once."""

    def get_contents(self, origin: Origin) -> str:
        return _LINE_END.sub("\n", super().get_contents(origin))
