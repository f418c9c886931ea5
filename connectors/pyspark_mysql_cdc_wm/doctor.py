"""The checks of ``python -m watermark_source doctor --mysql``: those of ``load()``, and advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

from pyspark_mysql_cdc_wm.lookup.checked_server import CheckedServer
from pyspark_mysql_cdc_wm.lookup.server_checks import checks_of
from pyspark_mysql_cdc_wm.options import mysql_options
from pyspark_mysql_cdc_wm.options.mysql_option_table import OPTION_TABLE
from watermark_source.checks import Finding, examine

OPTIONS = OPTION_TABLE
ASKED_FOR = "password"


def findings(given: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the result of each check.

    Raises:
        OptionError: the options cannot work; raised before any connection.
    """
    parsed = mysql_options.parse(given)
    with closing(CheckedServer(parsed)) as server:
        yield from examine(checks_of(parsed), server)
