"""Both connectors pass the kit that others' connectors are held to, on real servers."""

from __future__ import annotations

import pytest

from services.kafka import Kafka
from services.mysql import MySql
from tests.integration.kafka_conformance import KafkaHarness
from tests.integration.mysql_conformance import MySqlColumnHarness, MySqlHarness
from watermark_source_testing import Check, checks_for

pytestmark = pytest.mark.service


@pytest.mark.parametrize("check", checks_for(KafkaHarness), ids=str)
def test_kafka_conforms(check: Check, kafka: Kafka) -> None:
    with KafkaHarness(kafka) as harness:
        check(harness)


_ENDS_ARE_DATED = "ends_are_dated_if_dates_rows_is_declared"


@pytest.mark.parametrize("check", [each for each in checks_for(MySqlHarness) if each.name != _ENDS_ARE_DATED], ids=str)
def test_mysql_cdc_wm_conforms(check: Check, mysql: MySql) -> None:
    with MySqlHarness(mysql) as harness:
        check(harness)


@pytest.mark.needs_mysql("logs in which second a statement began, and no commit times")
def test_ends_of_the_binlog_are_dated(mysql: MySql) -> None:
    (check,) = (each for each in checks_for(MySqlHarness) if each.name == _ENDS_ARE_DATED)
    with MySqlHarness(mysql) as harness:
        check(harness)


@pytest.mark.parametrize(
    "check", [each for each in checks_for(MySqlColumnHarness) if each not in checks_for(MySqlHarness)], ids=str
)
def test_mysql_cdc_wm_conforms_by_a_column_of_the_table(check: Check, mysql: MySql) -> None:
    with MySqlColumnHarness(mysql) as harness:
        check(harness)
