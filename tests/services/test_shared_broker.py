"""Whoever asks for the shared broker gets the same one, and it ends with who shares it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from services import shared_broker
from services.errors import ServiceError
from services.kafka_wire import BrokerConnection
from services.shared_broker import SharedBroker, shared_bootstrap
from services.wait_until import wait_until

pytestmark = pytest.mark.service


def test_all_that_ask_have_one_broker_which_ends_with_who_shares_it() -> None:
    with closing(SharedBroker()) as shared, ThreadPoolExecutor(3) as processes:
        first, *others = processes.map(shared_bootstrap, [shared.address] * 3)
        assert others == [first] * 2
        host, _, port = first.rpartition(":")
        with BrokerConnection(host, int(port)) as connection:
            assert connection.cluster().brokers.keys() == {1}

    def is_gone() -> bool:
        try:
            with BrokerConnection(host, int(port)):
                return False
        except ServiceError:
            return True

    wait_until(is_gone, 60, "the end of the broker")


@pytest.mark.parametrize("failure", [ServiceError("no port is free"), OSError("no port is free")])
def test_what_keeps_it_from_starting_twice_is_said_to_all_that_ask(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    asked = []

    def fails(**settings: object) -> Iterator[None]:
        asked.append(settings)
        raise failure

    monkeypatch.setattr(shared_broker, "kafka_service", fails)
    with closing(SharedBroker()) as shared:
        for _ in range(2):
            with pytest.raises(ServiceError, match="no port is free"):
                shared_bootstrap(shared.address)
    assert len(asked) == 2
