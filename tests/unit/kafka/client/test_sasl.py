"""``sasl.jaas.config`` as Java clients write it."""

from __future__ import annotations

import logging

import pytest

from pyspark_aligned_kafka.client.sasl import hide_wire_logs, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(("text", "user", "password", "mechanisms"), [
    (f'{PLAIN} required username="u" password="p";', "u", "p", ("PLAIN",)),
    (f'{SCRAM} required username="u" password="p";', "u", "p", ("SCRAM-SHA-256", "SCRAM-SHA-512")),
    (f"  {PLAIN}\n required\n username=u\n password=p ; ", "u", "p", ("PLAIN",)),
    (f'{PLAIN} required serviceName="x" username = "u;=" password="a\\"b\\\\c d";', "u;=", 'a"b\\c d', ("PLAIN",)),
])  # fmt: skip
def test_user_and_password_are_found(text: str, user: str, password: str, mechanisms: tuple[str, ...]) -> None:
    login = parse_jaas(text)
    assert (login.username, login.password, login.mechanisms) == (user, password, mechanisms)


@pytest.mark.parametrize(("text", "says"), [
    ("", "must end with a semicolon"),
    (f'{PLAIN} required username="u" password="geheim"', "must end with a semicolon"),
    ('com.sun.security.auth.module.Krb5LoginModule required principal="geheim";', "neither PlainLoginModule"),
    (f'{PLAIN} required username="u";', "password missing"),
    (f"{PLAIN} required;", "username and password missing"),
    (f'{PLAIN} required username="u" "geheim";', 'name="value"'),
    (f'{SCRAM} required username="u" password="geheim" tokenauth="true";', "delegation tokens"),
])  # fmt: skip
def test_anything_else_is_refused_without_showing_it(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        parse_jaas(text)
    assert "geheim" not in str(caught.value)


def test_a_login_does_not_show_its_password() -> None:
    assert "geheim" not in repr(parse_jaas(f'{PLAIN} required username="u" password="geheim";'))


@pytest.mark.parametrize("name", ["kafka.net.connection", "kafka.protocol.parser"])
def test_the_wire_is_not_logged_where_logins_go_over_it(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    hide_wire_logs()
    logging.getLogger(name).debug("Send: geheim")
    logging.getLogger(name).info("connected")
    assert [record.message for record in caplog.records if record.name == name] == ["connected"]
