"""The driver program as a child process: started, killed, given orders, and what it has written down."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.processes import Process, wait_for
from tests.plugin_driver.orders import Order, Orders, Report, write_orders

__all__ = ["DriverProcess", "Order", "Orders", "Report"]

PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"
Entry = dict[str, Any]


@dataclass
class DriverProcess:
    """One instance of a driver. folder: for orders and journal; options: the other options of the program."""

    name: str
    folder: Path
    options: Sequence[str]
    uid: str = ""
    orders: Orders = field(default_factory=Orders)

    @property
    def journal(self) -> Path:
        return self.folder / f"journal{self.uid}"

    def start(self) -> DriverProcess:
        """Returns at once; `registered` waits."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.order(self.orders)
        self.process = Process(
            [
                *(sys.executable, "-m", "tests.plugin_driver", "--driver", self.name),
                *("--orders", str(self._orders_file), "--journal", str(self.journal)),
                *(("--uid", self.uid) if self.uid else ()),
                *self.options,
            ]
        ).start()
        return self

    @property
    def _orders_file(self) -> Path:
        return self.folder / f"orders{self.uid}.json"

    def order(self, orders: Orders) -> None:
        self.orders = orders
        write_orders(self._orders_file, orders)

    def on(self, kind: str, mode: str, *claims: str) -> None:
        """Let calls of a kind ("prepare", "unprepare") end in a mode; those about `claims` only, where named."""
        order = Order(mode=mode, only=claims or None)
        changed = {name: getattr(self.orders, name) for name in Orders.__struct_fields__}
        self.order(Orders(**{**changed, kind: order}))

    def entries(self, call: str) -> list[Entry]:
        """What was written down of a kind of call, in order."""
        if not self.journal.exists():
            return []
        lines = self.journal.read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["call"] == call]

    def begun(self, call: str) -> list[Entry]:
        return [entry for entry in self.entries(call) if entry["phase"] == "begin"]

    def ended(self, call: str, *, well: bool) -> list[Entry]:
        """The calls that ended, all claims of them well, or not."""
        ends = [entry for entry in self.entries(call) if entry["phase"] == "end"]
        return [entry for entry in ends if (not entry["error"] and not entry["errors"]) is well]

    def registrations(self) -> int:
        return sum(entry["registered"] for entry in self.entries("NotifyRegistrationStatus"))

    def registered(self, times: int = 1) -> DriverProcess:
        """Wait until it has been registered so many times in all."""
        wait_for(f"{self.name} to be registered {times} times", lambda: self.registrations() >= times)
        return self

    def kill(self) -> None:
        """kill -9: its sockets stay."""
        self.process.kill()

    def stop(self) -> None:
        """As a pod of a driver is stopped: it removes its sockets."""
        assert self.process.stop() == 0, "\n".join(self.process.output)

    def died(self) -> bool:
        return not self.process.running
