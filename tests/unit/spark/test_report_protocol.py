"""Progress reports over a real socket: what arrives, and what is refused."""

from __future__ import annotations

import contextlib
import json
import logging
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from watermark_source.contract.stream import Relocation
from watermark_source.planning.disorder import BUCKETS, DisorderSegment, RangeSummary
from watermark_source.planning.policy import OnLoss, PlanPolicy
from watermark_source.planning.range_report import Coverage, RangeReport, RowTotals
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.planning.watermark import Millis
from watermark_source.spark import report_protocol as protocol
from watermark_source.spark.driver import report_server
from watermark_source.spark.driver.report_server import ReportBook, ReportServer
from watermark_source.spark.driver.task_reports import ReadingAgain, reread_task
from watermark_source.spark.executor import reading
from watermark_source.spark.executor.reading import send_reports, send_unexamined
from watermark_source.spark.report_protocol import ReportAddress

WHOLE = SplitRange(Split("log", 0), 0, 10)
REPORT = RangeReport(WHOLE, Millis(99), RowTotals(read=10, future=1))
PATIENCE = 60.0
"""Seconds for what takes some milliseconds on a machine with nothing else to do."""


@pytest.fixture(autouse=True)
def _connects_again_however_long_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this process stands still for a second, its server takes its clients for strangers."""
    monkeypatch.setattr(reading, "_SLOW", PATIENCE)


@pytest.fixture
def book() -> ReportBook:
    return ReportBook()


@pytest.fixture
def server(book: ReportBook) -> Iterator[ReportServer]:
    made = ReportServer(book)
    yield made
    made.close()


def arrived(book: ReportBook, wanted: SplitRange = WHOLE) -> bool:
    return not book.cover(wanted).missing


def connect(server: ReportServer) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.address.port), timeout=PATIENCE)
    assert len(connection.recv(32, socket.MSG_WAITALL)) == 32
    return connection


def is_logged(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    """Wait for a log line of the server's thread, which is written after it has hung up."""
    deadline = time.monotonic() + PATIENCE
    while text not in caplog.text and time.monotonic() < deadline:
        time.sleep(0.01)
    return text in caplog.text


def is_hung_up(connection: socket.socket) -> bool:
    with contextlib.suppress(ConnectionError):
        return connection.recv(1) == b""
    return True


def test_what_is_sent_arrives(book: ReportBook, server: ReportServer) -> None:
    other = RangeReport(
        SplitRange(Split("a topic-with.dots", 7), 2**40, 2**40 + 5), None, RowTotals(undated=3, malformed=2),
        summary='{"a":"ä"}',
    )  # fmt: skip
    assert protocol.decode(b"".join(protocol.messages([other]))) == [other]
    assert send_reports(server.address, [REPORT, other])
    assert book.cover(WHOLE) == Coverage(RangeSummary(Millis(99)), RowTotals(read=10, future=1), ())
    assert arrived(book, other.range)


def test_the_same_report_twice_counts_once(book: ReportBook, server: ReportServer) -> None:
    assert send_reports(server.address, [REPORT])
    assert send_reports(server.address, [REPORT])
    assert book.cover(WHOLE).rows.read == 10


def test_reports_of_ten_thousand_splits_fit_into_one_message(book: ReportBook, server: ReportServer) -> None:
    ranges = [SplitRange(Split("t" * 249, n), 2**50, 2**50 + 1_000_000) for n in range(10_000)]
    assert send_reports(server.address, [RangeReport(r, Millis(2**41), RowTotals(read=1_000_000)) for r in ranges])
    assert all(arrived(book, r) for r in ranges)


def test_reports_that_are_longer_than_a_message_arrive_in_several(book: ReportBook, server: ReportServer) -> None:
    """Of ten thousand splits whose disorder is counted."""
    counts = tuple((bucket, 1_000_000 + bucket) for bucket in range(0, BUCKETS, 2))
    segment = DisorderSegment(Millis(2**41), Millis(2**41), counts)
    ranges = [SplitRange(Split("t" * 249, n), 2**50, 2**50 + 10_000) for n in range(10_000)]
    seen = [RangeReport(r, Millis(2**41), RowTotals(read=10_000), segments=(segment,)) for r in ranges]
    assert sum(map(len, protocol.messages(seen))) > 2 * protocol.MAX_BODY
    assert send_reports(server.address, seen)
    assert all(not found.missing and found.seen.segments == (segment,) for found in book.cover_each(ranges))


