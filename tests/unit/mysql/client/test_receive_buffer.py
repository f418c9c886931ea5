"""Memory for what arrives on a socket: a server that is frozen, or gone, is noticed."""

from __future__ import annotations

import socket

import pytest

from pyspark_mysql_cdc_wm.client.receive_buffer import ReceiveBuffer
from watermark_source.errors import ResponseTimeoutError, UnreachableError


def test_a_frozen_or_dead_server_is_noticed() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.05)
        buffer = ReceiveBuffer(1024 * 1024, ours, lambda: "binlog b.000001 position 4", least="a heartbeat")
        theirs.send(b"some")
        buffer.wait_for(4)
        with pytest.raises(ResponseTimeoutError, match=r"position 4: nothing arrived within 0.05 s, not even a heartb"):
            buffer.receive()
        theirs.close()
        with pytest.raises(UnreachableError, match="position 4: the server closed the connection"):
            buffer.receive()
