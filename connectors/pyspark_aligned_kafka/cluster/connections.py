"""One connection to each broker, made when it is needed: every request and every wait has an end."""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, NodeNotReadyError
from kafka.net.compat import KafkaNetClient
from kafka.net.connection import KafkaConnection
from kafka.net.inet import KafkaNetSocket, create_connection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from pyspark_aligned_kafka.client.login_settings import hide_wire_logs
from pyspark_aligned_kafka.client.settings import ClientSettings
from pyspark_aligned_kafka.cluster.broker_errors import (
    SILENCE,
    RefusedByBrokerError,
    is_refusal,
    no_broker,
    no_login,
    not_understood,
    reason,
    translated,
)
from pyspark_aligned_kafka.cluster.retry import API_TIMEOUT, Backoff, Deadline
from watermark_source.durations import format_duration
from watermark_source.errors import ResponseTimeoutError, WatermarkSourceError
from watermark_source.spark_process import is_spark_worker

_log = logging.getLogger(__name__)

# In which order brokers get requests that any of them can answer.


_SILENT_SECONDS = 60.0
"""Seconds for which a broker that did not answer is last in the order."""
_BEFORE_BOOTSTRAP = 2
"""Number of known brokers before the bootstrap servers: where two are silent, all may have moved (KIP-899)."""


class BrokerOrder:
    """Connected ones first, bootstrap servers after two others; at last who was silent lately, and who is doubted."""

    def __init__(self) -> None:
        self._silent_at: dict[int | str, float] = {}
        """Brokers that did not answer while others could be asked, and when, by ``time.monotonic()``."""

    def note_silent(self, node: int | str) -> None:
        """Take in that a broker did not answer while others can be asked."""
        self._silent_at[node] = time.monotonic()

    def is_silent(self, node: int | str) -> bool:
        """Return whether a broker was silent lately."""
        return time.monotonic() - self._silent_at.get(node, -_SILENT_SECONDS) < _SILENT_SECONDS

    def of(self, manager: KafkaConnectionManager, *, anyone: bool, doubted: int | None = None) -> list[Any]:
        """Return the brokers that a cluster's connections know. With ``anyone`` connected ones do not come first."""
        known = list(manager.cluster.brokers())
        random.shuffle(known)
        if not anyone:
            first = manager.least_loaded_node()
            known.sort(key=lambda broker: broker.node_id != first)

        def turn(broker: Any) -> tuple[bool, bool]:
            return broker.node_id == doubted, self.is_silent(broker.node_id)

        known.sort(key=turn)
        asked = [*known[:_BEFORE_BOOTSTRAP], *manager.cluster.bootstrap_brokers(), *known[_BEFORE_BOOTSTRAP:]]
        return sorted(asked, key=turn)


_Client = TypeVar("_Client")
_Result = TypeVar("_Result")

_SHORTEST_TRY_MS = 20
"""In less time no broker answers, and the log would name a healthy one."""
_MEANINGFUL_TRY_MS = 1_000
"""A silence of less time explains less than an earlier failure."""
_MOST_AT_ONCE = 1 << 20
"""Bytes that are read from a broker before they are parsed: a frame's length is in the first four."""
_FIRST_TRY_MS = 3_000
"""Time before the next broker gets the request: longer than a broker takes that is only busy."""


