"""Each check of `manciple driver check` passes a good driver and fails one that is broken in just that."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.driver_check import checks
from nodeagent.driver_check.api import CheckApi
from nodeagent.driver_check.checks import CHECKS
from nodeagent.driver_check.report import CheckResult, run_checks
from nodeagent.driver_check.subject import CheckOptions, DriverUnderTest
from nodeagent.plugins.protocol import (
    GET_INFO,
    NOTIFY,
    Device,
    DeviceIdentifier,
    DeviceReport,
    PreparedClaim,
    PrepareResponse,
    UnpreparedClaim,
    UnprepareResponse,
)
from nodeagent.serving.sockets import CallRefused
from tests.nodeagent.driver_check.saboteur import NODE, V1, Sabotaged

#: Seconds that a check waits for what a broken driver never does, and for what a good one does.
IMPATIENT, PATIENT = 0.3, 30.0

Break = Callable[[Sabotaged], None]
Good = Callable[[Any], Any]


@pytest.fixture
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sabotaged]:
    made = Sabotaged(tmp_path_factory.mktemp("d"), CheckApi(NODE))
    yield made
    made.api.close()
    made.kill()


def run(driver: Sabotaged, *only: str, wait: float = PATIENT, call: float = PATIENT) -> dict[str, CheckResult]:
    options = CheckOptions(
        socket=driver.socket, cdi_dirs=[driver.cdi_dir], wait_seconds=wait, call_seconds=call, slow=True
    )
    driver.start()
    subject = DriverUnderTest(driver.api, options, driver)
    try:
        return {result.id: result for result in run_checks(subject, CHECKS, only=only)}
    finally:
        subject.disconnect()


def test_a_good_driver_passes_everything(driver: Sabotaged) -> None:
    results = run(driver)
    assert {name: result.detail for name, result in results.items() if result.verdict != "passed"} == {}
    assert list(results) == [check.id for check in CHECKS]


def refuses(_asked: Any, _good: Good) -> Any:
    raise CallRefused("out of order")


def _dies_of_a_refusal(driver: Sabotaged) -> None:
    refused: list[bool] = []

    def notified(asked: Any, good: Good) -> Any:
        refused.append(not asked.plugin_registered)
        return good(asked)

    driver.on(NOTIFY.path, notified)
    driver.on(GET_INFO.path, lambda asked, good: refuses(asked, good) if any(refused) else good(asked))


def _says_something_else_each_time(driver: Sabotaged) -> None:
    count = itertools.count()
    driver.on(GET_INFO.path, lambda asked, good: replace(good(asked), name=f"ext{next(count)}.example.com"))


def _pool(slices: int) -> dict[str, Any]:
    return {"name": "more", "generation": 1, "resourceSliceCount": slices}


def _publishes_something_invalid(driver: Sabotaged) -> None:
    driver.publishes_besides(pool=_pool(1), allNodes=True, devices=[{"name": "A B"}])


def _publishes_for_another_node(driver: Sabotaged) -> None:
    driver.publishes_besides(pool=_pool(1), nodeName="node-2")


def _publishes_half_a_pool(driver: Sabotaged) -> None:
    driver.publishes_besides(pool=_pool(2), allNodes=True)


def _removes_its_cdi_files(driver: Sabotaged) -> None:
    def remove() -> None:
        for path in driver.cdi_dir.glob("*.json"):
            path.unlink()

    driver.after_preparing(remove)


def _writes_what_is_no_cdi(driver: Sabotaged) -> None:
    document = {"cdiVersion": "0.3.0", "kind": "k8s.ext.example.com/claim", "devices": []}

    def write() -> None:
        (driver.cdi_dir / "more.json").write_text(json.dumps(document))

    driver.after_preparing(write)


def _answers_otherwise_the_second_time(driver: Sabotaged) -> None:
    count = itertools.count()
    driver.changes_devices(lambda one: replace(one, cdi_device_ids=(f"ext.example.com/dev=d{next(count)}",)))


def _answers_for_one_claim(driver: Sabotaged) -> None:
    driver.on(V1.prepare.path, lambda asked, good: good(replace(asked, claims=asked.claims[:1])))


def _refuses_a_call_without_claims(driver: Sabotaged) -> None:
    driver.on(V1.prepare.path, lambda asked, good: good(asked) if asked.claims else refuses(asked, good))


def _prepares_a_claim_once(driver: Sabotaged) -> None:
    seen: set[str] = set()

    def prepare(asked: Any, good: Good) -> Any:
        again = bool(seen & {claim.uid for claim in asked.claims})
        seen.update(claim.uid for claim in asked.claims)
        return refuses(asked, good) if again else good(asked)

    driver.on(V1.prepare.path, prepare)


def _believes_everything(driver: Sabotaged) -> None:
    """It does not read the claim, or not what it says."""
    device = Device(pool_name=NODE, device_name="slot-0", cdi_device_ids=("ext.example.com/dev=d",))

    def prepare(asked: Any, good: Good) -> Any:
        believed = {uid: PreparedClaim(devices=(device,)) for uid in good(asked).claims}
        return PrepareResponse(claims=believed)

    driver.on(V1.prepare.path, prepare)


def _tells_of_another_claim(driver: Sabotaged) -> None:
    def spoil() -> None:
        for path in driver.folder.rglob("metadata.json"):
            document = json.loads(path.read_text().splitlines()[0])
            document["metadata"]["uid"] = "another"
            path.write_text(json.dumps(document))

    driver.after_preparing(spoil)


def _fails_each_claim(asked: Any, _good: Good) -> Any:
    return UnprepareResponse(claims={claim.uid: UnpreparedClaim(error="out of order") for claim in asked.claims})


def _gives_nothing_back(driver: Sabotaged) -> None:
    driver.on(
        V1.unprepare.path,
        lambda asked, _good: UnprepareResponse(claims={claim.uid: UnpreparedClaim() for claim in asked.claims}),
    )


def _knows_only_what_it_holds(driver: Sabotaged) -> None:
    held: set[str] = set()

    def prepare(asked: Any, good: Good) -> Any:
        held.update(claim.uid for claim in asked.claims)
        return good(asked)

    def unprepare(asked: Any, good: Good) -> Any:
        uids = {claim.uid for claim in asked.claims}
        unknown = uids - held
        held.difference_update(uids)
        return _fails_each_claim(asked, good) if unknown else good(asked)

    driver.on(V1.prepare.path, prepare)
    driver.on(V1.unprepare.path, unprepare)


def _reads_the_claim_to_give_it_back(driver: Sabotaged) -> None:
    def unprepare(asked: Any, good: Good) -> Any:
        there = {one["metadata"]["uid"] for one in driver.api._documents.values()}
        gone = {claim.uid for claim in asked.claims} - there
        return _fails_each_claim(asked, good) if gone else good(asked)

    driver.on(V1.unprepare.path, unprepare)


def _is_worn_out_by_a_second_give_back(driver: Sabotaged) -> None:
    given: list[str] = []

    def unprepare(asked: Any, good: Good) -> Any:
        given.extend(claim.uid for claim in asked.claims)
        return good(asked)

    def prepare(asked: Any, good: Good) -> Any:
        return refuses(asked, good) if len(given) > len(set(given)) else good(asked)

    driver.on(V1.unprepare.path, unprepare)
    driver.on(V1.prepare.path, prepare)


def _never_answers_in_time(driver: Sabotaged) -> None:
    driver.on(V1.prepare.path, lambda asked, good: threading.Event().wait(4 * IMPATIENT) or good(asked))


def _names_its_devices_anew_at_each_start(driver: Sabotaged) -> None:
    driver.changes_devices(lambda one: replace(one, cdi_device_ids=(f"ext.example.com/dev=d{driver.starts}",)))


def _ends_the_second_stream(driver: Sabotaged) -> None:
    count = itertools.count()
    driver.spoil_stream = lambda reports: iter(()) if next(count) else reports


def _reports(device: str, health: int) -> Break:
    report = DeviceReport(device=DeviceIdentifier(pool_name=NODE, device_name=device), health=health)

    def spoil(driver: Sabotaged) -> None:
        driver.spoil_stream = lambda reports: (replace(one, devices=(report,)) for one in reports)

    return spoil


def _has_a_device_less(driver: Sabotaged) -> None:
    driver.driver.names.pop()


def _once_killed(spoil: Break) -> Break:
    """Broken by a restart alone."""

    def break_later(driver: Sabotaged) -> None:
        def broken() -> bool:
            spoil(driver)
            return True

        driver.before_start = broken

    return break_later


def _set(**fields: Any) -> Break:
    def spoil(driver: Sabotaged) -> None:
        for name, value in fields.items():
            setattr(driver, name, value)

    return spoil


#: Check -> how a driver fails it. wait: how long the check is patient.
BROKEN: dict[str, Break] = {
    "registration.info": lambda driver: driver.on(GET_INFO.path, refuses),
    "registration.type": lambda driver: driver.changes_info(type="CSIPlugin"),
    "registration.name": lambda driver: driver.changes_info(name="GPU_Driver"),
    "registration.services": lambda driver: driver.changes_info(supported_versions=("1.0.0",)),
    "registration.endpoint": lambda driver: driver.changes_info(endpoint="/nowhere/dra.sock"),
    "registration.refused": _dies_of_a_refusal,
    "registration.confirmed": lambda driver: driver.on(NOTIFY.path, refuses),
    "registration.again": _says_something_else_each_time,
    "slices.published": lambda driver: driver.driver.names.clear(),
    "slices.valid": _publishes_something_invalid,
    "slices.node": _publishes_for_another_node,
    "slices.whole": _publishes_half_a_pool,
    "slices.restored": _set(keeps_slices=False),
    "prepare.answers": lambda driver: driver.on(V1.prepare.path, refuses),
    "prepare.devices": lambda driver: driver.changes_devices(lambda one: replace(one, device_name="other")),
    "prepare.cdi_ids": lambda driver: driver.changes_devices(lambda one: replace(one, cdi_device_ids=("gpu",))),
    "prepare.cdi_files": _removes_its_cdi_files,
    "prepare.cdi_valid": _writes_what_is_no_cdi,
    "prepare.twice": _answers_otherwise_the_second_time,
    "prepare.several": _answers_for_one_claim,
    "prepare.nothing": _refuses_a_call_without_claims,
    "prepare.given_up": _prepares_a_claim_once,
    "prepare.missing": _believes_everything,
    "prepare.replaced": _believes_everything,
    "prepare.unallocated": _believes_everything,
    "prepare.metadata": _tells_of_another_claim,
    "unprepare.answers": lambda driver: driver.on(V1.unprepare.path, _fails_each_claim),
    "unprepare.cdi": _gives_nothing_back,
    "unprepare.twice": _knows_only_what_it_holds,
    "unprepare.unknown": _knows_only_what_it_holds,
    "unprepare.deleted": _reads_the_claim_to_give_it_back,
    "unprepare.next": _is_worn_out_by_a_second_give_back,
    "calls.in_time": _never_answers_in_time,
    "health.stream": _set(spoil_stream=lambda _reports: iter(())),
    "health.devices": _reports("ghost", 1),
    "health.states": _reports("slot-0", 7),
    "health.again": _ends_the_second_stream,
    "restart.killed": _set(before_start=lambda: False),
    "restart.prepare": _names_its_devices_anew_at_each_start,
    "restart.unprepare": _once_killed(_gives_nothing_back),
    "restart.slices": _once_killed(_has_a_device_less),
    "restart.stopped": _set(leaves_its_socket=True),
}
#: Of these the check waits until its patience is over; of the last its calls.
NEVER = {"registration.info", "slices.published", "slices.whole", "slices.restored", "restart.killed", "restart.slices"}


@pytest.fixture(autouse=True)
def _nobody_waits_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "RESTORE_SECONDS", IMPATIENT)


def test_every_check_has_a_driver_that_fails_it() -> None:
    assert set(BROKEN) == {check.id for check in CHECKS}


@pytest.mark.sample(20)
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_driver_fails_the_check(driver: Sabotaged, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "prepare.given_up":
        monkeypatch.setattr(checks, "IMPATIENCE", PATIENT)  # the first call arrives, whoever gives it up
    BROKEN[name](driver)
    wait = IMPATIENT if name in NEVER else PATIENT
    result = run(driver, name, wait=wait, call=IMPATIENT if name == "calls.in_time" else PATIENT)[name]
    assert result.verdict == "failed", result
    assert result.detail
    assert result.advice


def test_a_driver_without_what_is_optional_is_not_checked_for_it(driver: Sabotaged) -> None:
    driver.changes_info(supported_versions=("v1.DRAPlugin",))
    driver.driver.names[1:] = []
    results = run(driver, "health.stream", "prepare.several")
    assert results["health.stream"].detail == "it lists no DRAResourceHealth service, which is optional"
    assert results["prepare.several"].detail == "it has one device only"


def test_what_rests_on_a_failed_check_is_skipped(driver: Sabotaged) -> None:
    driver.on(V1.prepare.path, refuses)
    results = run(driver, "prepare.metadata")
    assert results["prepare.answers"].verdict == "failed"
    assert results["prepare.metadata"].detail == "needs prepare.cdi_files"
