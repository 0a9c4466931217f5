"""One call of the driver at a time, as drivers may expect of the kubelet's library unless they opt out."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path


class Serializer:
    """enabled: False lets calls run side by side. lock_file: shared with the other instances of the driver, if any."""

    def __init__(self, *, enabled: bool = True, lock_file: Path | None = None) -> None:
        self._lock = threading.Lock() if enabled else nullcontext()
        self._lock_file = lock_file if enabled else None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Waits for its turn. Raises: OSError for a lock file that cannot be used."""
        with self._lock:
            if self._lock_file is None:
                yield
                return
            with self._lock_file.open("ab") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # given back when the file is closed, however the process ends
                yield