def test_many_tasks_report_at_once(book: ReportBook, server: ReportServer) -> None:
    ranges = [SplitRange(Split("log", n), 0, 1) for n in range(32)]
    threads = [
        threading.Thread(target=send_reports, args=(server.address, [RangeReport(r, Millis(1), RowTotals(read=1))]))
        for r in ranges
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(arrived(book, r) for r in ranges)


def test_a_wrong_key_is_refused(book: ReportBook, server: ReportServer, caplog: pytest.LogCaptureFixture) -> None:
    assert not send_reports(replace(server.address, key=b"guess" * 7), [REPORT])
    assert not arrived(book)
    assert is_logged(caplog, "wrong key")


def test_a_message_of_another_connection_is_refused(book: ReportBook, server: ReportServer) -> None:
    (body,) = protocol.messages([REPORT])
    with socket.create_connection(("127.0.0.1", server.address.port), timeout=PATIENCE) as first:
        challenge = first.recv(32, socket.MSG_WAITALL)
        message = protocol.header(server.address.key, challenge, body) + body
        first.sendall(message)
        assert first.recv(2, socket.MSG_WAITALL) == b"OK"
    book.forget(WHOLE.split)
    with connect(server) as again:
        again.sendall(message)
        assert is_hung_up(again)
    assert not arrived(book)


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + b"\0" * 64, b"\xff" * 68, b"\0" * 68, b"\x7f\xff\xff\xff" + b"\0" * 64],
    ids=["http", "all ones", "empty body", "two gigabytes"],
)
def test_garbage_is_refused_and_the_next_report_arrives(book: ReportBook, server: ReportServer, garbage: bytes) -> None:
    with connect(server) as connection:
        # The server may hang up before all of it is sent.
        with contextlib.suppress(OSError):
            connection.sendall(garbage)
            connection.shutdown(socket.SHUT_WR)
        assert is_hung_up(connection)
    assert send_reports(server.address, [REPORT])
    assert arrived(book)


@pytest.mark.parametrize("length", [0, protocol.MAX_BODY + 1, 2**32 - 1])
def test_a_length_beyond_the_bound_is_refused_before_any_of_it_is_read(
    server: ReportServer, caplog: pytest.LogCaptureFixture, length: int
) -> None:
    with socket.create_connection(("127.0.0.1", server.address.port), timeout=PATIENCE) as connection:
        challenge = connection.recv(32, socket.MSG_WAITALL)
        logged = struct.pack(">I", length) + bytes(32)
        connection.sendall(logged + protocol._proof(server.address.key, challenge, logged))
        assert is_hung_up(connection)
    assert is_logged(caplog, f"a report of {length} bytes")


