"""A person's time zone: chosen, or told by their browser; said on every page, and in no file."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from dashboard.kit.preferences import ZONE_COOKIE, zone_names
from dashboard.models import Preferences
from dashboard.templatetags.kit import clock, offset, zone_label

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
SUMMER = datetime(2026, 7, 1, 12, tzinfo=UTC)

OFFSETS = {
    "UTC": ("UTC", "UTC"),
    "Europe/Berlin": ("Europe/Berlin (UTC+1)", "Europe/Berlin (UTC+2)"),
    "Asia/Kolkata": ("Asia/Kolkata (UTC+5:30)", "Asia/Kolkata (UTC+5:30)"),
    "America/St_Johns": ("America/St_Johns (UTC-3:30)", "America/St_Johns (UTC-2:30)"),
}


@pytest.mark.parametrize("name", OFFSETS)
def test_a_zone_is_told_with_how_far_it_is_from_utc(name: str) -> None:
    zone = ZoneInfo(name)
    assert (zone_label(zone, now=NOON), zone_label(zone, now=SUMMER)) == OFFSETS[name]
    assert offset(NOON.astimezone(zone)) in OFFSETS[name][0]


def test_the_day_of_a_time_is_the_readers() -> None:
    late = datetime(2026, 11, 20, 23, 30, tzinfo=UTC)
    assert clock(late, now=late) == "23:30:00"
    with timezone.override(ZoneInfo("Asia/Tokyo")):
        assert clock(late, now=late) == "08:30:00"
        assert clock(NOON, now=late) == "Fri 21:00", "Saturday has begun there"


def test_places_are_offered_and_old_names_are_not() -> None:
    assert {"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"} <= set(zone_names())
    assert not {"US/Eastern", "Etc/GMT+1", "GMT", "posixrules"} & set(zone_names())


@pytest.fixture
def browser(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_user("ada"))
    return client


def zone_said(browser: Client) -> str:
    page = browser.get("/account").content.decode()
    said = page.partition("Times are in ")[2].partition(" ")[0].rstrip(".")
    assert f'data-zone="{said}"' in page, "scripts tell times in the same zone"
    return said


def test_the_browsers_zone_is_used_until_a_person_chooses_one(browser: Client) -> None:
    assert zone_said(browser) == "UTC"
    browser.cookies[ZONE_COOKIE] = "Asia/Tokyo"
    assert zone_said(browser) == "Asia/Tokyo"
    browser.cookies[ZONE_COOKIE] = "../../etc/passwd"
    assert zone_said(browser) == "UTC"
    assert browser.post("/account/zone", {"zone": "America/New_York"}).status_code == 302
    browser.cookies[ZONE_COOKIE] = "Asia/Tokyo"
    assert zone_said(browser) == "America/New_York"
    browser.post("/account/zone", {"zone": ""})
    assert zone_said(browser) == "Asia/Tokyo"
    assert timezone.get_current_timezone_name() == "UTC", "the next request begins anew"


def test_what_is_no_zone_is_refused(browser: Client) -> None:
    assert browser.post("/account/zone", {"zone": "Mars/Base"}).status_code == 400
    assert not Preferences.objects.filter(time_zone="Mars/Base").exists()


def test_the_tour_is_over_for_good_until_it_is_asked_for_again(browser: Client) -> None:
    assert browser.post("/account/tour").status_code == 204
    assert Preferences.objects.get().toured
    assert browser.post("/account/tour", {"again": "1"}).headers["Location"] == "/overview"
    assert not Preferences.objects.get().toured