class _Some:
    """A socket from which a limited number of bytes can be read; then it seems to have no more for now."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole
        self._left = _MOST_AT_ONCE

    def __getattr__(self, name: str) -> Any:
        # What kafka-python logs about a connection names its addresses.
        return getattr(self._whole, name)

    def recv(self, size: int) -> bytes:
        # What TLS has deciphered already makes no socket readable again: it is read to its end.
        if self._left <= 0 and not (hasattr(self._whole, "pending") and self._whole.pending()):
            raise BlockingIOError
        data: bytes = self._whole.recv(size)
        self._left -= len(data)
        return data


class _Direct(KafkaNetSocket):  # type: ignore[misc]  # kafka-python has no types
    """A socket that is not connected through a proxy, and is closed where it cannot be connected.

    kafka-python leaves it to the frames of its errors, which last until garbage is collected: a process that plans
    collects rarely.
    """

    SCHEMES = ("direct",)

    async def connect(
        self, net: Any, addrinfo: Any, socket_options: Sequence[Any] = (), timeout_at: float | None = None
    ) -> Any:
        family, kind, protocol, _, address = addrinfo
        sock = self.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            for option in socket_options:
                sock.setsockopt(*option)
            return await self.sock_connect(net, sock, address, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


class _Bounded(KafkaTCPTransport):  # type: ignore[misc]  # kafka-python has no types
    """Reads a limited number of bytes at a time, and delivers what a broker sent before it closed the connection.

    kafka-python reads a socket until nothing more is there before it looks at a frame's length: what sends without end
    fills the memory of the process. And it drops bytes that arrive together with the end of a connection, and a broker
    closes right after it has refused a login: on a busy machine the reason was never heard.
    """

    _sock: Any

    def _sock_recv(self) -> tuple[bytes, KafkaError | None]:
        whole = self._sock
        self._sock = _Some(whole)
        try:
            data, error = super()._sock_recv()
        finally:
            self._sock = whole
        # The end is still there when the socket is read again.
        return data, None if data else error


class _BoundedTls(_Bounded, KafkaSSLTransport):  # type: ignore[misc]  # kafka-python has no types
    """TLS whose handshake has an end. kafka-python's waits for a silent broker, and has its socket, for ever."""

    handshake_until: float | None = None

    async def handshake(self) -> None:
        while True:
            try:
                return self._sock.do_handshake()  # type: ignore[no-any-return]
            except ssl.SSLWantReadError:
                wait = self._net.wait_read
            except ssl.SSLWantWriteError:
                wait = self._net.wait_write
            except (OSError, ValueError) as error:
                raise KafkaConnectionError(f"Handshake failed: {error}") from error
            await wait(self._sock, timeout_at=self.handshake_until)


