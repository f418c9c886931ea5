"""Consumer groups from outside: what Kafka's own command line tools show and do, and the offsets a group holds."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from services.cache import cached
from services.errors import ServiceError
from services.ivy import Module, retrieve
from services.java import java_command
from services.kafka_local import KAFKA_VERSION, kafka_classpath
from services.kafka_topics import admin_client
from services.local_server import ChildProcess

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

# The broker's jars lack these alone; everything they need is among them.
_TOOLS = Module("org.apache.kafka", "kafka-tools", KAFKA_VERSION)
_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_SECONDS = 120.0


class Shown(NamedTuple):
    """One line of ``kafka-consumer-groups --describe``."""

    current_offset: int
    log_end_offset: int
    lag: int


class Committed(NamedTuple):
    """An offset a group holds."""

    offset: int
    metadata: str


def describe_group(bootstrap: str, group: str) -> Mapping[tuple[str, int], Shown]:
    """Return what ``kafka-consumer-groups --describe --group`` prints, by topic and partition.

    Raises:
        ServiceError: the tool failed, for example because there is no such group; the message holds its output.
    """
    heads, *lines = _described(bootstrap, group)
    shown: dict[tuple[str, int], Shown] = {}
    for line in lines:
        row = dict(zip(heads, line, strict=True))
        offsets = (int(row[name]) for name in ("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"))
        shown[row["TOPIC"], int(row["PARTITION"])] = Shown(*offsets)
    return shown


@contextmanager
def group_member(bootstrap: str, group: str, topic: str, *, protocol: str = "classic") -> Iterator[None]:
    """Have Kafka's console consumer be an active member of a group; it leaves when the block is left.

    ``protocol`` is ``classic`` or ``consumer`` (KIP-848).

    Raises:
        ServiceError: it did not join.
    """
    options = ["--bootstrap-server", bootstrap, "--group", group, "--topic", topic]
    for setting in (f"group.protocol={protocol}", "enable.auto.commit=false"):
        options += ["--command-property", setting]
    with tempfile.TemporaryDirectory(prefix="member-") as made:
        folder = Path(made)
        member = ChildProcess(_java(_CONSUMER, *options), folder=folder, log=folder / "log")
        try:
            end = time.monotonic() + _SECONDS
            while not _has_members(bootstrap, group):
                if member.exit_code is not None or time.monotonic() >= end:
                    raise ServiceError(f"no consumer joined group {group}; the end of its log:\n{member.last_lines()}")
            yield
        finally:
            member.stop(seconds=10)


def coordinator_of(bootstrap: str, group: str) -> int:
    """Return the id of the node that coordinates a group, whether there is such a group or not."""
    # There is no public way.
    node: int = _ask(bootstrap, lambda admin: admin._manager.run(admin._find_coordinator_id, group))  # noqa: SLF001
    return node


def committed_offsets(bootstrap: str, group: str) -> Mapping[tuple[str, int], Committed]:
    """Return what a group holds, by topic and partition; nothing if there is no such group."""
    found = _ask(bootstrap, lambda admin: admin.list_group_offsets(group)[group])
    return {(each.topic, each.partition): Committed(held.offset, held.metadata) for each, held in found.items()}


def alter_offsets(bootstrap: str, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Set what a group without members holds.

    Raises:
        ServiceError: the broker refused.
    """
    from kafka import OffsetAndMetadata, TopicPartition
    from kafka.errors import NoError, RetriableError

    def alter(admin: KafkaAdminClient) -> Any:
        answers = admin.alter_group_offsets(group, wanted)
        # The coordinator may not have loaded the group yet, or not know yet that it is the one.
        if passing := next((kind for kind in answers.values() if issubclass(kind, RetriableError)), None):
            raise passing
        return answers

    wanted = {TopicPartition(*each): OffsetAndMetadata(offset, "", -1) for each, offset in offsets.items()}
    answers = _ask(bootstrap, alter)
    refused = {f"{each.topic}-{each.partition}": kind.__name__ for each, kind in answers.items() if kind is not NoError}
    if refused:
        raise ServiceError(f"offsets of group {group} were refused: {refused}")


def _ask(bootstrap: str, question: Callable[[KafkaAdminClient], Any]) -> Any:
    """Ask until the group has a coordinator that answers; the first group of a cluster waits for a topic to be made."""
    from kafka.errors import RetriableError

    end = time.monotonic() + _SECONDS
    while True:
        with admin_client(bootstrap) as admin:
            try:
                return question(admin)
            except RetriableError:
                if time.monotonic() >= end:
                    raise
        time.sleep(0.1)


def _has_members(bootstrap: str, group: str) -> bool:
    try:
        (heads, state) = _described(bootstrap, group, "--state")
    except ServiceError:
        return False
    # An address with a blank in it is two words: counted from the end.
    return int(state[heads.index("#MEMBERS") - len(heads)]) > 0


def _described(bootstrap: str, group: str, *options: str) -> list[list[str]]:
    command = _java(_GROUPS, "--bootstrap-server", bootstrap, "--describe", "--group", group, *options)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        raise ServiceError(f"kafka-consumer-groups did not end within {_SECONDS:g} s") from late
    table = [line.split() for line in done.stdout.splitlines() if line.strip()]
    # It ends with 0 also when it failed.
    if not table or table[0][0] != "GROUP":
        raise ServiceError(f"kafka-consumer-groups showed no group {group}:\n{done.stdout}\n{done.stderr}")
    return table


def _java(main: str, *arguments: str) -> list[str]:
    tools = cached(f"kafka-tools-{KAFKA_VERSION}", lambda empty: retrieve([_TOOLS], empty, transitive=False))
    return [
        java_command(),
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        os.pathsep.join((str(tools / "*"), kafka_classpath(KAFKA_VERSION))),
        main,
        *arguments,
    ]
