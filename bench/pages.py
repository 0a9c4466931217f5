"""How pages feel with 5,000 devices: `python bench/pages.py` prints every figure beside its budget.

It serves the demo's large laboratory as `manage.py demo --serve` does (one process, SQLite) and looks at it in
Chromium:

    server time     of the device grid, from request to last byte; of the lists, the CPU of the server
    interactive     from the navigation until scripts have run and no long task follows
    frames          while 50 changes a second stream in: the fewest drawn in any second; what the page's thread was busy
                    with, and its longest stretch without a pause, in its own CPU, which other work does not change: a
                    stretch that fits into a frame of 60 a second, 16.7 ms, costs no frame
    scrolling       the same while somebody scrolls through the grid

The browser, the server and the changes share this machine, where a person's browser has its own: so the other two give
way to it. The machine's load is told, because figures taken on a busy one compare only with each other. `--json` prints
a line of JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")

from cases.figures import Figure
from playwright.sync_api import Page

from tests.e2e.pages.browser import launched, new_context, signed_in
from tests.e2e.pages.demo import Demo, served

REPEATS = 9
#: Pages of which every one is answered from all nodes or devices.
LISTS = (
    "/overview", "/claims", "/pods", "/nodes", "/nodes?sort=-memory", "/classes", "/drivers", "/templates", "/quotas",
    "/namespaces", "/incidents", "/events", "/usage", "/timeline", "/find?q=gpu-a123", "/pods/new",
)  # fmt: skip
#: Changes a second, and for how many seconds.
RATE, SECONDS = 50, 10

_INTERACTIVE = """() => new Promise((resolve) => {
  const tasks = [];
  new PerformanceObserver((list) => tasks.push(...list.getEntries())).observe({ type: "longtask", buffered: true });
  setTimeout(() => {
    const [page] = performance.getEntriesByType("navigation");
    resolve(Math.max(page.domContentLoadedEventEnd, ...tasks.map((one) => one.startTime + one.duration)));
  }, 500);
})"""
_COUNT_FRAMES = """() => {
  window.frames_ = [];
  const tick = (now) => { window.frames_.push(now); requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
}"""
_FEWEST = """() => {
  const times = window.frames_;
  let fewest = Infinity;
  for (let at = times[0]; at + 1000 <= times.at(-1); at += 250) {
    // Half a frame more than a second: of sixty that come in time, the last may just fall out of it.
    fewest = Math.min(fewest, times.filter((one) => one >= at && one < at + 1008).length);
  }
  return fewest;
}"""
_SCROLL = """() => {
  const scroller = document.querySelector("[data-scroller]") ?? document.scrollingElement;
  let down = true;
  setInterval(() => {
    const before = scroller.scrollTop;
    scroller.scrollBy(0, down ? 40 : -40);
    if (scroller.scrollTop === before) down = !down;
  }, 16);
}"""


def measure(demo: Demo, page: Page) -> list[Figure]:
    page.goto(f"{demo.web}/devices")
    server, interactive = [], []
    for _ in range(REPEATS):
        page.reload(wait_until="load")
        interactive.append(page.evaluate(_INTERACTIVE))
        timing = page.evaluate("performance.getEntriesByType('navigation')[0].toJSON()")
        server.append(timing["responseEnd"] - timing["requestStart"])
    found = [
        Figure(name="/devices, 5,000 devices: server time", value=median(server), unit="ms", budget=300),
        Figure(name="/devices, 5,000 devices: interactive", value=median(interactive), unit="ms", budget=1000),
    ]
    for name, before in (("", ""), (" while scrolling", _SCROLL)):
        if before:
            page.evaluate(before)
        with _changes(demo) as made:
            page.evaluate(_COUNT_FRAMES)
            page.wait_for_timeout(SECONDS * 1000)
            fewest = page.evaluate(_FEWEST)
            with _traced(page) as busy:  # a trace costs frames of its own
                page.wait_for_timeout(SECONDS * 1000)
        label = f"{made[0]:.0f} changes/s{name}"
        found += [
            Figure(name=f"{label}: frames", value=fewest, unit="fps", budget=60, at_least=True),
            Figure(name=f"{label}: busy", value=sum(busy) / SECONDS / 10, unit="%"),
            Figure(name=f"{label}: longest stretch", value=max(busy), unit="ms CPU", budget=FRAME),
            Figure(
                name=f"{label}: longer than a frame", value=sum(one > FRAME for one in busy), unit="times", budget=0
            ),
        ]
        page.reload(wait_until="load")
    return found + list(_lists(demo, page))


def _lists(demo: Demo, page: Page) -> Iterator[Figure]:
    """The CPU of the server for each, in the middle of some: it schedules and looks after itself meanwhile."""
    for path in LISTS:
        page.request.get(demo.web + path)
        took = []
        for _ in range(5):
            began = demo.process.worked()
            answer = page.request.get(demo.web + path)
            assert answer.ok, path
            took.append((demo.process.worked() - began) * 1000)
        yield Figure(name=f"{path}: server", value=median(took), unit="ms CPU", budget=300)


#: Of 0 to 19, how far those give way that a browser would not meet on its own machine.
NICE = 10
#: Milliseconds of a frame, of 60 a second.
FRAME = 1000 / 60


@contextmanager
def _traced(page: Page) -> Iterator[list[float]]:
    """At its end the list holds the tasks of the page's thread: milliseconds of CPU of each."""
    browser = page.context.browser
    assert browser is not None
    browser.start_tracing(
        page=page, categories=["disabled-by-default-devtools.timeline", "devtools.timeline", "toplevel"]
    )
    busy: list[float] = []
    yield busy
    events = json.loads(browser.stop_tracing())["traceEvents"]
    threads = {(one["pid"], one["tid"]) for one in events if one.get("args", {}).get("name") == "CrRendererMain"}
    tasks = [one for one in events if one["name"] == "RunTask" and (one["pid"], one["tid"]) in threads]
    process = max(
        threads, key=lambda thread: sum(one.get("tdur", 0) for one in tasks if (one["pid"], one["tid"]) == thread)
    )
    busy += [one.get("tdur", 0) / 1000 for one in tasks if (one["pid"], one["tid"]) == process]


def _give_way(pid: int) -> None:
    """Let a process with a session of its own have what others leave of the cores (Linux: man 7 sched, autogroups)."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(thread.name), NICE)
    with suppress(OSError):  # a kernel that knows no groups
        Path(f"/proc/{pid}/autogroup").write_text(str(NICE))


@contextmanager
def _changes(demo: Demo) -> Iterator[list[float]]:
    """RATE changes of devices a second, by a process beside the server; at its end the list holds how many it made.

    A node cordoned and back through the API, ten times a second, wakes the server as its own scheduler would: what
    others commit it finds twice a second by itself.
    """
    command = [sys.executable, str(Path(__file__).parent / "cases" / "changes.py"), str(demo.home), str(RATE)]
    program = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    _give_way(program.pid)
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    node = demo.get("/api/v1/nodes?limit=1")["items"][0]["metadata"]["name"]
    stopping = threading.Event()

    def wake() -> None:
        for round_ in itertools.count():
            if stopping.wait(0.1):
                return
            demo.cordon(node, cordoned=round_ % 2 == 0)

    waking = threading.Thread(target=wake)
    waking.start()
    made: list[float] = []
    try:
        yield made
    finally:
        stopping.set()
        program.stdin.close()
        made.append(float(program.stdout.readline()))
        program.wait()
        waking.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--home", type=Path, help="a large laboratory that there is already; it is left changed")
    options = parser.parse_args()
    home = tempfile.TemporaryDirectory(prefix="manciple-bench-")
    manage = [sys.executable, str(Path(__file__).resolve().parent.parent / "manage.py")]
    with home:
        where = options.home or Path(home.name)
        if options.home is None:
            subprocess.run(
                [*manage, "demo", "--size", "large", "--home", str(where)], check=True, stdout=subprocess.DEVNULL
            )
        figures = _measured(where)
    load = os.getloadavg()[0]
    if options.json:
        print(json.dumps({"case": "pages", "load": load, "figures": [asdict(figure) for figure in figures]}))
        return
    print(f"-- pages (load average {load:.1f}, {os.cpu_count()} cores)")
    for figure in figures:
        print(figure.row())


def _measured(home: Path) -> list[Figure]:
    with served(home) as demo, launched() as chromium:
        _give_way(demo.process.pid)
        context = new_context(chromium, state=signed_in(demo.web, "admin", demo.passwords["admin"]))
        page = context.new_page()
        figures = measure(demo, page)
        context.close()
    return figures


if __name__ == "__main__":
    main()
