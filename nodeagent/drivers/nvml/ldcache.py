"""Reads /etc/ld.so.cache: where the dynamic linker finds a library.

A header (the magic, the number of entries, the length of the texts), then entries of 24 bytes (flags, where the
library's name begins, where its path begins, version of the OS, hardware capabilities), then texts ended by a zero
byte; places count from the magic. Before it may stand a cache of an older form. Source: glibc, sysdeps/generic/
dl-cache.h.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator
from pathlib import Path

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20sIIB3xI12x")
_ENTRY = struct.Struct("<iIIIQ")

#: The part of an entry's flags that tells the architecture, and its value for this machine's 64-bit libraries.
_ARCHITECTURE_MASK = 0xFF00
_ARCHITECTURES = {"x86_64": 0x0300, "aarch64": 0x0A00, "ppc64le": 0x0500}


def library_path(cache: Path, soname: str) -> str:
    """Where the 64-bit library `soname` is; empty where the cache does not exist, or does not have it."""
    wanted = _ARCHITECTURES.get(platform.machine())
    return next((path for name, flags, path in libraries(cache) if name == soname and flags == wanted), "")


def libraries(cache: Path) -> Iterator[tuple[str, int, str]]:
    """(name, architecture, path) of every entry, in the linker's order of preference."""
    try:
        content = cache.read_bytes()
    except OSError:
        return
    start = content.find(_MAGIC)
    if start < 0:
        return
    content = content[start:]
    _, count, _, _, _ = _HEADER.unpack_from(content)
    for index in range(count):
        flags, name, path, _, _ = _ENTRY.unpack_from(content, _HEADER.size + index * _ENTRY.size)
        yield _text(content, name), flags & _ARCHITECTURE_MASK, _text(content, path)


def _text(content: bytes, start: int) -> str:
    return content[start : content.index(b"\0", start)].decode(errors="replace")
