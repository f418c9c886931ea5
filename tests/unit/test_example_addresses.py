"""The addresses of servers that examples take."""

from __future__ import annotations

import argparse

import pytest

from examples.servers import Login, MySqlServer, add_addresses, mysql_server


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("mysql://root:root@127.0.0.1:3306", MySqlServer("127.0.0.1", 3306, Login("root", "root"))),
        ("mysql://db1/", MySqlServer("db1", 3306, Login("root", ""))),
        ("mysql://a%40b:p%3Aw%2F@[::1]:3307", MySqlServer("::1", 3307, Login("a@b", "p:w/"))),
    ],
)
def test_the_url_of_a_server(url: str, server: MySqlServer) -> None:
    assert mysql_server(url) == server


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:3306", "postgresql://u:secret@h", "mysql://u:secret@h/shop", "mysql://u:secret@h:port", "mysql://:1",
        "mysql://u:secret@h?x=1", "mysql://[", "",
    ],
)  # fmt: skip
def test_what_is_no_address_learns_what_is_accepted_and_not_its_password(url: str) -> None:
    with pytest.raises(
        argparse.ArgumentTypeError, match=r"accepted is mysql://.*, for example mysql://root"
    ) as refused:
        mysql_server(url)
    assert "secret" not in str(refused.value)


def test_an_example_takes_the_servers_that_it_needs() -> None:
    parser = argparse.ArgumentParser()
    add_addresses(parser, mysql=True)
    assert parser.parse_args([]).mysql is None
    assert parser.parse_args(["--mysql", "mysql://h"]).mysql == MySqlServer("h", 3306)
    with pytest.raises(SystemExit):
        parser.parse_args(["--kafka", "h:9092"])
