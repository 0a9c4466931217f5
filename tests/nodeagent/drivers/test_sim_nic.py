"""The shared interfaces: what is published, and what the container of each share sees."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.slice_rules import validate_slice
from manciple.wire import codec
from manciple.wire.base import OwnerReference
from nodeagent.drivers.nic import BandwidthShares, NicDriver, nic_device
from nodeagent.drivers.protocol import Prepared
from nodeagent.node.catalog import DriverEntry, create_driver
from nodeagent.node.slices import slices_of
from tests.nodeagent.machine import Machine
from tests.nodeagent.objects import NODE, Document, claim, container, pod

DRIVER = "nic.example.com"
SHARE_A, SHARE_B = "a671734a-e8e5-11e4-8fde-42010af09327", "b671734a-e8e5-11e4-8fde-42010af09327"


def shares_of(name: str, *shares: tuple[str, str, str], pods: tuple[str, ...] = (), **fields: Any) -> Document:
    """A claim with a share (device, share id, bandwidth) for each request."""
    document = claim(name, *(device for device, _, _ in shares), pods=pods, driver=DRIVER, **fields)
    results = document["status"]["allocation"]["devices"]["results"]
    for result, (_, share, bandwidth) in zip(results, shares, strict=True):
        result |= {"shareID": share, "consumedCapacity": {"bandwidth": bandwidth}}
    return document


def prepared(document: Document) -> Prepared:
    value = codec.decode_value(ResourceClaim, document)
    answer = NicDriver(NODE).prepare([value])[value.metadata.uid]
    assert isinstance(answer, Prepared), answer
    return answer


@given(
    st.integers(1, 400),
    st.integers(1, 20),
    st.integers(1, 10),
    st.integers(0, 10),
    st.booleans(),
)
def test_what_is_published_is_valid(total: int, least: int, step: int, steps: int, limited: bool) -> None:
    """Any policy of whole steps within the bandwidth."""
    default = least + step * steps
    bandwidth = max(total, default, least + step)
    most = least + step * ((bandwidth - least) // step)
    shares = BandwidthShares(default=f"{default}G", min=f"{least}G", step=f"{step}G", max=f"{most}G" if limited else "")
    driver = NicDriver(NODE, nics=3, bandwidth=f"{bandwidth}G", shares=shares)
    owner = OwnerReference(api_version="v1", kind="Node", name=NODE, uid="u")

    slices = slices_of(driver.pools()[0], driver=driver.name, owner=owner, generation=1)

    assert [error for one in slices for error in validate_slice(one)] == []
    assert all(d.allow_multiple_allocations for one in slices for d in one.spec.devices)


def test_the_defaults_are_valid() -> None:
    owner = OwnerReference(api_version="v1", kind="Node", name=NODE, uid="u")

    (one,) = slices_of(NicDriver(NODE).pools()[0], driver=DRIVER, owner=owner, generation=1)

    assert validate_slice(one) == []
    assert [device.name for device in one.spec.devices] == ["nic-0", "nic-1"]
    assert len({device.attributes["macAddress"].string_value for device in one.spec.devices}) == 2
    assert one.spec.devices[0] == nic_device(NODE, 0, bandwidth="100G", shares=BandwidthShares())


def test_the_settings_say_how_many_how_fast_and_how_shared() -> None:
    settings = {"nics": 1, "bandwidth": "40G", "shares": {"default": "5G", "min": "5G", "max": "20G", "step": "5G"}}
    driver = create_driver(DriverEntry(driver="sim-nic", settings=settings), node_name=NODE)

    (device,) = driver.pools()[0].devices
    policy = device.capacity["bandwidth"].request_policy
    assert policy is not None
    assert policy.valid_range is not None
    assert (device.capacity["bandwidth"].value, policy.default, policy.valid_range.max) == ("40G", "5G", "20G")


def test_each_share_is_a_cdi_device_of_its_own() -> None:
    answer = prepared(shares_of("c", ("nic-0", SHARE_A, "20G"), ("nic-0", SHARE_B, "30G")))

    assert answer.spec is not None
    assert [device.name for device in answer.spec.devices] == [f"claim-c-nic-0-{one}" for one in (SHARE_A, SHARE_B)]
    assert [device.requests for device in answer.devices] == [("gpu0",), ("gpu1",)]
    assert [device.cdi_device_ids for device in answer.devices] == [
        (f"k8s.{DRIVER}/claim=claim-c-nic-0-{one}",) for one in (SHARE_A, SHARE_B)
    ]


def test_a_container_sees_the_interface_the_share_and_the_bandwidth(machine: Machine) -> None:
    node = Machine(machine.folder / "nic", drivers=[NicDriver(NODE)])
    node.start()
    node.api.put("resourceclaims", shares_of("one", ("nic-0", SHARE_A, "20G"), pods=("uid-p",)))
    node.api.put("resourceclaims", shares_of("two", ("nic-0", SHARE_B, "80G"), pods=("uid-q",)))
    node.api.put("pods", pod("p", claims={"net": "one"}))
    node.api.put("pods", pod("q", claims={"net": "two"}))

    node.settle()

    assert node.condition("p", "Ready") == node.condition("q", "Ready") == "True", "a shared device is nobody's alone"
    assert node.environment("p") == {
        "NIC_DEVICE_0": "nic-0",
        "NIC_DEVICE_0_INTERFACE": "eth0",
        "NIC_DEVICE_0_BANDWIDTH": "20G",
        "NIC_DEVICE_0_SHARE_ID": SHARE_A,
        f"NIC_DEVICE_0_SHARE_{SHARE_A.replace('-', '_').upper()}": "20G",
    }
    assert node.environment("q")["NIC_DEVICE_0_BANDWIDTH"] == "80G"
    assert len(node.cdi_files()) == 2


def test_a_container_with_two_shares_of_one_interface_sees_both(machine: Machine) -> None:
    node = Machine(machine.folder / "nic", drivers=[NicDriver(NODE)])
    node.start()
    document = shares_of("c", ("nic-0", SHARE_A, "20G"), ("nic-0", SHARE_B, "30G"), pods=("uid-p",))
    node.api.put("resourceclaims", document)
    node.api.put("pods", pod("p", container("both", "n"), container("one", "n/gpu1"), claims={"n": "c"}))

    node.settle()

    shares = {k.rpartition("SHARE_")[2]: v for k, v in node.environment("p", "both").items() if "_SHARE_" in k}
    shares.pop("ID")
    assert shares == {SHARE_A.replace("-", "_").upper(): "20G", SHARE_B.replace("-", "_").upper(): "30G"}
    assert node.environment("p", "one")["NIC_DEVICE_0_SHARE_ID"] == SHARE_B
    assert not any(SHARE_A.replace("-", "_").upper() in key for key in node.environment("p", "one"))


def test_opaque_parameters_and_admin_access_are_shown() -> None:
    config = ({"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": {"mtu": 9000}}},)
    answer = prepared(shares_of("c", ("nic-1", SHARE_A, "1G"), config=config, adminAccess=True))

    assert answer.spec is not None
    environment = answer.spec.devices[0].container_edits.env
    assert 'NIC_DEVICE_1_CONFIG=[{"mtu":9000}]' in environment
    assert "DRA_ADMIN_ACCESS=true" in environment


@pytest.mark.parametrize("wrong", [{"nics": "two"}, {"shares": {"maximum": "1G"}}])
def test_settings_that_are_not_understood_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="driver sim-nic: "):
        create_driver(DriverEntry(driver="sim-nic", settings=wrong), node_name=NODE)
