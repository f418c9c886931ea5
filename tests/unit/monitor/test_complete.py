"""The command that tells a scheduler whether a table is complete, and who holds it."""

from __future__ import annotations

import json
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.monitor.example_status import checkpoint
from watermark_source import complete_until
from watermark_source.command_line import main
from watermark_source.errors import ResponseTimeoutError
from watermark_source.monitor import complete
from watermark_source.planning.watermark import Millis
from watermark_source.publishing import database
from watermark_source.publishing.folder import Folder, write
from watermark_source.publishing.mark import Mark

NOON = 1_764_417_600_000
AT_NOON = "2025-11-29T12:00Z"
NOON_TEXT = "2025-11-29 12:00:00 UTC"


def mark(table: Path, at: int | None, *, writer: str = "hourly", **fields: object) -> None:
    made = Mark(
        writer=writer, query="q", batch=3, watermark=None if at is None else Millis(at), checkpoint=f"{table}/none"
    )  # fmt: skip
    write(Folder.at(table), f"{writer}.run.json", replace(made, **fields))  # type: ignore[arg-type]


def test_a_password_in_the_url_of_a_database_is_in_no_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(complete, "holder_at", lambda *_: None)
    assert main(["complete", "mysql+pymysql://user:hunter2@host/shop?password=hunter2#counts", "--until", AT_NOON]) == 2
    assert capsys.readouterr().out.startswith("mysql+pymysql://host/shop#counts: no writer has stated anything; ")


def run(capsys: pytest.CaptureFixture[str], place: Path, *more: str) -> tuple[int, str]:
    status = main(["complete", str(place), "--until", AT_NOON, *more])
    captured = capsys.readouterr()
    return status, captured.out or captured.err


def test_the_exit_status_tells_complete_not_yet_and_no_writer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = run(capsys, tmp_path)
    assert status == 2
    assert "no writer has stated anything; start one: publish_completeness(query, to=…, writer=…)" in said
    mark(tmp_path, None)
    assert run(capsys, tmp_path)[0] == 1
    mark(tmp_path, NOON - 1)
    status, said = run(capsys, tmp_path)
    assert status == 1
    assert said.startswith(
        f"{tmp_path} is not complete until 2025-11-29 12:00:00 UTC: writer hourly is complete until "
        "2025-11-29 11:59:59.999 UTC; why is not known: there is no folder"
    )
    mark(tmp_path, NOON - 1, ended=True)
    status, said = run(capsys, tmp_path)
    assert status == 2
    assert "11:59:59.999 UTC and has ended; " in said
    mark(tmp_path, NOON, ended=True)
    status, said = run(capsys, tmp_path)
    assert status == 0
    assert said == f"{tmp_path} is complete until {NOON_TEXT}: writer hourly is complete until {NOON_TEXT}\n"
    status, said = run(capsys, tmp_path, "--writers", "hourly, other")
    assert (status, said) == (2, f"{tmp_path}: writer other has stated nothing yet\n")


def test_who_holds_the_table_is_read_from_the_checkpoint_that_its_writer_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    splits = {"orders": {"0": [5, 0, 0]}}
    offset = {"v": 1, "name": "orders", "source": "file-log", "run": 1, "wm": NOON - 60_000, "splits": splits}
    folder = checkpoint(tmp_path / "check%20point", [json.dumps(offset)], [NOON - 60_000])
    mark(tmp_path, NOON - 60_000, checkpoint=f"file:{folder}")
    status, said = run(capsys, tmp_path)
    assert status == 1
    assert said.count("\n") == 1
    assert "; the window that ends at 2025-11-29 12:00:00 UTC" in said
    assert "orders-0" in said


def test_it_waits_until_the_table_is_complete_or_the_time_is_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, tmp_path, "--wait", "--timeout", "50 ms")[0] == 2
    later = threading.Timer(0.2, mark, (tmp_path, NOON))
    later.start()
    assert run(capsys, tmp_path, "--wait", "--timeout", "1 minute")[0] == 0
    later.join()
    # Without --wait the time limit does not count.
    mark(tmp_path, NOON - 1)
    assert run(capsys, tmp_path, "--timeout", "10 hours")[0] == 1


def test_a_server_that_is_frozen_is_waited_for_no_longer_than_the_time_limit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_ANSWER_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        place = f"mysql+pymysql://user:hunter2@127.0.0.1:{frozen.getsockname()[1]}/shop"
        assert main(["complete", f"{place}#counts", "--until", AT_NOON, "--wait", "--timeout", "50 ms"]) == 2
        with pytest.raises(ResponseTimeoutError):
            complete_until(f"{place}#counts")
    assert capsys.readouterr().err.endswith("/shop#counts has not answered for 0.3 s\n")


@pytest.mark.parametrize("waits", [["--wait"], []])
def test_wrong_words_have_the_status_of_a_wrong_command(
    waits: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = run(capsys, tmp_path, *waits, "--timeout", "soon")
    assert status == 2
    assert said.startswith(
        "--timeout soon: expected a number and a unit (ms, seconds, minutes, hours, days), for example"
    )
    assert main(["complete", str(tmp_path), "--until", "noon"]) == 2
    assert "--until 'noon' is not a time" in capsys.readouterr().err
    assert main(["complete", "hdfs://lake", "--until", AT_NOON]) == 2
    with pytest.raises(SystemExit):
        main(["complete", str(tmp_path), "--until", AT_NOON, "--window", "5"])