class _BoundedManager(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python has no types
    """Connects with these transports, and closes the socket of one that cannot be used."""

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        opened = await create_connection(
            self._net, node.host, node.port, self.config["socket_options"], proxy_url="direct:", timeout_at=timeout_at
        )
        try:
            transport = opened = self._over(opened, node.host, timeout_at)
            await transport.handshake()
        except BaseException:
            opened.close()
            raise
        return transport

    def _over(self, connected: socket.socket, host: str, timeout_at: float | None) -> Any:
        if not self.ssl_enabled:
            return _Bounded(self._net, connected, host=host)
        of_tls = {name: value for name, value in self.config.items() if name.startswith("ssl_")}
        transport = _BoundedTls(self._net, connected, host=host, **of_tls)
        transport.handshake_until = timeout_at
        return transport


def opened(client: Callable[..., _Client], settings: ClientSettings, **more: Any) -> _Client:
    """Return a client of kafka-python, such as ``KafkaProducer``; its reads are bounded.

    What connects it is closed again where it cannot be made: kafka-python 3.0 would leave the sockets, and the thread
    that tries to reach a broker.

    Args:
        client: the class to be made.
        settings: the client takes those that it knows.
        more: in their place, by the names of kafka-python.

    Raises:
        KafkaError: no broker could be reached, or none takes the login.
    """
    known = client.DEFAULT_CONFIG  # type: ignore[attr-defined]  # kafka-python has no types
    connecting: list[KafkaNetClient] = []

    def bounded(**configs: Any) -> KafkaNetClient:
        net = NetworkSelector(**configs)
        connecting.append(KafkaNetClient(net, _BoundedManager(net, **configs)))
        return connecting[-1]

    configs = {name: value for name, value in settings.client_configs().items() if name in known}
    try:
        return client(**{**configs, "kafka_client": bounded, **more})
    except BaseException:
        for each in connecting:
            each.close()
        raise


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
        self._order = BrokerOrder()
        self.answered_by: int | str = ""
        """The broker of the last answer to ``request_any``."""

    def run(self, work: Callable[[Deadline], Awaitable[_Result]], limit_ms: int | None = None) -> _Result:
        """Run ``work`` with a time limit; by default it is ``default.api.timeout.ms``.

        Raises:
            SourceError: whatever ``work`` did not handle, as an error of this project's tree.
        """
        self._open()
        net = self._net
        assert net is not None

        async def run_work() -> _Result:
            # What became due while the loop stood still comes first: a login that is over is renewed before it is used.
            await net.sleep(0)
            deadline = Deadline.after(self._limit_ms, API_TIMEOUT) if limit_ms is None else Deadline.after(limit_ms)
            return await work(deadline)

        try:
            result: _Result = net.run(run_work)
        except WatermarkSourceError:
            raise
        except KafkaError as error:
            raise translated(error, self._settings) from error
        except Exception as error:
            # kafka-python raises anything when an answer is damaged, or names a host that no resolver can be asked for.
            raise not_understood(error, self._settings) from error
        return result

    def close(self) -> None:
        """Close all connections; the next ``run`` opens new ones."""
        if self._manager is not None and self._net is not None:
            self._manager.close()
            self._net.close()
        self._manager = self._net = None

    async def request(self, node: int | str, request: Any, deadline: Deadline) -> Any:
        """Send one request to one broker and return its answer, or raise kafka-python's error."""
        connection = await self._connect(node, min(self._setup_ms, deadline.left_ms))
        # The login on it may be renewed meanwhile.
        with self._names_who_refuses(node):
            answer = await self._open().wait_for(connection.send_request(request), deadline.left_ms)
        OUTAGES.note_answer(self._address(node))
        return answer

    @contextlib.contextmanager
    def _names_who_refuses(self, node: int | str) -> Iterator[None]:
        try:
            yield
        except KafkaError as error:
            if is_refusal(error):
                raise RefusedByBrokerError(self._address(node), error) from error
            raise

    def _address(self, node: int | str) -> str:
        broker = self._open().cluster.broker_metadata(node)
        return str(node) if broker is None else f"{broker.host}:{broker.port}"

    def _failure_text(self, node: int | str) -> str:
        """Return why the last connection to a broker failed, and its address if other brokers named it."""
        why = self._why_not.get(node, "not tried again yet")
        broker = self._open().cluster.broker_metadata(node)
        if broker is None or isinstance(node, str) or OUTAGES.has_worked(self._address(node)):
            return why
        return (
            f"broker {node} advertises the address {broker.host}:{broker.port}: {why}; "
            "check advertised.listeners of the broker"
        )

    async def _connect(self, node: int | str, limit_ms: float) -> KafkaConnection:
        try:
            with self._names_who_refuses(node):
                return await self._open_connection(node, limit_ms)
        except KafkaConnectionError as error:
            self._why_not[node] = reason(error)
            # Once brokers are known, a bootstrap server stands for one of them.
            if not isinstance(node, str) or not self._open().cluster.brokers():
                OUTAGES.note_failure(self._address(node), reason(error))
            raise KafkaConnectionError(self._failure_text(node)) from error
        except NodeNotReadyError as error:
            raise NodeNotReadyError(self._failure_text(node)) from error

    async def _open_connection(self, node: int | str, limit_ms: float) -> KafkaConnection:
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
            raise no_login(error, self._address(node), self._settings) from error
        return connection

    def begin(self, work: Callable[..., Awaitable[_Result]], *args: Any) -> Any:
        """Begin work, so that several brokers work at the same time; return its future.

        It may outlive this ``run``, and continues in the next ones then.
        """
        return self._open().call_soon(work, *args)

    async def await_answer(self, answer: Any, deadline: Deadline) -> bool:
        """Wait for what was begun; false if it is not over in time. Raises its error."""
        try:
            await self._open().wait_for(answer, deadline.left_ms)
        except KafkaTimeoutError:
            # It may have been answered between the end of the wait and now.
            if answer.failed():
                raise answer.exception from None
        return bool(answer.is_done)

    async def request_any(
        self, request: Callable[[], Any], deadline: Deadline, *, anyone: bool = False, doubted: int | None = None
    ) -> Any:
        """Ask brokers in turn, in ``BrokerOrder``, until one answers.

        With ``anyone`` connected ones do not come first: a second opinion, which the broker that is ``doubted`` is the
        last to be asked for. One that is frozen has a few seconds before the others are asked, and all that is left
        when none of them has answered.

        Raises:
            RefusedError: a broker refused the login or the request.
            UnreachableError: none could be connected to within the limit; with the reason for each.
            ResponseTimeoutError: some accept connections, but none answers.
        """
        failures: dict[str, KafkaError] = {}
        backoff, is_first_round = self.backoff(deadline), True
        while True:
            for broker in self._order.of(self._open(), anyone=anyone, doubted=doubted):
                if deadline.left_ms < _SHORTEST_TRY_MS and failures:
                    break
                limit = Deadline.after(min(_FIRST_TRY_MS, round(deadline.left_ms))) if is_first_round else deadline
                time_ms = limit.left_ms
                try:
                    answer = await self.request(broker.node_id, request(), limit)
                except NodeNotReadyError as error:
                    failures.setdefault(f"{broker.host}:{broker.port}", error)
                except KafkaError as error:
                    if is_refusal(error):
                        raise translated(error, self._settings) from error
                    address = f"{broker.host}:{broker.port}"
                    if isinstance(error, SILENCE) and time_ms < _MEANINGFUL_TRY_MS and address in failures:
                        continue
                    if not isinstance(error, KafkaConnectionError):
                        OUTAGES.note_failure(address, reason(error))
                    failures[address] = error
                    if is_first_round and isinstance(error, SILENCE):
                        self._order.note_silent(broker.node_id)
                else:
                    self.answered_by = broker.node_id
                    return answer
            is_first_round = False
            if not await backoff.wait():
                raise no_broker(failures, self._settings, deadline)

    async def request_each(
        self, nodes: Collection[int | str], request: Callable[[], Any], deadline: Deadline
    ) -> dict[int | str, Any]:
        """Ask several brokers at the same time, and return the answer of each.

        Raises:
            RefusedError: a broker refused the login or the request.
            ResponseTimeoutError: one gave no answer within a few seconds; all of these are named.
        """
        limit = Deadline.after(min(_FIRST_TRY_MS, round(deadline.left_ms)))
        begun = {node: self.begin(self._answer_or_error, node, request(), limit) for node in nodes}
        answers = {node: await each for node, each in begun.items()}
        silent = {node: why for node, why in answers.items() if isinstance(why, KafkaError)}
        if silent:
            named = "; ".join(f"broker {self._address(node)}: {reason(why)}" for node, why in silent.items())
            raise ResponseTimeoutError(f"not all brokers of the cluster answer: {named}")
        return answers

    async def _answer_or_error(self, node: int | str, request: Any, limit: Deadline) -> Any:
        try:
            return await self.request(node, request, limit)
        except KafkaError as error:
            if is_refusal(error):
                raise
            self._order.note_silent(node)
            OUTAGES.note_failure(self._address(node), reason(error))
            return error

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

    def _open(self) -> KafkaConnectionManager:
        if self._manager is None:
            if self._settings.uses_sasl:
                hide_wire_logs()
            configs = self._settings.client_configs()
            self._net = NetworkSelector(client_id=configs["client_id"])
            self._manager = _BoundedManager(self._net, **configs)
            if is_spark_worker():
                # Several lines for each try; ours come once.
                logging.getLogger("kafka.net").setLevel(logging.CRITICAL)
        return self._manager


# Brokers that do not answer: the log has a line when one goes, one a minute, and one when it is back.

_AGAIN_SECONDS = 60.0
_ADVICE = (
    ", until kafka.default.api.timeout.ms is over (60 s by default); check kafka.bootstrap.servers and "
    "advertised.listeners"
)
"""Of a broker that has never answered."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A broker that does not answer; times are seconds of the monotonic clock."""

    since: float
    logged: float


class BrokerOutages:
    """Of one process: its connections to a broker share what they know of it. Called from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._outages: dict[str, Outage] = {}
        self._worked: set[str] = set()

    def has_worked(self, address: str) -> bool:
        """Return whether a broker has answered at this address in this process."""
        return address in self._worked

    def note_answer(self, address: str) -> None:
        """Note that a broker has answered."""
        if address in self._worked and not self._outages:
            return
        with self._lock:
            self._worked.add(address)
            outage = self._outages.pop(address, None)
        if outage is not None:
            _log.warning(
                "Kafka broker %s answers again, after %s", address, format_duration(self._millis(outage.since))
            )

    def note_failure(self, address: str, why: str) -> None:
        """Note that a broker could not be connected to, or did not answer."""
        now = self._clock()
        with self._lock:
            outage = self._outages.get(address)
            if outage is not None and now - outage.logged < _AGAIN_SECONDS:
                return
            self._outages[address] = Outage(now, now) if outage is None else replace(outage, logged=now)
        if outage is None:
            advice = "" if address in self._worked else _ADVICE
            _log.warning("Kafka broker %s does not answer: %s; it is tried again%s", address, why, advice)
        else:
            _log.warning(
                "Kafka broker %s has not answered for %s: %s", address, format_duration(self._millis(outage.since)), why
            )

    def _millis(self, since: float) -> int:
        return round((self._clock() - since) * 1_000)


OUTAGES = BrokerOutages()