def test_a_body_that_is_not_the_one_of_its_header_is_refused(
    book: ReportBook, server: ReportServer, caplog: pytest.LogCaptureFixture
) -> None:
    (body,) = protocol.messages([REPORT])
    with socket.create_connection(("127.0.0.1", server.address.port), timeout=PATIENCE) as connection:
        challenge = connection.recv(32, socket.MSG_WAITALL)
        connection.sendall(protocol.header(server.address.key, challenge, body) + body.replace(b"99", b"98"))
        assert is_hung_up(connection)
    assert is_logged(caplog, "a body that does not match its header")
    assert not arrived(book)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"null", b"7", b'{"a":1}', b'["ab"]', b"[[]]", b"[[1,2,3]]", b'[["log",0,0,10,1,1,1,1]]',
        b'[["log",0,0,10,"x",1,1]]', b'[["log",null,0,10,1,1,1]]', b'[["log",0,0,10,NaN,1,1]]',
        b'[["log",0,0,10,Infinity,1,1]]', b'[["log",0,0,10,1e999,1,1]]', b"\xff\xfe", b"[" * 200_000,
        b'[["log",0,0,10,' + b"9" * 5_000 + b",1,1]]",
        # Numbers that no task can have seen, and no checkpoint could hold.
        b'[["log",0,0,10,9223372036854775808,1,1]]', b'[["log",0,0,10,1,9223372036854775808,1]]',
        b'[["log",0,0,10,1,-1,1]]', b'[["log",0,10,0,1,1,1]]', b'[["log",-1,0,10,1,1,1]]',
        b'[["log",0,0,10,1.5,1,1]]', b'[["log",0,0,10,1,"1",1]]', b'[["log",0,0,10,1,true,1]]',
        b'[[null,0,0,10,1,1,1]]', b'[[["log"],0,0,10,1,1,1]]',
    ],
    ids=lambda b: repr(b[:30]),
)  # fmt: skip
def test_a_signed_message_that_is_no_report_is_refused_and_logged(
    book: ReportBook,
    server: ReportServer,
    body: bytes,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crashed: list[object] = []
    monkeypatch.setattr(threading, "excepthook", crashed.append)
    monkeypatch.setattr(protocol, "messages", lambda *_: [body])
    assert not send_reports(server.address, [REPORT])
    monkeypatch.undo()
    assert not crashed
    assert is_logged(caplog, "refused")
    assert not arrived(book)
    assert send_reports(server.address, [REPORT])


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=20))
def test_any_json_is_a_report_or_a_value_error(value: object) -> None:
    body = json.dumps(value).encode()
    with contextlib.suppress(ValueError):
        assert all(isinstance(r, RangeReport) for r in protocol.decode(body))


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff", b"{}", b"[[]]", b"[[1, 2]]", b"[null]",
     b'[["t", 0, 0, 1, null, 1, 0, [1], 0, 0, null, [], null]]',
     b'[["t", 0, 0, 1, null, 1, 0, [], 0, 0, null, [[1]], null]]',
     b'[["t", 0, 2, 1, null, 1, 0, [], 0, 0, null, [], null]]', b'[["t", 0, 0, 1, null, 1, 0, [], 0, 0, null, [], 7]]',
     b'[["t", 0, 0, 1, null, 1, 0, [], 0, 0, null, [], "{"]]',
     b'[["t", 0, 0, 1, null, 1, 0, [], 0, 0, null, [], "1.0 "]]',
],
)  # fmt: skip
def test_what_is_not_a_report_is_called_so_once(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"^not a report: (?!not a report)"):
        protocol.decode(body)


@pytest.mark.parametrize("sent", [b"", b"\0", b"\0" * 67])
def test_a_connection_that_does_not_prove_itself_is_closed_after_half_a_second(
    server: ReportServer, sent: bytes
) -> None:
    began = time.monotonic()
    with connect(server) as connection:
        connection.sendall(sent)
        assert is_hung_up(connection)
    assert time.monotonic() - began >= protocol.PROOF_TIMEOUT
    assert server.strangers() == f"1 (the last from 127.0.0.1: {protocol.UNPROVEN})"
    assert server.strangers() is None


