"""Both servers, for what they do alike: one of them by day, and the other by night too."""

from __future__ import annotations

from typing import Any

import pytest

from services.mysql_program import Flavour, flavour_from_environment


def each_flavour() -> list[Any]:
    """Return the parameters of a fixture that has a server: by day that of the run, whose tests of MySQL are most."""
    by_night = pytest.mark.long("the run's own server")
    own = flavour_from_environment() or Flavour.MYSQL
    return [pytest.param(each, marks=() if each is own else by_night) for each in Flavour]
