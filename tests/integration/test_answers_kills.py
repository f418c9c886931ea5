"""Kill -9 while one query answers early and another corrects it: in the end each answer is that of a batch query."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.early_and_final import BOUND_MS, expected, is_answered, orders, produce
from services.kafka import Kafka
from tests.integration.killed_answers_driver import AnswersJob
from tests.integration.killed_runs import batches, run_with_kills

pytestmark = [pytest.mark.service, pytest.mark.timeout(7_200)]

BATCH_ROWS = 600

_log = logging.getLogger(__name__)


@pytest.mark.long("test_early_answers_become_the_counts_of_a_batch_query")
def test_final_answers_with_their_corrections_are_exact_whenever_both_queries_are_killed(
    request: pytest.FixtureRequest, kafka: Kafka, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Of a skewed topic with 1 % late rows: a batch that is repeated corrects nothing twice."""
    kills, seed = request.config.getoption("--answers-kills"), request.config.getoption("--kills-seed")
    topic = new_topic(3, config={"retention.ms": "-1"})
    # More batches than kills can interrupt.
    count = BATCH_ROWS * (6 + 4 * kills)
    rows = orders(count, seconds=count / 10, seed=seed)
    windows = expected(rows)
    produce(kafka.bootstrap, topic, rows)
    job = AnswersJob("local[2]", tmp_path, kafka.bootstrap, topic, str(BATCH_ROWS))
    at_kills = []

    def killed() -> None:
        at_kills.append(job.table.answers())

    run_with_kills(job, kills, random.Random(seed), lambda: is_answered(job.table, windows), killed, most_batches=4)
    answers = job.table.answers()
    early = {start: found for start, (found, _, _) in answers.items() if found is not None}
    share = sum(early.values()) / sum(windows[start] for start in early)
    late = sum(found for _, _, found in answers.values())
    _log.info(
        "%d windows, %d with an early answer, %.1f %% of their rows; %d of %d rows corrected final answers; %d batches",
        len(windows), len(early), 100 * share, late, count, batches(job, "commits"),
    )  # fmt: skip

    assert all(found != answers for found in at_kills), "nothing was left for a kill to lose"
    assert {start: found for start, found in job.table.counts().items() if start in windows} == windows
    # A final answer that was sent stays, and so does an early one.
    for found in at_kills:
        for start, (early_then, final_then, _) in found.items():
            assert early_then in (None, answers[start][0])
            assert final_then in (None, answers[start][1])
    # Most of 1 %: a row near the beginning of a batch is on time by the watermark of the batch.
    assert 0.005 * count < late < 0.015 * count, f"late rows are more than {BOUND_MS} ms behind"
    assert 0.9 < share < 1