def test_a_connection_that_sends_a_byte_now_and_then_is_closed_in_time(
    server: ReportServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also behind a header that proves it."""
    monkeypatch.setattr(protocol, "TIMEOUT", 0.5)
    for proves in (False, True):
        with socket.create_connection(("127.0.0.1", server.address.port), timeout=PATIENCE) as connection:
            challenge = connection.recv(32, socket.MSG_WAITALL)
            if proves:
                connection.sendall(protocol.header(server.address.key, challenge, b"x" * 1_000))
            for _ in range(600):
                try:
                    connection.sendall(b"\0")
                except OSError:
                    break
                time.sleep(0.1)
            else:
                pytest.fail("it may send for a minute")


@pytest.mark.parametrize("connections", [70, 300])
def test_reports_arrive_at_once_while_strangers_hold_connections(
    book: ReportBook, server: ReportServer, connections: int
) -> None:
    with contextlib.ExitStack() as held:
        for number in range(connections):
            if number % 20 == 0:
                report = RangeReport(SplitRange(Split("log", number), 0, 10), Millis(99), RowTotals(read=10, future=1))
                # Behind twenty strangers, each with half a second, it would not come in time.
                assert send_reports(server.address, [report])
                assert arrived(book, report.range)
            held.enter_context(socket.create_connection(("127.0.0.1", server.address.port), timeout=PATIENCE))


def test_the_warning_about_missing_reports_names_strangers_where_there_were_any(
    book: ReportBook, server: ReportServer, caplog: pytest.LogCaptureFixture
) -> None:
    again = ReadingAgain(None, book, server)  # type: ignore[arg-type]
    for _ in range(2):
        again._warn()
    with connect(server) as stranger:
        assert is_hung_up(stranger)
    assert is_logged(caplog, "was refused")
    caplog.clear()
    for _ in range(2):
        again._warn()
    (line,) = caplog.messages
    assert "connections of others than this query's tasks were closed there: 1 (the last from 127.0.0.1: it did" in line


def test_a_stranger_makes_room_for_a_newer_connection_and_a_task_does_not(
    book: ReportBook, server: ReportServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_server, "_MAX_CONNECTIONS", 3)
    monkeypatch.setattr(protocol, "PROOF_TIMEOUT", 60.0)
    (body,) = protocol.messages([REPORT])
    with contextlib.ExitStack() as held:
        task = held.enter_context(socket.create_connection(("127.0.0.1", server.address.port), timeout=PATIENCE))
        task.sendall(protocol.header(server.address.key, task.recv(32, socket.MSG_WAITALL), body))
        time.sleep(0.1)
        strangers = [held.enter_context(connect(server)) for _ in range(2)]
        assert send_reports(server.address, [REPORT])
        assert is_hung_up(strangers[0])
        task.sendall(body)
        assert task.recv(2, socket.MSG_WAITALL) == b"OK"
        assert server.strangers() == "1 (the last from 127.0.0.1: its place was needed for another connection)"


def test_what_arrived_while_the_driver_stood_still_is_received(
    book: ReportBook, server: ReportServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a long pause of the process: its deadlines have passed, and the reports are there."""
    monkeypatch.setattr(protocol, "PROOF_TIMEOUT", PATIENCE)
    add, stands_still = book.add, threading.Event()
    monkeypatch.setattr(book, "add", lambda reports: (stands_still.set(), add(reports)))
    (body,) = protocol.messages([REPORT])
    with socket.create_connection(("127.0.0.1", server.address.port), timeout=PATIENCE) as task, book._lock:
        message = protocol.header(server.address.key, task.recv(32, socket.MSG_WAITALL), body) + body
        # The server waits for the lock with this one's reports.
        sent = threading.Thread(target=send_reports, args=(server.address, [replace(REPORT, rows=RowTotals(read=11))]))
        sent.start()
        assert stands_still.wait(PATIENCE)
        (peer,) = (each for each in server._peers.values() if not each.proven)
        peer.until = time.monotonic()
        monkeypatch.setattr(protocol, "TIMEOUT", 0.0)
        task.sendall(message)
        book._lock.release()
        try:
            assert task.recv(2, socket.MSG_WAITALL) == b"OK"
        finally:
            book._lock.acquire()
    sent.join()


def test_a_task_whose_place_was_needed_connects_again(
    book: ReportBook, server: ReportServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    header, calls = protocol.header, []

    def late(*given: bytes) -> bytes:
        calls.append(given)
        if len(calls) < 3:
            time.sleep(0.1)
        if len(calls) == 2:
            # However long it is before the third one gets to its header.
            monkeypatch.setattr(protocol, "PROOF_TIMEOUT", PATIENCE)
        return header(*given)

    monkeypatch.setattr(protocol, "PROOF_TIMEOUT", 0.05)
    monkeypatch.setattr(protocol, "header", late)
    assert send_reports(server.address, [REPORT])
    assert arrived(book)
    assert len(calls) == 3


def test_no_one_listening_costs_a_refusal_and_no_error(
    server: ReportServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.close()
    monkeypatch.setattr(protocol, "TIMEOUT", 200.0)
    began = time.monotonic()
    with caplog.at_level(logging.WARNING):
        assert not send_reports(server.address, [REPORT])
    assert time.monotonic() - began < protocol.TIMEOUT / 2
    assert "look at up to 1 ranges again" in caplog.text


def test_a_peer_that_never_answers_costs_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "TIMEOUT", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = ReportAddress(("127.0.0.1",), silent.getsockname()[1], b"k")
        began = time.monotonic()
        assert not send_reports(address, [REPORT])
        assert time.monotonic() - began < PATIENCE


def test_an_address_that_let_a_report_time_out_is_avoided_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "TIMEOUT", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(0)
        address = ReportAddress(("127.0.0.1",), silent.getsockname()[1], b"k")
        assert not send_reports(address, [REPORT])
        silent.accept()[0].close()
        assert not send_reports(address, [REPORT])
        with pytest.raises(BlockingIOError):
            silent.accept()
        monkeypatch.setattr(reading, "_AVOIDED_SECONDS", 0.0)
        reading._avoid("127.0.0.1", address.port)
        assert not send_reports(address, [REPORT])
        silent.accept()[0].close()


def test_an_address_that_fails_slowly_is_avoided_too_and_one_that_refuses_at_once_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = ReportAddress(("127.0.0.1",), server.getsockname()[1], b"k")

        def hang_up_after(seconds: float) -> None:
            connection, _ = server.accept()
            with connection:
                time.sleep(seconds)

        for seconds, slow, avoided in ((0.0, PATIENCE, False), (0.5, 0.3, True)):
            monkeypatch.setattr(reading, "_SLOW", slow)
            hanging_up = threading.Thread(target=hang_up_after, args=(seconds,))
            hanging_up.start()
            assert not send_reports(address, [REPORT])
            hanging_up.join()
            assert (("127.0.0.1", address.port) in reading._avoided_until) is avoided


def test_the_server_goes_on_when_no_more_files_can_be_opened_for_a_moment(
    book: ReportBook, server: ReportServer, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as client:
        client.settimeout(PATIENCE)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 1, hard))
        try:
            client.connect(("127.0.0.1", server.address.port))
            assert is_logged(caplog, "no progress report can be received for a moment")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert len(client.recv(32, socket.MSG_WAITALL)) == 32
    assert send_reports(server.address, [REPORT])
    assert arrived(book)


def test_the_next_host_is_tried(book: ReportBook, server: ReportServer) -> None:
    assert send_reports(replace(server.address, hosts=("127.0.0.9", "no.such.host.invalid", "127.0.0.1")), [REPORT])
    assert arrived(book)


def test_the_first_free_port_of_those_named_is_taken(book: ReportBook) -> None:
    with socket.create_server(("", 0)) as taken:
        first = taken.getsockname()[1]
        server = ReportServer(book, ports=range(first, first + 20))
        assert first < server.address.port < first + 20
        assert send_reports(server.address, [REPORT])
        server.close()


def test_a_named_host_is_the_only_one_tasks_are_given(book: ReportBook) -> None:
    server = ReportServer(book, host="localhost")
    assert server.address.hosts == ("localhost",)
    assert send_reports(server.address, [REPORT])
    server.close()


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


def listening_at(server: ReportServer) -> set[str]:
    """Return where the server's own sockets listen: another of this process may have the same port elsewhere."""
    opened = {each.fileno() for each in server._listeners}
    listening = [each for each in psutil.Process().net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    assert not {each.laddr.port for each in listening if each.fd in opened} - {server.address.port}
    return {each.laddr.ip for each in listening if each.fd in opened}


@pytest.mark.parametrize("local", ["127.0.0.7", "localhost", *(["::1"] if has_ipv6() else [])])
def test_it_listens_where_spark_does_and_says_so(local: str, book: ReportBook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", local)
    server = ReportServer(book)
    expected = socket.gethostbyname(local) if ":" not in local else local
    assert server.address.hosts == (expected,)
    assert listening_at(server) == {expected}
    assert send_reports(server.address, [REPORT])
    server.close()


@pytest.mark.parametrize(
    ("settings", "bound", "hosts"),
    [
        ({"spark.driver.bindAddress": "127.0.0.8", "spark.driver.host": "localhost"}, {"127.0.0.8"}, ("localhost",)),
        ({"spark.driver.bindAddress": "127.0.0.8"}, {"127.0.0.8"}, ("127.0.0.8",)),
        ({"spark.driver.host": "127.0.0.9"}, {"127.0.0.9"}, ("127.0.0.9",)),
        ({"spark.driver.bindAddress": "0.0.0.0", "spark.driver.host": "localhost"}, {"0.0.0.0"}, ("localhost",)),
    ],
)
def test_the_drivers_address_comes_before_that_of_its_machine(
    settings: dict[str, str], bound: set[str], hosts: tuple[str, ...], book: ReportBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_server, "driver_settings", lambda: settings)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.7")
    server = ReportServer(book)
    assert server.address.hosts == hosts
    assert listening_at(server) == bound
    server.close()


def test_settings_are_those_of_the_command_line_that_started_the_process() -> None:
    words = ["--conf", "spark.driver.bindAddress=127.0.0.8", "-Dspark.driver.host=[::1]", "spark.ui.enabled=false"]
    code = (
        "import subprocess, sys\n"
        "code = 'from watermark_source.spark.driver import report_server; print(report_server.driver_settings())'\n"
        "sys.exit(subprocess.run([sys.executable, '-c', code]).returncode)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'spark.driver.bindAddress': '127.0.0.8', 'spark.driver.host': '::1'}"


def test_without_an_address_it_listens_at_those_of_its_machine_that_tasks_are_given(
    book: ReportBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    server = ReportServer(book)
    assert listening_at(server) == set(server.address.hosts)
    assert "127.0.0.1" in server.address.hosts
    server.close()


def test_a_server_that_listens_everywhere_names_addresses_and_not_everywhere(
    book: ReportBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "0.0.0.0")
    server = ReportServer(book)
    assert "127.0.0.1" in server.address.hosts
    assert "0.0.0.0" not in server.address.hosts
    server.close()


def test_ports_that_are_all_taken_or_an_address_of_another_machine_fail_no_query(
    book: ReportBook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Reserved for documentation (RFC 5737): no one's.
    monkeypatch.setenv("SPARK_LOCAL_IP", "203.0.113.1")
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        server = ReportServer(book, ports=range(port, port + 1))
    assert f"where they should be (203.0.113.1, ports range({port}, {port + 1})" in caplog.text
    assert send_reports(server.address, [REPORT])
    server.close()


def test_a_closed_server_ends_its_thread() -> None:
    before = threading.active_count()
    ReportServer(ReportBook()).close()
    deadline = time.monotonic() + PATIENCE
    while threading.active_count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_key_is_not_shown_and_travels_with_the_pickle(server: ReportServer) -> None:
    assert "key" not in repr(server.address)
    assert cloudpickle.loads(cloudpickle.dumps(server.address)) == server.address


def test_forgotten_reports_are_gone(book: ReportBook) -> None:
    book.add([REPORT])
    assert arrived(book)
    book.forget(WHOLE.split)
    assert not arrived(book)


def test_a_name_that_no_resolver_can_be_asked_for_is_no_error_of_the_task() -> None:
    assert not send_reports(ReportAddress(("driver..example.org",), 1, b"key"), [REPORT])


def test_strangers_at_the_port_fill_no_log(server: ReportServer, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(30):
        with socket.create_connection((server.address.hosts[0], server.address.port)) as stranger:
            stranger.sendall(b"x" * 100)
            with contextlib.suppress(OSError):
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(100):
                    pass
    assert len([r for r in caplog.records if "refused" in r.getMessage()]) == 1


def test_what_no_task_reported_is_dated_as_the_task_dated_it() -> None:
    state = SourceState(splits={WHOLE.split: SplitState(position=10, observed=0)})
    policy = PlanPolicy(on_loss=OnLoss(positions_are_rows=False))
    again = reread_task(WHOLE, state, Relocation("here"), policy, Millis(99))
    assert again.relocation == Relocation("here", floor=Millis(100))
    assert reread_task(WHOLE, state, Relocation("here"), policy, None).relocation == Relocation("here")


def test_a_message_may_name_its_query() -> None:
    reports = [RangeReport(SplitRange(Split("a", n), 0, 5), None, RowTotals(read=5)) for n in range(3)]
    (named,), (unnamed,) = protocol.messages(reports, protocol.Sender('by "minute"', "5a1")), protocol.messages(reports)
    assert protocol.decode(named) == protocol.decode(unnamed) == reports
    assert [protocol.sender_of(each) for each in (named, unnamed)] == [('by "minute"', "5a1"), (None, None)]


def test_the_driver_warns_once_of_a_query_that_nothing_has_examined(
    server: ReportServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A line of an executor's log is where no one looks."""
    source = 'orders of "eu"'
    for _ in range(2):
        assert send_unexamined(server.address, source)
    assert send_reports(server.address, [REPORT])
    assert is_logged(caplog, f"nothing has examined how this query uses {source}: ")
    assert caplog.text.count("nothing has examined how this query uses") == 1
    assert not send_unexamined(None, source)
    assert not send_unexamined(replace(server.address, key=b"guess" * 7), source)
