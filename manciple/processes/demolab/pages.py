"""Every page of the dashboard, with an address that exists in the laboratory: for screenshots and tests of all pages.

The list comes from the URL conf. A route with parameters needs an example in `EXAMPLES`; where one is missing,
`every_page` says so, so that a new page cannot be forgotten.
"""

from __future__ import annotations

import base64
import os
import shutil
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.urls import URLPattern, get_resolver, reverse

from manciple.access.authorization import routes

#: Where views of pages are, and what is there besides: sign-in has no page of the laboratory, REST is no page.
_PAGES, _NO_PAGES = "dashboard.", ("dashboard.rest", "dashboard.kit.signing_in")

#: Under which names the laboratory has them.
#: The UID of a pod that was deleted.
ENDED_POD = "7d2f9c1e-5b3a-4e8d-9f60-1a2b3c4d5e6f"
OPEN_INCIDENT, CLOSED_INCIDENT = "09a5c1e07f3b2d64", "3c7e91f05a2b8d46"
SHARED_VIEW = "lab-views-01"

_PARTITION = {"driver": "gpu.nvidia.com", "pool": "gpu-b09", "device": "gpu-0-mig-1g10gb-0"}
_GPU = {"driver": "gpu.nvidia.com", "pool": "gpu-b08", "device": "gpu-0"}
_METERED = {"driver": "gpu.nvidia.com", "pool": "gpu-a05", "device": "gpu-7"}
_WAITING = {"namespace": "climate-ml", "name": "downscale-era5-full-1"}
_RUNNING = {"namespace": "teaching", "name": "course-dl-shared-anna"}


class NoExample(LookupError):
    """A route has parameters, and nobody said which to try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageExample:
    """One address of a route. `label`: what tells it from the route's other examples, "" for the first."""

    label: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    query: str = ""


