"""A response that has no end ends with its time limit, also for the token endpoint and ``watch``."""

from __future__ import annotations

import time

import pytest
from kafka.errors import KafkaConnectionError

from pyspark_aligned_kafka.client.token_endpoint import Tokens
from pyspark_aligned_kafka.client.token_source import TokenSource
from tests.unit.endless_responses import ENDLESS, endless_responses
from watermark_source.errors import UsageError
from watermark_source.monitor.terminal import read_page

pytestmark = [pytest.mark.timeout(60), pytest.mark.parametrize("kind", ENDLESS)]


def test_a_token_endpoint_has_its_limit_for_the_whole_response(kind: str) -> None:
    with endless_responses(*ENDLESS[kind]) as port:
        source = TokenSource(f"http://127.0.0.1:{port}/token", "client", "secret", limit_s=0.3)
        began = time.monotonic()
        with pytest.raises(KafkaConnectionError, match="does not answer"):
            Tokens(source).token()
    assert time.monotonic() - began < 30


def test_a_status_page_has_its_limit_for_the_whole_response(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watermark_source.monitor.terminal._ANSWER_SECONDS", 0.3)
    with endless_responses(*ENDLESS[kind]) as port:
        began = time.monotonic()
        with pytest.raises(UsageError, match="no status page answers at "):
            read_page(f"http://127.0.0.1:{port}")
    assert time.monotonic() - began < 30
