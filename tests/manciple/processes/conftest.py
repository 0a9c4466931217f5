"""What starts in this process says in the settings where it is reached."""

from __future__ import annotations

import pytest
from pytest_django.fixtures import Settings


@pytest.fixture(autouse=True)
def settings_of_the_test(settings: Settings) -> None:
    """Undone with the test, as what it sets by itself."""
    settings.PAGES_URL = settings.PAGES_URL
