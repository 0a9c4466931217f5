"""The limit of open files of this process (RLIMIT_NOFILE). PURE.

Each connection is a file. systemd and Debian start processes with a soft limit of 1,024, for programs that use
select(2), and a hard limit that is far higher.
"""

from __future__ import annotations

import resource
from contextlib import suppress

#: Assumed where there is no limit.
UNLIMITED = 1 << 20
#: What deploy/ sets; and below what `doctor` warns: a process then has no room for the watches of a thousand nodes.
RECOMMENDED, LEAST = 65_536, 8_192


def raise_limit() -> int:
    """Raise the soft limit to the hard limit. Returns the soft limit that is in effect then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # macOS refuses an infinite soft limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return limit()


def limit() -> int:
    """The soft limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft
