"""What kafka-python raises, as errors of this project that name the broker and say what to do."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Mapping

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

from pyspark_aligned_kafka.client.login_settings import MECHANISMS
from pyspark_aligned_kafka.client.settings import ClientSettings
from pyspark_aligned_kafka.cluster.retry import Deadline
from watermark_source.errors import RefusedError, ResponseTimeoutError, SourceError, UnreachableError, listed, shortened


class RefusedByBrokerError(KafkaError):  # type: ignore[misc]  # kafka-python has no types
    """A refusal, and the broker at which it was. Never leaves ``cluster``."""

    def __init__(self, address: str, error: KafkaError) -> None:
        super().__init__(f"the Kafka broker {address} refused: {reason(error)}")


class MissingRightError(AuthorizationError):  # type: ignore[misc]  # kafka-python has no types
    """The user lacks a right on resources of one kind, ``topic`` or ``group``. Never leaves ``cluster``."""

    def __init__(self, operation: str, kind: str, names: Collection[str]) -> None:
        super().__init__(f"the user lacks the right {operation} on {kind} {listed(names)}")
        self.operation = operation
        self.resources = [f"--{kind} {name}" for name in sorted(names)]


def grant(servers: str, operation: str, resources: Collection[str]) -> str:
    """Return the line that gives a user a right; ``resources`` are options of kafka-acls.sh."""
    return (
        f"kafka-acls.sh --bootstrap-server {servers} --add --allow-principal User:NAME --operation {operation} "
        f"{' '.join(resources)}"
    )


# Answers about this client that a retry does not change.
_REFUSALS = (
    RefusedByBrokerError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    IllegalSaslStateError,
    AuthorizationError,
)
OLDEST_KAFKA = "Kafka 2.3"
"""The first brokers that speak all we ask for."""
SILENCE = (KafkaTimeoutError, RequestTimedOutError)
"""No answer in time."""
_CHECK_THE_WAY = "check the addresses, the network and kafka.security.protocol"


def is_refusal(error: KafkaError) -> bool:
    """Return whether an answer is about this client, so that a retry does not change it."""
    # kafka-python wraps a failed handshake in a connection error and keeps the cause as context.
    return isinstance(error, _REFUSALS) or isinstance(error.__context__, ssl.SSLCertVerificationError)


def reason(error: KafkaError) -> str:
    """Return the text of an error of kafka-python, or its name if it has none."""
    return ": ".join(str(arg) for arg in error.args) or type(error).__name__


def translated(error: KafkaError, settings: ClientSettings) -> SourceError:
    """Return the same error in this project's tree, with the broker, or the bootstrap servers."""
    servers = ",".join(settings.bootstrap_servers)
    if isinstance(error, MissingRightError):
        return RefusedError(
            f"the Kafka brokers at {servers} refused: {reason(error)}. On the brokers: "
            f"{grant(servers, error.operation, error.resources)}"
        )
    if is_refusal(error):
        named = isinstance(error, RefusedByBrokerError)
        refusal = reason(error) if named else f"the Kafka brokers at {servers} refused: {reason(error)}"
        return RefusedError(
            f"{refusal}; check kafka.security.protocol, kafka.sasl.mechanism, kafka.sasl.jaas.config, kafka.ssl.* and "
            "the user's ACLs"
        )
    if isinstance(error, SILENCE):
        return ResponseTimeoutError(
            f"the Kafka brokers at {servers} did not answer: {reason(error)}; check the brokers and the network, "
            "or allow more time, for example kafka.request.timeout.ms = 60000"
        )
    if isinstance(error, (KafkaConnectionError, NodeNotReadyError)):
        return UnreachableError(f"the Kafka brokers at {servers} cannot be reached: {reason(error)}; {_CHECK_THE_WAY}")
    if isinstance(error, IncompatibleBrokerVersion):
        return SourceError(
            f"the Kafka brokers at {servers} are too old: {reason(error)}; {OLDEST_KAFKA} or later is needed, so "
            "upgrade them"
        )
    return SourceError(
        f"the Kafka brokers at {servers} answered with an error: {reason(error)}; the reason is in the brokers' own log"
    )


def no_login(error: Exception, address: str, settings: ClientSettings) -> RefusedError:
    """Return the error for what a mechanism of kafka-python raises before a broker has refused anything."""
    mechanism = settings.values["sasl.mechanism"]
    hint = MECHANISMS[mechanism].hint or "check kafka.sasl.mechanism and kafka.sasl.jaas.config"
    return RefusedError(
        f"the login by {mechanism} at {address} cannot be made: {type(error).__name__}: {shortened(error)}; {hint}"
    )


def no_broker(failures: Mapping[str, KafkaError], settings: ClientSettings, deadline: Deadline) -> SourceError:
    """Return the error for that none of the brokers tried has answered, each with why not."""
    servers = ",".join(settings.bootstrap_servers)
    tried = "; ".join(f"{address}: {reason(error)}" for address, error in sorted(failures.items()))
    silent = any(isinstance(error, SILENCE) for error in failures.values())
    kind: type[SourceError] = ResponseTimeoutError if silent else UnreachableError
    what = "answered" if silent else "could be reached"
    return kind(
        f"no Kafka broker {what} within {deadline.text}; "
        f"kafka.bootstrap.servers is {servers}; tried {tried or 'none'}; {_CHECK_THE_WAY}"
    )


def not_understood(error: Exception, settings: ClientSettings) -> SourceError:
    """Return the error for whatever kafka-python raises of an answer that no broker gives."""
    return SourceError(
        f"the Kafka brokers at {','.join(settings.bootstrap_servers)} answered what cannot be "
        f"understood: {type(error).__name__}: {shortened(error)}; {_CHECK_THE_WAY}"
    )
