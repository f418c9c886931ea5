"""The proxy passes everything on when calm, and breaks a connection where and how its fate is."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing

import psutil
import pytest

from services.tcp_proxy import CALM, Break, Fate, TcpProxy, random_fates
from services.wait_until import wait_until

_SENT = bytes(range(256)) * 4_000


class _Server:
    """Sends back what it receives, until the other side has ended."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.lost = 0
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = ("127.0.0.1", int(self.listening.getsockname()[1]))
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65_536):
                    self.received += data
                    connection.sendall(data)
            except OSError:
                self.lost += 1


@pytest.fixture
def server() -> Iterator[_Server]:
    made = _Server()
    yield made
    made.listening.shutdown(socket.SHUT_RDWR)
    made.listening.close()


@pytest.fixture
def proxy(server: _Server) -> Iterator[TcpProxy]:
    with closing(TcpProxy(server.address)) as made:
        yield made


def _connected(proxy: TcpProxy, fate: Fate) -> socket.socket:
    proxy.fates = lambda _: fate
    return socket.create_connection((proxy.host, proxy.port), timeout=60)


def _send_all(client: socket.socket) -> None:
    client.sendall(_SENT)
    client.shutdown(socket.SHUT_WR)


def _all_of(client: socket.socket) -> bytes:
    found = bytearray()
    while data := client.recv(65_536):
        found += data
    return bytes(found)


@pytest.mark.parametrize(
    "fate", [CALM, Fate(piece_bytes=1), Fate(delay_seconds=0.001, piece_bytes=999), Fate(bytes_per_second=1e7)], ids=str
)
def test_what_is_not_broken_arrives_whole(proxy: TcpProxy, fate: Fate) -> None:
    with _connected(proxy, fate) as client:
        threading.Thread(target=_send_all, args=(client,), daemon=True).start()
        assert _all_of(client) == _SENT
    wait_until(lambda: proxy.open_clients == 0, 60, "the end of the connection")


def test_small_pieces_arrive_one_after_another(proxy: TcpProxy) -> None:
    with _connected(proxy, Fate(delay_seconds=0.5, piece_bytes=1)) as client:
        client.sendall(b"abc")
        assert [client.recv(10) for _ in range(3)] == [b"a", b"b", b"c"]


def test_a_reset_comes_in_the_middle_of_a_frame_on_both_sides(proxy: TcpProxy, server: _Server) -> None:
    with _connected(proxy, Fate(breaks=Break.RESET, after_bytes=7)) as client:
        client.sendall(b"0123456789")
        with pytest.raises(ConnectionResetError):
            _all_of(client)
    wait_until(lambda: server.lost > 0, 60, "the reset at the server")
    assert server.received == b"0123456"


def test_a_connection_that_is_closed_early_ends_where_it_is_cut(proxy: TcpProxy) -> None:
    with _connected(proxy, Fate(breaks=Break.CLOSED, after_bytes=15)) as client:
        client.sendall(b"0123456789")
        assert _all_of(client) == b"01234"


@pytest.mark.parametrize(
    ("how", "received"), [(Break.SILENCE, 4), (Break.SERVER_UNHEARD, 8), (Break.CLIENT_UNHEARD, 4)]
)
def test_a_half_open_connection_says_nothing_and_is_held_until_the_client_closes_it(
    proxy: TcpProxy, server: _Server, how: Break, received: int
) -> None:
    with _connected(proxy, Fate(breaks=how, after_bytes=8)) as client:
        client.sendall(b"0123")
        assert client.recv(10) == b"0123"
        client.sendall(b"4567")
        wait_until(lambda: len(server.received) == received, 60, "what is passed on")
        client.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.recv(10)
        assert len(server.received) == received
        assert proxy.open_clients == 1
    wait_until(lambda: proxy.open_clients == 0, 60, "the end of the connection")


def test_the_direction_that_goes_on_after_a_break_loses_no_byte(proxy: TcpProxy, server: _Server) -> None:
    # It breaks within what the client sends.
    with _connected(proxy, Fate(breaks=Break.SERVER_UNHEARD, after_bytes=5, piece_bytes=4)) as client:
        client.sendall(_SENT)
        wait_until(lambda: len(server.received) >= len(_SENT), 60, "all that was sent")
    assert server.received == _SENT


def test_one_that_is_silent_from_the_beginning_is_accepted_and_never_reaches_the_server(proxy: TcpProxy) -> None:
    with _connected(proxy, Fate(breaks=Break.SILENCE)) as client:
        client.settimeout(0.3)
        client.sendall(b"hello")
        with pytest.raises(TimeoutError):
            client.recv(10)


@pytest.mark.parametrize("how", Break)
def test_open_connections_can_be_broken_at_any_time(proxy: TcpProxy, how: Break) -> None:
    with _connected(proxy, CALM) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        proxy.break_open(how)
        if how is Break.RESET:
            with pytest.raises(ConnectionResetError):
                client.recv(10)
        elif how is Break.CLOSED:
            assert client.recv(10) == b""
        else:
            client.settimeout(1)
            with pytest.raises(TimeoutError):
                client.recv(10)


def test_a_server_that_resets_or_is_not_there_is_reset_at_the_client(proxy: TcpProxy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        proxy.server = ("127.0.0.1", int(other.getsockname()[1]))
        with _connected(proxy, CALM) as client:
            accepted, _ = other.accept()
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()
            with pytest.raises(ConnectionResetError):
                client.recv(1)
    with pytest.raises(ConnectionResetError), _connected(proxy, CALM) as client:
        client.recv(1)


def test_the_same_seed_gives_the_same_fates_and_every_kind_of_them() -> None:
    fates = [random_fates(7)(number) for number in range(400)]
    assert fates == [random_fates(7)(number) for number in range(400)]
    assert {fate.breaks for fate in fates} == {None, *Break}
    assert CALM in fates


def test_closing_leaves_no_thread_and_no_socket(server: _Server) -> None:
    before = threading.active_count(), psutil.Process().num_fds()
    proxy = TcpProxy(server.address)
    with _connected(proxy, CALM) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        proxy.close()
    wait_until(lambda: (threading.active_count(), psutil.Process().num_fds()) == before, 60, "nothing left")
