"""What is done before a process ends by SIGTERM, in processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from watermark_source.signals import before_termination

_PROCESS = """
import os, signal, time
from watermark_source.signals import before_termination

said = []

def say(words):
    said.append(words)
    # Not "print": the signal may interrupt the one before, which has the stream's lock then.
    os.write(1, words.encode() + b"\\n")

def last():
    say("last words")
    {last}

{before}
before_termination(last)
say("ready")
while True:
    time.sleep(0.1)
"""


def end_by_signal(last: str = "pass", before: str = "pass", *, signals: int = 1) -> tuple[int, list[str]]:
    """Return how a process ended that was sent SIGTERM while it waited, and what it wrote after "ready".

    Each signal but the last is answered by a line before the next one is sent.
    """
    code = _PROCESS.format(last=last, before=before)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as p:
        assert p.stdout is not None
        assert p.stdout.readline() == "ready\n"
        logged = []
        for _ in range(signals):
            p.send_signal(signal.SIGTERM)
            logged.append(p.stdout.readline())
        logged.append(p.stdout.read())
        ended = p.wait(120)
    return ended, "".join(logged).splitlines()


def test_the_process_ends_by_the_signal_after_the_last_words() -> None:
    assert end_by_signal() == (-signal.SIGTERM, ["last words"])


def test_an_error_in_the_last_words_ends_it_all_the_same() -> None:
    assert end_by_signal("raise ValueError") == (-signal.SIGTERM, ["last words"])


def test_a_second_signal_interrupts_the_first_ones_last_words() -> None:
    code, logged = end_by_signal("time.sleep(100 if said == ['ready', 'last words'] else 0)", signals=2)
    assert code == -signal.SIGTERM
    assert logged == ["last words"] * 2


def test_a_handler_that_was_there_before_has_its_turn() -> None:
    before = "signal.signal(signal.SIGTERM, lambda *_: (say('handled'), os._exit(7)))"
    assert end_by_signal(before=before) == (7, ["last words", "handled"])


def test_in_another_thread_nothing_is_done() -> None:
    former = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=before_termination, args=(lambda: pytest.fail("called"),))
    thread.start()
    thread.join(60)
    assert signal.getsignal(signal.SIGTERM) is former
