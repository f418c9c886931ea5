"""docker compose up --wait: healthy servers on loopback alone, fit for the sources; and the examples run on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

from services.local_server import free_ports
from services.mysql_client import connect, run
from services.spark_start import quick_spark

pytestmark = [pytest.mark.service, pytest.mark.container, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
HEALTHY_SECONDS = 120
"""From images that are there; half of it is enough unless the machine does other things too."""
SERVERS = ("kafka", "mysql", "mariadb", "postgresql")


@dataclass(frozen=True)
class Compose:
    """A project of its own, beside the one that somebody may have here."""

    project: str
    ports: dict[str, int]
    profiles: tuple[str, ...] = ("--profile", "mariadb", "--profile", "postgresql")

    def __call__(self, *arguments: str) -> str:
        ports = {f"{name.upper()}_PORT": str(port) for name, port in self.ports.items()}
        done = subprocess.run(
            ["docker", "compose", "--project-name", self.project, *self.profiles, *arguments],
            cwd=ROOT,
            env=os.environ | ports,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def seen(self, name: str) -> dict[str, Any]:
        (line,) = self("ps", "--all", "--format", "json", name).splitlines()
        return dict(json.loads(line))


@pytest.fixture(scope="module")
def compose() -> Iterator[tuple[Compose, float]]:
    """Servers that are up, and how many seconds that took."""
    project = Compose(f"test-{uuid.uuid4().hex[:8]}", dict(zip(SERVERS, free_ports(len(SERVERS)), strict=True)))
    project("create")
    try:
        began = time.monotonic()
        project("up", "--wait")
        yield project, time.monotonic() - began
    finally:
        project("down", "--volumes")


def test_all_are_healthy_soon_and_on_loopback_alone(compose: tuple[Compose, float]) -> None:
    project, seconds = compose
    assert seconds <= HEALTHY_SECONDS
    for name in SERVERS:
        seen = project.seen(name)
        assert seen["Health"] == "healthy"
        published = [(each["URL"], each["PublishedPort"]) for each in seen["Publishers"] if each["PublishedPort"]]
        assert published == [("127.0.0.1", project.ports[name])]


@pytest.mark.parametrize("name", ["mysql", "mariadb"])
def test_the_doctor_finds_nothing_that_fails_for_who_reads_and_no_right_too_many(
    name: str, compose: tuple[Compose, float]
) -> None:
    port = compose[0].ports[name]
    root = {"user": "root", "password": "root"}
    run("127.0.0.1", port, "CREATE TABLE shop.orders (id INT PRIMARY KEY)", **root)
    command = [sys.executable, "-m", "watermark_source", "doctor", "--mysql", "--hostname", "127.0.0.1"]
    command += ["--port", str(port), "--username", "cdc", "--tables", "shop.orders"]
    environment = os.environ | {"WATERMARK_SOURCE_PASSWORD": "cdc"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with (
        connect("127.0.0.1", port, user="cdc", password="cdc") as connection,
        connection.cursor() as cursor,
        pytest.raises(pymysql.err.OperationalError, match="denied"),
    ):
        cursor.execute("INSERT INTO shop.orders VALUES (1)")
    if name == "mysql":
        assert run("127.0.0.1", port, "SELECT @@gtid_mode, @@binlog_row_metadata", **root) == (("ON", "FULL"),)


def test_the_join_of_clicks_and_users_is_right_on_them(compose: tuple[Compose, float]) -> None:
    ports = compose[0].ports
    command = [sys.executable, "examples/clickstream_enrichment.py", "--clicks", "2000", "--users", "1000"]
    command += ["--kafka", f"127.0.0.1:{ports['kafka']}", "--mysql", f"mysql://root:root@127.0.0.1:{ports['mysql']}"]
    environment = os.environ | {"JDK_JAVA_OPTIONS": quick_spark()}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=560, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith("; the join that waits lost 0.")


def test_the_health_check_of_kafka_is_an_answer(compose: tuple[Compose, float]) -> None:
    project = compose[0]
    (container,) = project("ps", "--quiet", "kafka").split()
    inspected = subprocess.run(["docker", "inspect", container], capture_output=True, text=True, check=True).stdout
    ask = ["docker", "exec", container, *json.loads(inspected)[0]["Config"]["Healthcheck"]["Test"][1:]]
    assert subprocess.run(ask, check=False, timeout=30).returncode == 0
    # Its port still accepts.
    project("kill", "--signal", "SIGSTOP", "kafka")
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run(ask, check=False, timeout=5)
    finally:
        project("kill", "--signal", "SIGCONT", "kafka")
    assert subprocess.run(ask, check=False, timeout=30).returncode == 0
