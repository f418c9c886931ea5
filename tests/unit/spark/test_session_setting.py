"""A setting of a session for as long as one call needs it."""

from __future__ import annotations

from contextlib import ExitStack
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
    """Return a DataFrame with a Python object of its own for the session of these settings."""
    return cast(Any, SimpleNamespace(sparkSession=SimpleNamespace(conf=conf, session_id=f"of {id(conf)}")))


def test_of_two_calls_at_once_the_first_to_end_leaves_the_setting_to_the_other() -> None:
    conf = Conf(other="x")
    df = frame(conf)
    with session_setting(df, "examined", "true") as is_set:
        with ExitStack() as first:
            assert first.enter_context(session_setting(df, "examined", "true"))
            assert is_set
        assert conf["examined"] == "true"
        outlives = ExitStack()
        outlives.enter_context(session_setting(df, "examined", "true"))
    with outlives:
        assert conf["examined"] == "true"
    assert conf == {"other": "x"}


def test_calls_at_once_of_two_objects_of_one_session_leave_nothing_behind() -> None:
    conf, outlives = Conf(), ExitStack()
    with session_setting(frame(conf), "examined", "true"):
        outlives.enter_context(session_setting(frame(conf), "examined", "true"))
    with outlives:
        assert conf == {"examined": "true"}
    assert conf == {}


def test_a_session_whose_server_does_not_answer_holds_up_no_other() -> None:
    is_asked, answers, is_done = Event(), Event(), Event()

    class Hanging(Conf):
        def set(self, name: str, value: str) -> None:
            is_asked.set()
            answers.wait()
            super().set(name, value)

    def start(conf: Conf) -> None:
        with session_setting(frame(conf), "examined", "true"):
            pass
        is_done.set()

    threads = [Thread(target=start, args=(conf,)) for conf in (Hanging(), Conf())]
    threads[0].start()
    is_asked.wait()
    threads[1].start()
    ended = is_done.wait(5)
    answers.set()
    for thread in threads:
        thread.join()
    assert ended, "it waited for the other session"


def test_a_setting_of_the_users_is_there_again_afterwards() -> None:
    conf = Conf(examined="false")
    with session_setting(frame(conf), "examined", "true"):
        assert conf == {"examined": "true"}
    assert conf == {"examined": "false"}


def test_a_call_does_not_wait_for_one_in_which_a_listener_makes_it() -> None:
    conf, is_done = Conf(), Event()
    df = frame(conf)

    def listener() -> None:
        with session_setting(df, "examined", "true") as is_set:
            assert is_set
        is_done.set()

    with session_setting(df, "examined", "true"):
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
