"""docker-compose.yml has the servers that the tests have, on loopback alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from services import containers
from services.kafka_container import broker_settings, variable
from services.mysql_local import server_settings
from services.mysql_program import Flavour

ROOT = Path(__file__).parents[2]
FILE: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
SERVICES = FILE["services"]
FLAVOURS = {"mysql": Flavour.MYSQL, "mariadb": Flavour.MARIADB}


def test_the_images_are_those_of_the_services() -> None:
    assert {name: service["image"] for name, service in SERVICES.items()} == {
        "kafka": containers.KAFKA,
        "mysql": containers.MYSQL[Flavour.MYSQL],
        "mariadb": containers.MYSQL[Flavour.MARIADB],
        "postgresql": containers.POSTGRES,
    }


def test_kafka_and_mysql_start_unasked() -> None:
    assert {name for name, service in SERVICES.items() if not service.get("profiles")} == {"kafka", "mysql"}
    assert all(service.get("profiles", [name]) == [name] for name, service in SERVICES.items())


@pytest.mark.parametrize("name", SERVICES)
def test_every_port_is_published_on_loopback_alone_and_can_be_another(name: str) -> None:
    assert SERVICES[name]["ports"]
    for port in SERVICES[name]["ports"]:
        assert re.match(rf"127\.0\.0\.1:\$\{{{name.upper()}_PORT:-\d+\}}:", port)
    assert "network_mode" not in SERVICES[name]
    published = [re.findall(r":-(\d+)\}", service["ports"][0])[0] for service in SERVICES.values()]
    assert len(set(published)) == len(SERVICES)


@pytest.mark.parametrize("name", SERVICES)
def test_every_server_has_a_health_check_that_asks_it(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] == "CMD"
    # What the official images bring; Kafka's own tools start a Java machine, which takes seconds of a processor.
    assert check["test"][1] in {"bash", "mysql", "mariadb", "pg_isready"}
    assert "127.0.0.1" in " ".join(check["test"]), "the server that makes the data folder answers on its socket"
    assert set(check) == {"test", "start_period", "interval", "timeout", "retries"}, "older engines know no others"


def test_the_broker_is_set_as_that_of_the_tests_is() -> None:
    port = 9092
    ours = {
        name: value.replace("${KAFKA_PORT:-9092}", str(port))
        for name, value in SERVICES["kafka"]["environment"].items()
    }
    of_tests = {variable(name): value for name, value in broker_settings("127.0.0.1", port).items()}
    assert ours.items() <= of_tests.items()
    assert ours["KAFKA_LOG_RETENTION_MS"] == "-1"
    needed = {"log.retention.ms", "offsets.topic.replication.factor", "share.coordinator.state.topic.min.isr"}
    assert {variable(name) for name in needed} <= ours.keys()


@pytest.mark.parametrize("name", FLAVOURS)
def test_the_binlog_is_as_the_tests_have_it(name: str) -> None:
    given = dict(flag.removeprefix("--").split("=") for flag in SERVICES[name]["command"])
    ours = {setting.replace("-", "_"): value for setting, value in given.items()}
    assert ours.items() <= server_settings(FLAVOURS[name]).items()
    assert {"server_id", "log_bin", "binlog_row_metadata"} <= ours.keys()
    assert name == "mariadb" or {"gtid_mode", "enforce_gtid_consistency"} <= ours.keys()


@pytest.mark.parametrize("name", FLAVOURS)
def test_who_reads_has_the_rights_that_the_docs_give(name: str) -> None:
    (config,) = SERVICES[name]["configs"]
    assert config["target"].startswith("/docker-entrypoint-initdb.d/")
    logged = re.findall(r"GRANT ([A-Z, ]+) ON", (ROOT / "docs/mysql.md").read_text("utf-8"))
    granted = re.findall(r"GRANT ([A-Z, ]+) ON", FILE["configs"][config["source"]]["content"])
    assert granted == logged[: len(granted)] == ["REPLICATION SLAVE, REPLICATION CLIENT", "SELECT"]
