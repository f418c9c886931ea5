"""Random histories of topics: Spark's own Kafka source and this one deliver the same rows, whatever happened."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from services.kafka import kafka_cluster
from services.kafka_local import FAST_START, LocalKafka
from tests.soak.topic_histories.generator import random_history
from tests.soak.topic_histories.queries import Twins
from tests.soak.topic_histories.stage import BROKER_CONFIG, Stage
from tests.soak.topic_histories.steps import Compare

pytestmark = [pytest.mark.service, pytest.mark.spark]

_log = logging.getLogger(__name__)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    first, count = (metafunc.config.getoption(name) for name in ("--histories-seed", "--histories"))
    metafunc.parametrize("seed", range(first, first + count))


@pytest.fixture(scope="module")
def log_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log")


@pytest.fixture(scope="module")
def broker(log_folder: Path) -> Iterator[LocalKafka]:
    config = {**BROKER_CONFIG, "log.dirs": str(log_folder)}
    with kafka_cluster(1, config=config, jvm=FAST_START) as cluster:
        yield cluster


@pytest.fixture
def stage(seed: int, broker: LocalKafka, log_folder: Path) -> Iterator[Stage]:
    made = Stage(broker, log_folder, f"h{seed}-{uuid.uuid4().hex[:8]}")
    yield made
    made.close()


def test_both_sources_deliver_the_same_rows(
    seed: int, spark: SparkSession, built_in_kafka: str, stage: Stage, tmp_path: Path
) -> None:
    """To do one history again: ``--histories=1 --histories-seed=<its seed>``."""
    history = random_history(seed)
    # Shown when the test fails.
    print(history)  # noqa: T201
    twins = Twins(spark, (built_in_kafka, "aligned-kafka"), tmp_path, history, stage)
    for number, step in enumerate(history.steps):
        _log.info("%d. %s", number, step)
        if not isinstance(step, Compare):
            stage.perform(step)
            continue
        before = stage.settle()
        found = twins.run(step)
        assert stage.settle() == before, "the history did not stand still while it was read"
        assert not found, "\n".join([f"history {seed}, step {number}", *found])
    _log.info("history %d: %s %s", seed, twins.figures(), stage.housekeeping)