#: Devices of one node that are held.
_CHOSEN = "at=gpu.nvidia.com/gpu-a17/gpu-0&at=gpu.nvidia.com/gpu-a17/gpu-1&at=gpu.nvidia.com/gpu-a17/gpu-2"
#: URL name -> addresses worth looking at; a route without parameters has a plain one besides.
EXAMPLES: dict[str, tuple[PageExample, ...]] = {
    "device": (
        PageExample(parameters=_GPU),
        PageExample(label="partition", parameters=_PARTITION),
        PageExample(label="metered", parameters=_METERED),
    ),
    "claim": (
        PageExample(parameters={"namespace": "teaching", "name": "course-gpu"}),
        PageExample(label="leaked", parameters={"namespace": "robotics", "name": "sim2real-batch"}),
        PageExample(label="kept", parameters={"namespace": "protein-fold", "name": "af3-screen-results"}),
        PageExample(label="history", parameters={"namespace": "teaching", "name": "course-gpu"}, query="tab=history"),
    ),
    "template": (
        PageExample(parameters={"namespace": "climate-ml", "name": "mi300x-8"}),
        PageExample(label="history", parameters={"namespace": "climate-ml", "name": "mi300x-8"}, query="tab=history"),
    ),
    "pod": (
        PageExample(parameters=_WAITING),
        PageExample(label="running", parameters=_RUNNING),
        PageExample(label="slice-short", parameters={"namespace": "protein-fold", "name": "docking-repeat-1"}),
        PageExample(label="no-match", parameters={"namespace": "vision", "name": "video-caption-long"}),
        PageExample(label="no-class", parameters={"namespace": "vision", "name": "clip-eval-9"}),
        PageExample(label="history", parameters=_RUNNING, query="tab=history"),
        PageExample(label="logs", parameters=_RUNNING, query="tab=logs&timestamps=1"),
        PageExample(label="terminal", parameters=_RUNNING, query="tab=terminal"),
    ),
    "pod-replace": (
        PageExample(parameters={"namespace": "vision", "name": "video-caption-long"}, query="without=gpus/gpu:1"),
    ),
    "pod-new": (PageExample(label="yaml", query="from=yaml"), PageExample(label="job", query="kind=Job")),
    "class-diagnostics": (PageExample(parameters={"what": "yaml"}),),
    "class-edit": (
        PageExample(parameters={"name": "gpu-h200"}),
        PageExample(label="history", parameters={"name": "gpu-h200"}, query="tab=history"),
    ),
    "devices-act": (
        PageExample(parameters={"act": "drain"}, query=_CHOSEN),
        PageExample(label="taint", parameters={"act": "taint"}, query=_CHOSEN),
        PageExample(label="untaint", parameters={"act": "untaint"}, query="at=gpu.nvidia.com/gpu-a17/gpu-0"),
        PageExample(label="selector", parameters={"act": "selector"}, query=_CHOSEN),
        PageExample(label="list", parameters={"act": "list"}, query="matching=state%3Dfree"),
    ),
    "taint-rule": (
        PageExample(parameters={"name": "firmware-gpu-a17"}),
        PageExample(label="history", parameters={"name": "firmware-gpu-a17"}, query="tab=history"),
    ),
    "taint-rule-new": (
        PageExample(label="preview", query="name=firmware&pool=gpu-a17&key=lab.example.org/firmware&effect=NoExecute"),
    ),
    "yaml": (
        PageExample(parameters={"resource": "nodes", "name": "gpu-a12"}),
        PageExample(label="quota", parameters={"resource": "resourcequotas", "name": "course"}, query="ns=teaching"),
    ),
    "node": (
        PageExample(parameters={"name": "gpu-b04"}),
        PageExample(label="drain", parameters={"name": "gpu-a17"}, query="change=drain"),
        PageExample(label="cordoned", parameters={"name": "gpu-a12"}),
        PageExample(label="history", parameters={"name": "gpu-a12"}, query="tab=history"),
    ),
    "driver": (
        PageExample(parameters={"name": "gpu.nvidia.com"}),
        PageExample(label="history", parameters={"name": "gpu.nvidia.com"}, query="tab=history"),
    ),
    "namespace": (
        PageExample(parameters={"name": "nlp-lab"}),
        PageExample(label="history", parameters={"name": "nlp-lab"}, query="tab=history"),
    ),
    "quota": (
        PageExample(parameters={"namespace": "teaching", "name": "course"}),
        PageExample(
            label="tried",
            parameters={"namespace": "nlp-lab", "name": "gpus"},
            query="try=1&hard.gpu-hopper.deviceclass.resource.k8s.io/devices=4"
            "&hard.gpu-h200.deviceclass.resource.k8s.io/devices=1&hard.pods=20&key=requests.cpu&value=64",
        ),
        PageExample(label="history", parameters={"namespace": "nlp-lab", "name": "gpus"}, query="tab=history"),
    ),
    "audit": (PageExample(label="system", query="system=1"),),
    "people": (PageExample(label="one", query="who=admin"),),
    "role": (PageExample(parameters={"name": "edit"}),),
    "access": (
        PageExample(label="one", query="user=admin"),
        PageExample(label="question", query="user=bob&groups=namespace:vision&verb=create&resource=pods&ns=teaching"),
    ),
    "manual-page": (
        PageExample(parameters={"name": "dashboard"}),
        PageExample(label="glossary", parameters={"name": "glossary"}),
    ),
    "notifications-confirm": (PageExample(parameters={"token": "out-of-date"}),),
    "notifications-unsubscribe": (PageExample(parameters={"token": "out-of-date"}),),
    "incident": (
        PageExample(parameters={"name": OPEN_INCIDENT}),
        PageExample(label="closed", parameters={"name": CLOSED_INCIDENT}),
    ),
    "ending": (PageExample(parameters={"name": ENDED_POD}),),
    "incidents": (PageExample(label="node", query="node=gpu-a03"),),
    "view": (PageExample(parameters={"name": SHARED_VIEW}),),
    "workload": (
        PageExample(parameters={"resource": "deployments", "namespace": "vision", "name": "sweep-viewer"}),
        PageExample(
            label="rollout",
            parameters={"resource": "deployments", "namespace": "vision", "name": "sweep-viewer"},
            query="tab=rollout",
        ),
        PageExample(label="job", parameters={"resource": "jobs", "namespace": "vision", "name": "clip-sweep"}),
        PageExample(
            label="cron-job", parameters={"resource": "cronjobs", "namespace": "vision", "name": "nightly-eval"}
        ),
    ),
    "autoscaler": (PageExample(parameters={"namespace": "vision", "name": "sweep-viewer"}),),
    "workload-act": (
        PageExample(
            parameters={"resource": "deployments", "namespace": "vision", "name": "sweep-viewer", "act": "scale"},
            query="pods=2",
        ),
        PageExample(
            label="delete",
            parameters={"resource": "deployments", "namespace": "vision", "name": "sweep-viewer", "act": "delete"},
        ),
    ),
    "pods": (PageExample(label="dense", query="dense=1&cols=pod,namespace,status,devices,claims"),),
    "bulk": (
        PageExample(
            parameters={"resource": "pods", "act": "delete"},
            query="pick=teaching/course-dl-shared-anna&pick=climate-ml/downscale-era5-full-1",
        ),
        PageExample(label="drain", parameters={"resource": "nodes", "act": "drain"}, query="pick=gpu-a17&pick=gpu-a12"),
        PageExample(
            label="claims",
            parameters={"resource": "resourceclaims.resource.k8s.io", "act": "delete"},
            query="pick=teaching/course-gpu&pick=robotics/sim2real-batch",
        ),
    ),
    "what-if": (
        PageExample(label="pod", query="pod=climate-ml/downscale-era5-full-1&replicas=2&nodes=1&shape=gpu-d03"),
    ),
    "devices": (PageExample(label="panel", query="at=gpu.nvidia.com/gpu-a17/gpu-2"),),
    "find": (PageExample(label="llama", query="q=llama"), PageExample(label="nothing", query="q=no-such-thing")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAddress:
    """One page to look at."""

    route: str  # the URL's name
    label: str
    path: str

    @property
    def name(self) -> str:
        """The name of its screenshot."""
        return f"{self.route}-{self.label}" if self.label else self.route


def every_page() -> list[PageAddress]:
    """All addresses, parts of pages included: whoever opens them sees whether the answer is a whole document.

    Raises: NoExample.
    """
    return [page for pattern in _page_patterns() for page in _addresses(pattern)]


def is_document(content_type: str, text: str) -> bool:
    """Whether an answer is a whole page, not a part of one."""
    return content_type.startswith("text/html") and "<!doctype" in text[:200].lower()


def _page_patterns() -> Iterator[URLPattern]:
    for _, pattern in routes(get_resolver().url_patterns):
        module = getattr(pattern.callback, "__module__", "")
        if module.startswith(_PAGES) and not module.startswith(_NO_PAGES):
            yield pattern


def _addresses(pattern: URLPattern) -> Iterator[PageAddress]:
    name = pattern.name or ""
    wanted = set(pattern.pattern.regex.groupindex)
    if not wanted:
        yield PageAddress(route=name, label="", path=reverse(name))
    examples = EXAMPLES.get(name) or _examples_of_kin(pattern, wanted)
    if wanted and not examples:
        raise NoExample(f"the page {name!r} needs {', '.join(sorted(wanted))}: add an example to {__name__}")
    for example in examples:
        query = f"?{example.query}" if example.query else ""
        path = reverse(name, kwargs=dict(example.parameters)) if wanted else reverse(name)
        yield PageAddress(route=name, label=example.label, path=path + query)


def _examples_of_kin(pattern: URLPattern, wanted: set[str]) -> tuple[PageExample, ...]:
    """A route below another one ("pods/NS/NAME/delete") takes the other's first example."""
    route = str(pattern.pattern)
    for other in _page_patterns():
        parent = str(other.pattern)
        if (other.name or "") in EXAMPLES and route.startswith(f"{parent}/"):
            example = EXAMPLES[other.name or ""][0]
            if set(example.parameters) == wanted:
                return (PageExample(parameters=example.parameters),)
    return ()


# The browser that looks at them --------------------------------------------------------------------------------------

#: Best first. The headless shell draws the same pages without a browser's window around them, for two thirds of the
#: processor time.
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser")
MISSING = f"none of {', '.join(PROGRAMS)} is installed; MANCIPLE_CHROMIUM names one elsewhere"


def find_browser() -> str | None:
    """MANCIPLE_CHROMIUM, or the path of the first of PROGRAMS that is installed."""
    found = (shutil.which(name) for name in PROGRAMS)
    return os.environ.get("MANCIPLE_CHROMIUM") or next((path for path in found if path), None)


# Makes PNG screenshots small: a page has few colours, so 256 of them in a palette are enough. The browser that
# took the screenshot counts the colours and packs the pixels; here they are put into a file.

_COUNT_AND_PACK = """async (picture) => {
  const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${picture}`)).blob());
  const { width, height } = image;
  const context = new OffscreenCanvas(width, height).getContext("2d", { colorSpace: "srgb" });
  context.drawImage(image, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, width, height).data.buffer);
  const counted = new Map();
  for (const pixel of pixels) counted.set(pixel, (counted.get(pixel) ?? 0) + 1);
  const palette = [...counted].sort((one, other) => other[1] - one[1]).slice(0, 256).map(([pixel]) => pixel);
  const parts = (pixel) => [pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255];
  const colours = palette.map(parts);
  const nearest = (pixel) => {
    const [red, green, blue] = parts(pixel);
    let best = 0, least = Infinity;
    colours.forEach(([r, g, b], index) => {
      const distance = (r - red) ** 2 + (g - green) ** 2 + (b - blue) ** 2;
      if (distance < least) { least = distance; best = index; }
    });
    return best;
  };
  const index = new Map(palette.map((pixel, at) => [pixel, at]));
  const rows = new Uint8Array(height * (width + 1)); // each begins with 0: no filter
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) {
    const pixel = pixels[y * width + x];
    if (!index.has(pixel)) index.set(pixel, nearest(pixel));
    rows[y * (width + 1) + x + 1] = index.get(pixel);
  }
  const packed = new Response(new Blob([rows]).stream().pipeThrough(new CompressionStream("deflate")));
  let text = "";
  for (const byte of new Uint8Array(await packed.arrayBuffer())) text += String.fromCharCode(byte);
  return { width, height, colours: colours.flat(), data: btoa(text) };
}"""


def shrunk(page: Any, picture: bytes) -> bytes:
    """`picture` with a palette; unchanged where that is not smaller. page: a blank page of the browser."""
    found = page.evaluate(_COUNT_AND_PACK, base64.b64encode(picture).decode())
    header = struct.pack(">IIBBBBB", found["width"], found["height"], 8, 3, 0, 0, 0)
    pixels = zlib.compress(zlib.decompress(base64.b64decode(found["data"])), 9)
    chunks = ((b"IHDR", header), (b"PLTE", bytes(found["colours"])), (b"IDAT", pixels), (b"IEND", b""))
    small = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)
    return small if len(small) < len(picture) else picture


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
