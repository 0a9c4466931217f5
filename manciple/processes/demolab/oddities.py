"""What is out of order in the laboratory: pods that wait, each for a real reason, and claims that are stuck.

Nothing is said here about why: the scheduler finds that out, and the pages tell it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from manciple.processes.demolab.documents import request
from manciple.processes.demolab.hardware import NVIDIA, Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A pod that cannot be placed. template: of its claim. age: minutes since it was created."""

    namespace: str
    name: str
    template: str
    request: Document
    age: float
    node_selector: Document = field(default_factory=dict)

    @property
    def since(self) -> timedelta:
        return timedelta(minutes=self.age)


def waiting() -> Iterator[Waiting]:
    """Fourteen pods."""
    rack = f'device.attributes["{NVIDIA}"].rack'
    # Every matching device is held.
    r5 = request("gpu-h200", count=2, cel=[f'{rack} == "r5" && device.attributes["{NVIDIA}"].numaNode == 1'])
    for number, age in ((3, 192), (4, 47.5), (5, 46)):
        yield Waiting(namespace="nlp-lab", name=f"llama-eval-next-{number}", template="h200-r5", request=r5, age=age)
    r2 = request("gpu-hopper", count=4, cel=[f'{rack} == "r2"'])
    for space, name, age in (
        ("vision", "clip-train-rack-2", 88),
        ("climate-ml", "graphcast-ft-rack-2", 31),
        ("robotics", "grasp-policy-rack-2", 12),
    ):
        yield Waiting(namespace=space, name=name, template="hopper-4-rack-2", request=r2, age=age)
    # No node has that many free.
    eight = request("gpu-mi300x", count=8)
    for space, name, age in (
        ("climate-ml", "downscale-era5-full-1", 154),
        ("climate-ml", "downscale-era5-full-2", 153),
        ("protein-fold", "esm-embed-all", 63),
        ("speech", "whisper-ft-large", 9),
    ):
        yield Waiting(namespace=space, name=name, template="mi300x-8", request=eight, age=age)
    # The pool of gpu-b04 is a slice short.
    pinned = {"kubernetes.io/hostname": "gpu-b04"}
    for number, age in ((1, 41), (2, 40)):
        yield Waiting(
            namespace="protein-fold", name=f"docking-repeat-{number}", template="a100-2",
            request=request("gpu-a100", count=2), age=age, node_selector=pinned,
        )  # fmt: skip
    # No device is like that; no class is called that.
    huge = f'device.capacity["{NVIDIA}"].memory.compareTo(quantity("200Gi")) >= 0'
    yield Waiting(
        namespace="vision", name="video-caption-long", template="huge-memory",
        request=request("gpu-hopper", cel=[huge]), age=22,
    )  # fmt: skip
    yield Waiting(namespace="vision", name="clip-eval-9", template="h100-1", request=request("gpu-h100"), age=5)


#: A pod on this machine was told to end, and its node never said that it did.
ENDLESS_MACHINE = "gpu-a12"
ENDLESS_SINCE = timedelta(minutes=47)
#: A claim that was deleted, and that somebody's finalizer keeps.
KEPT_CLAIM = ("protein-fold", "af3-screen-results")
KEPT_BY = "export.example.org/usage-report"
KEPT_SINCE = timedelta(hours=3, minutes=20)
#: A claim that is reserved for a job that is gone: its controller never took the reservation back.
LEAKED_CLAIM = ("robotics", "sim2real-batch")
LEAKED_JOB = "sim2real-batch-2211"
LEAKED_SINCE = timedelta(days=2, hours=5)
#: The devices of the leaked claim (nothing of the plan runs there), and of the one that a course shares.
LEAKED_AT = ("gpu-b08", 2)
SHARED_AT = ("gpu-c04", 1)
#: A claim that several pods share.
SHARED_CLAIM = ("teaching", "course-gpu")
SHARED_BY = ("course-dl-shared-anna", "course-dl-shared-ben", "course-dl-shared-chloe")
#: A claim that nobody has used yet.
SPARE_CLAIM = ("speech", "whisper-ft-spare")
#: Looks on without holding anything: a monitor with admin access.
MONITOR = ("infra-ci", "dcgm-monitor", "gpu-a01")
#: Pods that ended: (namespace, name, phase, minutes ago).
ENDED = (
    ("nlp-lab", "tokenizer-sweep-done", "Succeeded", 26),
    ("vision", "clip-eval-8", "Succeeded", 58),
    ("speech", "diarize-eval-old", "Failed", 74),
)
