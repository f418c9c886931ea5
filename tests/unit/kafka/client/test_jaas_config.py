"""``sasl.jaas.config`` as Java clients write it."""

from __future__ import annotations

import logging

import pytest

from pyspark_aligned_kafka.client.login_settings import hide_wire_logs, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"

OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
IAM = "software.amazon.msk.auth.iam.IAMLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"


@pytest.mark.parametrize(("text", "user", "password", "mechanisms"), [
    (f'{PLAIN} required username="u" password="p";', "u", "p", ("PLAIN",)),
    (f'{SCRAM} required username="u" password="p";', "u", "p", ("SCRAM-SHA-256", "SCRAM-SHA-512")),
    (f"  {PLAIN}\n required\n username=u\n password=p ; ", "u", "p", ("PLAIN",)),
    (f'{PLAIN} required serviceName="x" username = "u;=" password="a\\"b\\\\c d";', "u;=", 'a"b\\c d', ("PLAIN",)),
])  # fmt: skip
def test_user_and_password_are_found(text: str, user: str, password: str, mechanisms: tuple[str, ...]) -> None:
    module = parse_jaas(text)
    assert (module.options["username"], module.options["password"], module.mechanisms) == (user, password, mechanisms)


@pytest.mark.parametrize(("text", "mechanism", "options"), [
    (f'{OAUTH} required clientId="c" clientSecret="s" extension_a="b";', "OAUTHBEARER",
     {"clientId": "c", "clientSecret": "s", "extension_a": "b"}),
    (f"{OAUTH} required ssl.truststore.location=/ca.pem;", "OAUTHBEARER", {"ssl.truststore.location": "/ca.pem"}),
    (f"{IAM} required;", "AWS_MSK_IAM", {}),
    (f"{KERBEROS} required useTicketCache=true serviceName=kafka;", "GSSAPI",
     {"useTicketCache": "true", "serviceName": "kafka"}),
    (f"{KERBEROS} required useKeyTab=false;", "GSSAPI", {"useKeyTab": "false"}),
])  # fmt: skip
def test_the_other_modules(text: str, mechanism: str, options: dict[str, str]) -> None:
    module = parse_jaas(text)
    assert (module.mechanisms, module.options) == ((mechanism,), options)


@pytest.mark.parametrize(("text", "why"), [
    ("", "must end with a semicolon"),
    (f'{PLAIN} required username="u" password="geheim"', "must end with a semicolon"),
    ('org.example.LdapLoginModule required principal="geheim";', "none of PlainLoginModule, ScramLoginModule"),
    (f'{KERBEROS} required useKeyTab=true keyTab="/geheim";', "KRB5_CLIENT_KTNAME"),
    (f'{KERBEROS} required principal="geheim";', "KRB5_CLIENT_KTNAME"),
    (f'{IAM} required awsProfileName="geheim";', "AWS_PROFILE"),
    (f'{OAUTH} required unsecuredLoginStringClaim_sub="geheim";', "token.endpoint.url"),
    (f'{OAUTH} required clientId="c" ssl.truststore.password="geheim";', "ssl.truststore.location"),
    (f'{PLAIN} required username="u";', "password missing"),
    (f"{PLAIN} required;", "username and password missing"),
    (f'{PLAIN} required username="u" "geheim";', 'name="value"'),
    (f'{SCRAM} required username="u" password="geheim" tokenauth="true";', "delegation tokens"),
])  # fmt: skip
def test_anything_else_is_refused_without_showing_it(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
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
