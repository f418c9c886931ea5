"""The example of clicks and users, run short on servers that are there before it, as a user runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from services.kafka import Kafka
from services.kafka_topics import admin_client
from services.mysql import MySql
from services.mysql_client import run
from services.spark_start import quick_spark

pytestmark = [pytest.mark.service, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]


@pytest.mark.long("test_no_click_misses_its_user_though_a_batch_of_the_snapshot_fails")
def test_every_click_finds_its_user_and_the_servers_are_as_before(kafka: Kafka, mysql: MySql) -> None:
    # Who has a password of special characters, and may do what the example's rights ask for.
    run(
        mysql.host, mysql.port, "CREATE USER demo@'%' IDENTIFIED BY 'p@ss/w:rd'",
        "GRANT ALL ON *.* TO demo@'%' WITH GRANT OPTION",
    )  # fmt: skip
    before = _holdings(kafka, mysql)
    address = f"mysql://demo:p%40ss%2Fw%3Ard@{mysql.host}:{mysql.port}"
    printed = _run("clickstream_enrichment.py", "--clicks", "2000", "--kafka", kafka.bootstrap, "--mysql", address)
    assert loses_only_without_waiting(printed, clicks=2_000)
    # What tests beside this one have made meanwhile is not ours.
    ours = {name for name in _holdings(kafka, mysql) - before if re.match("click_event|shop|enrichment", name)}
    assert not ours


@pytest.mark.long("test_no_click_misses_its_user_though_a_batch_of_the_snapshot_fails")
def test_clicks_of_the_rate_source_find_their_users_if_they_wait(mysql: MySql) -> None:
    address = f"mysql://root@{mysql.host}:{mysql.port}"
    assert loses_only_without_waiting(_run("rate_enrichment.py", "--clicks", "500", "--mysql", address), clicks=500)


def loses_only_without_waiting(printed: str, clicks: int) -> bool:
    found = re.fullmatch(
        r"A join that does not wait for the users silently lost ([\d ]+) of ([\d ]+) users of clicks \(\d+ %\); "
        r"the join that waits lost 0\.",
        printed,
    )
    assert found, printed
    lost, of = (int(number.replace(" ", "")) for number in found.groups())
    return 0 < lost <= of and of >= clicks


def _run(example: str, *arguments: str) -> str:
    """Run an example with few users as a user does, and return the last line that it prints."""
    command = [sys.executable, f"examples/{example}", "--users", "1000", *arguments]
    environment = {**os.environ, "JDK_JAVA_OPTIONS": quick_spark()}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=560, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search("Traceback|WARN|BrokenPipe", done.stdout + done.stderr)
    return done.stdout.splitlines()[-1]


def _holdings(kafka: Kafka, mysql: MySql) -> set[str]:
    with admin_client(kafka.bootstrap) as admin:
        topics = set(admin.list_topics())
    held = run(
        mysql.host, mysql.port, "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA UNION SELECT USER FROM mysql.user"
    )
    return topics | {name for (name,) in held}
