"""A setting of a session for as long as one call needs it."""

from __future__ import annotations

from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException

from watermark_source.spark.session_setting import session_setting


class Conf(dict[str, str]):
    """The settings of a session."""

    def set(self, name: str, value: str) -> None:
        self[name] = value

    unset = dict.pop


class Refusing(Conf):
    """Those of a managed platform."""

    def set(self, name: str, value: str) -> None:
        raise PySparkException("CONFIG_NOT_AVAILABLE")


def frame(conf: Conf) -> Any:
    return cast(Any, SimpleNamespace(sparkSession=SimpleNamespace(conf=conf)))


def test_of_two_threads_neither_takes_the_others_setting_for_that_of_before() -> None:
    conf, has_second, is_over = Conf(other="x"), Event(), Event()

    def second() -> None:
        with session_setting(frame(conf), "examined", "true"):
            has_second.set()
            is_over.wait(20)

    with session_setting(frame(conf), "examined", "true") as is_set:
        assert is_set
        thread = Thread(target=second)
        thread.start()
        has_second.wait(0.2)
    is_over.set()
    thread.join()
    assert has_second.is_set()
    assert conf == {"other": "x"}


def test_a_call_does_not_wait_for_one_in_which_a_listener_makes_it() -> None:
    conf, is_done = Conf(), Event()

    def listener() -> None:
        with session_setting(frame(conf), "examined", "true") as is_set:
            assert is_set
        is_done.set()

    with session_setting(frame(conf), "examined", "true"):
        thread = Thread(target=listener)
        thread.start()
        ended = is_done.wait(5)
        still_set = dict(conf)
    thread.join()
    assert ended, "it waited until the other call was over"
    assert still_set == {"examined": "true"}
    assert conf == {}


def test_an_error_where_a_session_takes_no_settings_names_none() -> None:

    def call() -> None:
        with session_setting(frame(Refusing()), "examined", "true") as is_set:
            assert not is_set
            raise ValueError("of the call")

    with pytest.raises(ValueError, match="of the call") as raised:
        call()
    assert raised.value.__context__ is None
