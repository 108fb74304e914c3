"""A link of either kind, for the suite that both have to pass."""

from __future__ import annotations

import pytest
from lab_fixtures import Ground

from edgekit.link.base import Link


@pytest.fixture
def link(ground: Ground) -> Link:
    return ground.link
