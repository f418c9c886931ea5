"""One connection to each broker, made when it is needed: every request and every wait has an end."""

from __future__ import annotations

import logging
import random
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kafka.errors import (
    AuthorizationError,
    IllegalSaslStateError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    RequestTimedOutError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from pyspark_aligned_kafka.client.login import HINTS
from pyspark_aligned_kafka.client.sasl import hide_wire_logs
from pyspark_aligned_kafka.client.settings import ClientSettings
from pyspark_aligned_kafka.cluster.deadline import Backoff, Deadline
from watermark_source.errors import (
    RefusedError,
    ResponseTimeoutError,
    SourceError,
    UnreachableError,
    WatermarkSourceError,
    shortened,
)

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

# What a broker says about us, which asking again will not change.
_REFUSALS = (
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    IllegalSaslStateError,
    AuthorizationError,
)
OLDEST_KAFKA = "Kafka 2.3"
"""The first brokers that speak all we ask for."""
_CHECK_THE_WAY = "check the addresses, the network and kafka.security.protocol"
_SHORTEST_TRY_MS = 20
"""In less time nobody answers, and a healthy broker would be blamed."""
_FIRST_TRY_MS = 3_000
"""So long nobody else is asked: more than a broker takes that is only busy."""
_SILENT_SECONDS = 60.0
"""So long one that did not answer is asked last."""
_SILENCE = (KafkaTimeoutError, RequestTimedOutError)


class _HearsOut(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python has no types
    """Delivers what a broker said before it hung up.

    kafka-python drops bytes that arrive together with the end of a connection, and a broker closes right after it has
    refused a login: on a busy machine the reason was never heard.
    """

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at)
        receive = transport._sock_recv  # noqa: SLF001 - there is no public place to mend it

        def heard_out() -> tuple[bytes, KafkaError | None]:
            data, error = receive()
            # The end is still there when the socket is read again.
            return data, None if data else error

        transport._sock_recv = heard_out  # noqa: SLF001 - see above
        return transport


@dataclass(slots=True)
class _Outcome(Generic[_Result]):
    value: _Result | None = None


class Cluster:
    """Requests to the brokers of one cluster, from one thread.

    Work is a coroutine on kafka-python's event loop, which runs only while ``run`` does: there is no background
    thread, and nothing happens between calls.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._limit_ms = settings.millis("default.api.timeout.ms")
        self._setup_ms = settings.millis("socket.connection.setup.timeout.ms")
        self._net: NetworkSelector | None = None
        self._manager: KafkaConnectionManager | None = None
        self._why_not: dict[int | str, str] = {}
        self._silent_at: dict[int | str, float] = {}
        """Brokers that did not answer while others could be asked, and when, by ``time.monotonic()``."""

    def run(self, work: Callable[[Deadline], Awaitable[_Result]]) -> _Result:
        """Run ``work`` with the time limit ``default.api.timeout.ms``.

        Raises:
            SourceError: whatever ``work`` did not handle, as an error of this project's tree.
        """
        self._open()
        net = self._net
        assert net is not None
        outcome: _Outcome[_Result] = _Outcome()

        async def to_the_end() -> None:
            # What became due while the loop stood still comes first: a login that is over is renewed before it is used.
            await net.sleep(0)
            outcome.value = await work(Deadline.after(self._limit_ms))

        try:
            net.run(to_the_end)
        except WatermarkSourceError:
            raise
        except KafkaError as error:
            raise self.translated(error) from error
        except Exception as error:
            # kafka-python raises anything when an answer is damaged, or names a host that no resolver can be asked for.
            raise SourceError(
                f"the Kafka brokers at {','.join(self._settings.bootstrap_servers)} answered what cannot be "
                f"understood: {type(error).__name__}: {shortened(error)}; {_CHECK_THE_WAY}"
            ) from error
        return outcome.value  # type: ignore[return-value]  # set whenever run() returns

    def close(self) -> None:
        """Close all connections; the next ``run`` opens new ones."""
        if self._manager is not None and self._net is not None:
            self._manager.close()
            self._net.close()
        self._manager = self._net = None

    async def ask(self, node: int | str, request: Any, deadline: Deadline) -> Any:
        """Send one request to one broker and return its answer, or raise kafka-python's error."""
        try:
            connection = await self._connected(node, min(self._setup_ms, deadline.left_ms))
        except KafkaConnectionError as error:
            if _is_refusal(error):
                raise
            self._why_not[node] = reason(error)
            raise KafkaConnectionError(self._told(node)) from error
        except NodeNotReadyError as error:
            raise NodeNotReadyError(self._told(node)) from error
        return await self._open().wait_for(connection.send_request(request), deadline.left_ms)

    def _told(self, node: int | str) -> str:
        """Return why a broker could not be connected to lately; of one that others named also where."""
        why = self._why_not.get(node, "not tried again yet")
        broker = self._open().cluster.broker_metadata(node)
        if broker is None or isinstance(node, str):
            return why
        return (
            f"broker {node} says it listens at {broker.host}:{broker.port}: {why}; "
            "check advertised.listeners of the broker"
        )

    async def _connected(self, node: int | str, limit_ms: float) -> KafkaConnection:
        manager = self._open()
        connection: KafkaConnection = manager.get_connection(
            node,
            # kafka-python's own limit spares the TLS handshake, so ours must be the one that ends the wait.
            timeout_ms=limit_ms + 1_000,
            # Its refreshing of metadata after an error would try without a limit.
            refresh_metadata_on_err=False,
        )
        if connection.connected:
            return connection
        try:
            await manager.wait_for(connection.init_future, limit_ms)
        except KafkaTimeoutError:
            accepted = connection.transport is not None
            connection.close(KafkaTimeoutError("gave up connecting"))
            manager.update_backoff(node)
            if accepted:
                raise KafkaTimeoutError(
                    f"accepts connections, but did not answer as a Kafka broker does within {limit_ms / 1000:.3g} s"
                ) from None
            raise KafkaConnectionError(f"no connection within {limit_ms / 1000:.3g} s") from None
        except (KafkaError, WatermarkSourceError):
            raise
        except Exception as error:
            if not self._settings.uses_sasl or connection.parser is None:
                raise
            raise self._no_login(error) from error
        return connection

    def _no_login(self, error: Exception) -> RefusedError:
        """Return the error for what a mechanism of kafka-python raises before a broker has refused anything."""
        mechanism = self._settings.values["sasl.mechanism"]
        hint = HINTS.get(mechanism, "check kafka.sasl.mechanism and kafka.sasl.jaas.config")
        return RefusedError(
            f"the login by {mechanism} at {','.join(self._settings.bootstrap_servers)} cannot be made: "
            f"{type(error).__name__}: {shortened(error)}; {hint}"
        )

    def ask_soon(self, node: int | str, request: Any, deadline: Deadline) -> Awaitable[Any]:
        """Begin to ``ask`` and return what to await, so that several brokers work at the same time."""
        return self._open().call_soon(self.ask, node, request, deadline)  # type: ignore[no-any-return]

    def begin(self, work: Callable[..., Awaitable[_Result]], *args: Any) -> Any:
        """Begin work that may outlive this ``run``, going on in the next ones, and return its future."""
        return self._open().call_soon(work, *args)

    async def is_answered(self, answer: Any, deadline: Deadline) -> bool:
        """Wait for what was begun; false if it is not over in time. Raises its error."""
        try:
            await self._open().wait_for(answer, deadline.left_ms)
        except KafkaTimeoutError:
            if answer.is_done:
                raise
        return bool(answer.is_done)

    async def ask_any(self, request: Callable[[], Any], deadline: Deadline, *, anyone: bool = False) -> Any:
        """Ask brokers in turn, connected ones first and the bootstrap servers last, until one answers.

        With ``anyone`` connected ones do not come first: a second opinion. One that is frozen has a few seconds before
        the others are asked, and all that is left when none of them has answered.

        Raises:
            RefusedError: a broker refused the login or the request.
            UnreachableError: none could be connected to within the limit; says why for each.
            ResponseTimeoutError: some accept connections, but none answers.
        """
        failures: dict[str, KafkaError] = {}
        backoff, is_first_round = self.backoff(deadline), True
        while True:
            for broker in self._candidates(anyone=anyone):
                if deadline.left_ms < _SHORTEST_TRY_MS and failures:
                    break
                limit = Deadline.after(min(_FIRST_TRY_MS, round(deadline.left_ms))) if is_first_round else deadline
                try:
                    answer = await self.ask(broker.node_id, request(), limit)
                except NodeNotReadyError as error:
                    failures.setdefault(f"{broker.host}:{broker.port}", error)
                except KafkaError as error:
                    if _is_refusal(error):
                        raise self.translated(error) from error
                    address = f"{broker.host}:{broker.port}"
                    if failures.get(address) != error:
                        _log.warning("Kafka broker %s: %s", address, reason(error))
                    failures[address] = error
                    if is_first_round and isinstance(error, _SILENCE):
                        self._silent_at[broker.node_id] = time.monotonic()
                else:
                    return answer
            is_first_round = False
            if not await backoff.wait():
                raise self._nobody(failures)

    def backoff(self, deadline: Deadline) -> Backoff:
        """Return the pauses between the tries of one call."""
        self._open()
        shortest, longest = self._settings.millis("retry.backoff.ms"), self._settings.millis("retry.backoff.max.ms")
        return Backoff(self._net, deadline, shortest, longest)

    def learn_brokers(self, metadata: Any) -> None:
        """Remember the brokers that an answer to a metadata request names."""
        manager = self._open()
        manager.cluster.update_metadata(metadata)
        for broker in manager.cluster.bootstrap_brokers():
            manager.close(broker.node_id)

    def translated(self, error: KafkaError) -> SourceError:
        """Return the error of this project that says the same, naming the brokers."""
        servers = ",".join(self._settings.bootstrap_servers)
        if _is_refusal(error):
            return RefusedError(
                f"the Kafka brokers at {servers} refused: {reason(error)}; check kafka.security.protocol, "
                "kafka.sasl.mechanism, kafka.sasl.jaas.config, kafka.ssl.* and the user's rights"
            )
        if isinstance(error, _SILENCE):
            return ResponseTimeoutError(
                f"the Kafka brokers at {servers} did not answer: {reason(error)}; check the brokers and the network, "
                "or allow more time, for example kafka.request.timeout.ms = 60000"
            )
        if isinstance(error, (KafkaConnectionError, NodeNotReadyError)):
            return UnreachableError(
                f"the Kafka brokers at {servers} cannot be reached: {reason(error)}; {_CHECK_THE_WAY}"
            )
        if isinstance(error, IncompatibleBrokerVersion):
            return SourceError(
                f"the Kafka brokers at {servers} are too old: {reason(error)}; {OLDEST_KAFKA} or later is needed, so "
                "upgrade them"
            )
        return SourceError(
            f"the Kafka brokers at {servers} answered with an error: {reason(error)}; the brokers' own log says why"
        )

    def _open(self) -> KafkaConnectionManager:
        if self._manager is None:
            if self._settings.uses_sasl:
                hide_wire_logs()
            configs = self._settings.client_configs()
            self._net = NetworkSelector(client_id=configs["client_id"])
            self._manager = _HearsOut(self._net, **configs)
        return self._manager

    def _candidates(self, *, anyone: bool) -> list[Any]:
        manager = self._open()
        known = list(manager.cluster.brokers())
        random.shuffle(known)
        if not anyone:
            first = manager.least_loaded_node()
            known.sort(key=lambda broker: broker.node_id != first)
        silent = {node for node, at in self._silent_at.items() if time.monotonic() - at < _SILENT_SECONDS}
        known.sort(key=lambda broker: broker.node_id in silent)
        return [*known, *manager.cluster.bootstrap_brokers()]

    def _nobody(self, failures: dict[str, KafkaError]) -> SourceError:
        servers = ",".join(self._settings.bootstrap_servers)
        tried = "; ".join(f"{address}: {reason(error)}" for address, error in sorted(failures.items()))
        silent = any(isinstance(error, _SILENCE) for error in failures.values())
        kind: type[SourceError] = ResponseTimeoutError if silent else UnreachableError
        what = "answered" if silent else "could be reached"
        return kind(
            f"no Kafka broker {what} within {self._limit_ms / 1000:g} s (kafka.default.api.timeout.ms); "
            f"kafka.bootstrap.servers is {servers}; tried {tried or 'none'}; {_CHECK_THE_WAY}"
        )


def _is_refusal(error: KafkaError) -> bool:
    # kafka-python wraps a failed handshake in a connection error and keeps the cause as context.
    return isinstance(error, _REFUSALS) or isinstance(error.__context__, ssl.SSLCertVerificationError)


def reason(error: KafkaError) -> str:
    """Return what an error of kafka-python says, or its name if it says nothing."""
    return ": ".join(str(arg) for arg in error.args) or type(error).__name__
