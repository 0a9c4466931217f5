"""Django's PostgreSQL backend, with what a server that restarts under load asks for (see `base`)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import OperationalError

#: Of text and of text[], in pg_type.
TEXT, TEXT_ARRAY = 25, 1009
#: One dimension that begins at 1, and no NULL (array_send in PostgreSQL's arrayfuncs.c).
_HEAD, _LENGTH = struct.Struct(">iiIii"), struct.Struct(">i")


class OutcomeUnknown(OperationalError):
    """The connection broke during COMMIT: whether what the transaction wrote stands, only the database knows."""


@dataclass(frozen=True, slots=True)
class TextArray:
    """A parameter: an array of texts that goes in PostgreSQL's own format, in which long texts are as they are, with no
    quote in them escaped here and read there.
    """

    texts: Sequence[str]

    def binary(self) -> bytes:
        encoded = [text.encode() for text in self.texts]
        parts = [_HEAD.pack(1, 0, TEXT, len(encoded), 1)]
        for one in encoded:
            # A text of PostgreSQL's holds no NUL.
            kept = one.replace(b"\0", b"\xef\xbf\xbd") if b"\0" in one else one
            parts += (_LENGTH.pack(len(kept)), kept)
        return b"".join(parts)
