"""What Django is told of the database: SQLite in a file, or PostgreSQL on one server or several."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

#: Behind a server's name or address.
_PORT = re.compile(r":\d+$")


def sqlite(path: Path) -> dict[str, Any]:
    """WAL and immediate transactions: without them four writers meet "database is locked".

    Each thread has a connection, and what that caches stays: 8 MiB, as reading is cheap where the file is mapped.
    Deleted pages are not overwritten with zeros, as some builds of SQLite do: pruning the log would write as many bytes
    as it frees, on a disk that may be full.
    """
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": (
                "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA mmap_size=134217728;"
                "PRAGMA cache_size=-8192; PRAGMA temp_store=MEMORY; PRAGMA journal_size_limit=67108864;"
                "PRAGMA secure_delete=FAST;"
            ),
        },
    }


def postgresql(url: str, *, lock_timeout: float) -> dict[str, Any]:
    """Of a URL that may name several servers, as libpq takes them: `postgresql://u:p@a:5432,b:5432/name`.

    Connections are then made to whichever takes writes. What stands behind `?` goes to libpq as it is (sslmode, ...).
    lock_timeout: seconds.
    """
    parts = urlsplit(url)
    credentials, _, servers = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    places = [server.rpartition(":") if _PORT.search(server) else (server, "", "") for server in servers.split(",")]
    several = {"target_session_attrs": "read-write"} if len(places) > 1 else {}
    return {
        "ENGINE": "manciple.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": unquote(user),
        "PASSWORD": unquote(password),
        "HOST": ",".join(host.strip("[]") for host, _, _ in places),
        "PORT": ",".join(port for _, _, port in places) if any(port for _, _, port in places) else "",
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            **several,
            # The same few statements come over and over: parsed and planned once a connection, values beside the text.
            "server_side_binding": True,
            "prepare_threshold": 1,
            # Seconds; a server that vanished without a word is noticed after 30, also by who waits for its answer.
            "connect_timeout": 5,
            "keepalives_idle": 15,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 30_000,
            "options": f"-c lock_timeout={round(lock_timeout * 1000)} -c random_page_cost=1.1 -c jit=off",
            **dict(parse_qsl(parts.query)),
        },
    }
