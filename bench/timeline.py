"""What the timeline costs with much history: `python bench/timeline.py` prints the milliseconds of CPU of each page.

5,000 devices stand in the index tables of an in-memory database. In the last 24 hours each was held and released, and
was tainted and became sound again, `--changes` times in all. Whoever asks sees everything, through Django's client, and
nothing is cached from one GET to the next; a figure is the least of `--rounds`.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from datetime import UTC, datetime, timedelta

import cases.in_memory  # noqa: F401 - before any model
from cases.figures import Figure
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from claims.models import PastAllocation
from inventory.models import Impairment, Incident
from manciple.store import objects
from manciple.wire.resources import SLICES, kind
from tests.builders import DRIVER, make_devices, make_slice

NODES, EACH = 625, 8
DAY = timedelta(hours=24)
#: What each is asked for with, and its budget in milliseconds.
PAGES = {
    "/timeline": 400,
    "/timeline?page=40": 400,
    "/timeline?by=class": 500,
    "/timeline?by=model": 1000,
    "/timeline?by=namespace": 500,
    "/timeline?node=gpu-0100": 400,
    "/usage?by=class": 500,
}


def fill(changes: int) -> None:
    """So many devices were held, and so many tainted."""
    call_command("migrate", verbosity=0)
    for first in range(0, NODES, 125):
        with objects.writing() as writer:
            for index in range(first, first + 125):
                writer.create(kind(SLICES), make_slice(node=f"gpu-{index:04}", devices=make_devices(EACH)))
    now = datetime.now(UTC)
    each = DAY * NODES * EACH / changes
    held, impaired = [], []
    for number in range(changes):
        at = now - DAY + (number // (NODES * EACH)) * each + timedelta(seconds=number % 97)
        node, device = f"gpu-{number // EACH % NODES:04}", f"gpu-{number % EACH}"
        place = {"driver": DRIVER, "pool": node, "device": device, "node": node}
        held.append(
            PastAllocation(
                **place, device_class=f"class-{number % 4}", claim_uid=f"uid-{number}", namespace=f"team-{number % 30}",
                claim=f"claim-{number}", pods=[f"pod-{number}"], admin_access=False, share_id="", consumed_capacity={},
                began_at=at, ended_at=at + each / 2,
            )
        )  # fmt: skip
        impaired.append(
            Impairment(
                **place, incident_id=f"{number // EACH:016x}", source="driver", reporter="", key="example.com/hot",
                value="", effect="NoSchedule", message="", unhealthy=False, began_at=at + each / 2,
                ended_at=at + each * 3 / 4,
            )
        )  # fmt: skip
    PastAllocation.objects.bulk_create(held, batch_size=2000)
    Impairment.objects.bulk_create(impaired, batch_size=2000)
    names = sorted({one.incident_id for one in impaired})
    Incident.objects.bulk_create(
        (Incident(id=one, unhealthy=False, driver=DRIVER, pool="", key="example.com/hot", value="", began_at=now,
                  ended_at=now, touched_at=now) for one in names),
        batch_size=2000,
    )  # fmt: skip


def cost(client: Client, path: str, rounds: int) -> float:
    """Milliseconds of CPU, the least of some."""
    costs = []
    for _ in range(rounds):
        began = time.process_time()
        assert client.get(path).status_code == 200
        costs.append(1000 * (time.process_time() - began))
    return min(costs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=40_000, help="devices held, and devices tainted")
    parser.add_argument("--rounds", type=int, default=3, help="how often each page is asked for")
    parser.add_argument("--profile", default="", metavar="PATH", help="one page, and where its time goes")
    options = parser.parse_args()
    fill(options.changes)
    client = Client()
    client.force_login(User.objects.create_user("bench", is_staff=True))
    if options.profile:
        with cProfile.Profile() as profile:
            assert client.get(options.profile).status_code == 200
        pstats.Stats(profile).sort_stats("cumulative").print_stats(45)
        return
    for path, budget in PAGES.items():
        print(Figure(name=path, value=cost(client, path, options.rounds), unit="ms", budget=budget).row(), flush=True)


if __name__ == "__main__":
    main()
