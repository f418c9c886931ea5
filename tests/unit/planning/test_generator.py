"""A watermark strategy of the user's own: what it is given, what it may return, and what a checkpoint keeps of it."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from examples.file_log.watermarks import Heartbeats, HourlyFiles
from tests.simulation.driver import CODEC, START, Driver
from tests.unit.planning import generators
from tests.unit.planning.example_states import A, B, at, log_of
from tests.unit.planning.generators import HERE, MINUTE
from watermark_source import RowsRead, WatermarkGenerator
from watermark_source.errors import GeneratorError, OffsetError, OptionError
from watermark_source.option_table import OptionTable
from watermark_source.planning.disorder import RangeSummary
from watermark_source.planning.generator import LARGEST_STATE, Own, OwnWithMarks
from watermark_source.planning.policy import Alignment, Idleness, PlanPolicy
from watermark_source.planning.state import SourceState
from watermark_source.planning.strategy import Abilities, Bounded
from watermark_source.planning.watermark import MAX, Millis
from watermark_source.spark.option_rows import ENGINE_OPTIONS
from watermark_source.spark.options import EngineOptions
from watermark_source_testing import NonConformanceError, check_generator


def own(name: str) -> Own:
    return Own(f"{HERE}:{name}")


def parsed(name: str, abilities: Abilities = Abilities(), **more: str) -> EngineOptions:  # noqa: B008 - frozen
    given = {"watermarkStrategy": name, **more}
    return EngineOptions.of(OptionTable(ENGINE_OPTIONS).parse(given), format_name="f", given=given, abilities=abilities)


# As an option.


def test_the_option_names_a_class() -> None:
    assert parsed(f" {HERE}:ByParity ").policy.strategy == own("ByParity")
    marked = parsed(f"{HERE}:LaterOfMarkAndBound", Abilities(marks=True)).policy.strategy
    assert marked == OwnWithMarks(f"{HERE}:LaterOfMarkAndBound")


@pytest.mark.parametrize(("name", "text"), [
    ("by:hand:", "a class is named as my_package.watermarks:MyGenerator"),
    ("nowhere.at_all:Class", r"cannot be imported \(ModuleNotFoundError: .*nowhere.* PYTHONPATH .* formerly"),
    (f"{HERE}:Nothing", r"cannot be imported \(AttributeError"),
    ("__main__:Class", "is in the program itself, .*: move the class to a module"),
    (f"{HERE}:NoGenerator", "is a class of another kind, and must be a class derived from watermark_source.Watermark"),
    (f"{HERE}:function", "is a function, and must be a class"),
    (f"{HERE}:Returns", "x"),
    (f"{HERE}:NeedsArguments", r"cannot be made without arguments \(TypeError: .*bound"),
    (f"{HERE}:ExitsAtOnce", r"cannot be made without arguments \(SystemExit: 2\)"),
    (f"{HERE}:NeverMerges", "has summarize without merge"),
    (f"{HERE}:FormerlyAText", r"must be a tuple of names, \(\"a:B\",\)"),
    (f"{HERE}:LaterOfMarkAndBound", r"reads watermarks that records carry \(reads_marks\), and those of this source"),
])  # fmt: skip
def test_what_is_no_usable_class_is_refused_when_the_stream_is_loaded(name: str, text: str) -> None:
    if name.endswith(":Returns"):
        name, text = "watermark_source:WatermarkGenerator", "cannot be made without arguments .*abstract"
    with pytest.raises(OptionError, match=text) as refused:
        parsed(name)
    assert refused.value.option == "watermarkStrategy"


def test_a_bound_of_another_strategy_is_refused() -> None:
    with pytest.raises(OptionError, match=f"belongs to watermarkStrategy bounded, .* strategy is {HERE}:ByParity"):
        parsed(f"{HERE}:ByParity", maxOutOfOrderness="5 seconds")


def test_the_interval_of_batches_without_rows_is_for_a_class_that_sees_silence() -> None:
    silent = parsed(f"{HERE}:AMinuteOfSilence", watermarkInterval="7 seconds")
    assert silent.policy.watermark_interval == 7_000
    with pytest.raises(OptionError, match=r"or a class with on_silence, and the strategy is .*:ByParity: its"):
        parsed(f"{HERE}:ByParity", watermarkInterval="7 seconds")


def test_executors_need_not_import_the_class() -> None:
    pickled = pickle.dumps(Own("nowhere.at_all:Class"))
    assert pickle.loads(pickled) == Own("nowhere.at_all:Class")


@pytest.mark.parametrize("kind", ["file", "archive"])
def test_the_process_that_plans_imports_the_class_from_where_load_found_it(kind: str, tmp_path: Path) -> None:
    """Spark passes py-files to the process of ``load()``, pickles the source there, and runs it in another one."""
    class_ = "from watermark_source import WatermarkGenerator\nclass Late(WatermarkGenerator):\n    on_range = None\n"
    if kind == "file":
        place, name = tmp_path / "files", "shipped_alone:Late"
        place.mkdir()
        (place / "shipped_alone.py").write_text(class_)
    else:
        place, name = tmp_path / "shop.zip", "shipped.watermarks:Late"
        with zipfile.ZipFile(place, "w") as made:
            made.writestr("shipped/__init__.py", "")
            made.writestr("shipped/watermarks.py", class_)
    given = {"directory": str(tmp_path), "watermarkStrategy": name}
    programs = {
        "load": f"""
sys.path.append({str(place)!r})
source = FileLogDataSource({given!r})
schema = source.schema()
Path(sys.argv[1]).write_bytes(pickle.dumps((source, schema)))
""",
        "plan": """
source, schema = pickle.loads(Path(sys.argv[1]).read_bytes())
print(type(source.streamReader(schema)).__name__)
""",
    }
    start = "import pickle, sys\nfrom pathlib import Path\nfrom tests.spark.file_log import FileLogDataSource\n"
    for program in programs.values():
        ended = subprocess.run(
            [sys.executable, "-c", start + program, str(tmp_path / "pickled")],
            cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == "AlignedStreamReader"


# What it is given and returns.


def after(
    name: str, seen: RangeSummary, kept: str | None = None, cap: int | None = None
) -> tuple[Millis | None, str | None]:
    return own(name).on_range(A, kept, seen, None if cap is None else Millis(cap))


def test_a_generator_gets_its_state_back_and_returns_the_next() -> None:
    seen = RangeSummary(Millis(START))
    assert after("ByParity", seen) == (None, '{"ranges":1}')
    assert after("ByParity", seen, '{"ranges":1}') == (Millis(START - MINUTE // 2), '{"ranges":2}')


def test_a_range_without_a_time_is_not_passed() -> None:
    assert after("Fails", RangeSummary(), '{"ranges":1}') == (None, '{"ranges":1}')


def test_a_watermark_beyond_the_future_cap_moves_nothing() -> None:
    seen = RangeSummary(Millis(START))
    assert after("ByParity", seen, '{"ranges":1}', cap=START - MINUTE)[0] is None
    assert after("ByParity", seen, '{"ranges":1}', cap=START)[0] == START - MINUTE // 2


def test_a_generator_gets_one_summary_of_the_parts_of_a_range() -> None:
    kept = '{"ranges":1,"rows":5}'
    dated = RangeSummary(Millis(START), summaries=("2", "3", "4"))
    assert after("RangesAndRows", dated, kept) == (Millis(START - MINUTE // 2), '{"ranges":2,"rows":14}')
    # Rows without a time say something, too; a range that says nothing is passed to nobody.
    assert after("RangesAndRows", RangeSummary(summaries=("2",)), kept) == (None, '{"ranges":2,"rows":7}')
    assert after("RangesAndRows", RangeSummary(), kept) == (None, kept)
    assert not RangeSummary(summaries=("2",)).is_undated


def test_what_is_no_summary_ends_the_query_and_names_class_and_split() -> None:
    rows = pa.RecordBatch.from_pydict({"a": [1]})
    with pytest.raises(
        GeneratorError, match=f"{HERE}:SumsUpASet: summarize for split log-0 returned a summary that is"
    ):
        own("SumsUpASet").summary_of(A, rows)
    with pytest.raises(GeneratorError, match=f"{HERE}:FailsInTasks failed in summarize for split log-0: KeyError"):
        own("FailsInTasks").summary_of(A, rows)
    with pytest.raises(GeneratorError, match=f"{HERE}:RangesAndRows failed in merge for split log-0: TypeError"):
        own("RangesAndRows").merged(A, "1", '"a"')


def test_silence_is_for_a_class_that_asks_for_it_and_never_ahead_of_the_clock() -> None:
    now = Millis(START)
    assert own("ByParity").at_rest(A, None, now) is None
    assert own("AMinuteOfSilence").at_rest(A, None, now) is None
    assert own("AMinuteOfSilence").at_rest(A, '"begun"', now) == START - MINUTE
    assert own("TellsTheFuture").at_rest(A, None, now) is None
    with pytest.raises(GeneratorError, match=f"{HERE}:FailsInSilence failed in on_silence for split log-0: KeyError"):
        own("FailsInSilence").at_rest(A, None, now)
    with pytest.raises(GeneratorError, match=r"AHalfInSilence: on_silence for split log-0 returned the watermark 0\.5"):
        own("AHalfInSilence").at_rest(A, None, now)


def test_the_time_of_silence_is_the_logs_own_and_else_the_drivers() -> None:
    silent, stated = own("AMinuteOfSilence"), {A: Millis(5)}
    assert silent.times_at_ends(stated, {A, B}, Millis(9)) == {A: 5, B: 9}
    assert silent.times_at_ends(stated, {A, B}, None) == stated
    assert own("ByParity").times_at_ends(stated, {A, B}, Millis(9)) == stated
    # Splits are looked for once an interval, however little a tick moves.
    assert silent.clock_due(Millis(3), Millis(5_000), 1_000) == 4_000
    assert silent.clock_due(MAX, Millis(5_000), 1_000) == MAX
    assert own("ByParity").clock_due(Millis(3), Millis(5_000), 1_000) is None


@pytest.mark.parametrize(("name", "text"), [
    ("NoPair", "returned 7; accepted: a watermark and a state"),
    ("AText", "returned the watermark '2026-01-01'; accepted: None, or whole milliseconds"),
    ("ATruth", "returned the watermark True"),
    ("TheEndOfTime", "returned the watermark 9223372036854775807"),
    ("ASet", "returned a state that is not JSON: Object of type set is not JSON serializable; accepted: None, bool"),
    ("ATuple", r"returned the state \(1, 2\), which JSON gives back as \[1, 2\]"),
    ("NumbersAsKeys", r"returned the state \{1: 2\}, which JSON gives back as \{'1': 2\}"),
    ("NoNumber", "returned a state that is not JSON: Out of range float"),
    ("HalfACharacter", "returned a state that is not JSON: .*surrogates"),
    ("TooMuch", f"returned a state of 1202 bytes, .*accepted: at most {LARGEST_STATE} bytes of JSON"),
])  # fmt: skip
def test_what_is_no_watermark_or_no_state_ends_the_query_and_names_class_and_split(name: str, text: str) -> None:
    with pytest.raises(GeneratorError, match=f"^watermarkStrategy {HERE}:{name}: on_range for split log-0 {text}"):
        after(name, RangeSummary(Millis(START)))


@pytest.mark.parametrize(("name", "cause"), [("Fails", KeyError), ("Exits", SystemExit)])
def test_an_error_of_the_class_is_raised_with_its_name_and_the_split(name: str, cause: type[BaseException]) -> None:
    with pytest.raises(
        GeneratorError, match=f"^watermarkStrategy {HERE}:{name} failed in on_range for split log-0: {cause.__name__}"
    ) as at:
        after(name, RangeSummary(Millis(START)))
    assert isinstance(at.value.__cause__, cause)


def test_a_program_that_exits_when_it_is_imported_is_no_module_of_a_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_program_that_exits.py").write_text("raise SystemExit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OptionError, match=r"cannot be imported \(SystemExit: 0\)"):
        parsed("a_program_that_exits:Class")


# In plans.


def watermarks(driver: Driver) -> dict[int, int | None]:
    return {s.number: None if t.watermark is None else t.watermark - START for s, t in driver.state().splits.items()}


def test_each_split_follows_the_generator_across_restarts() -> None:
    log = log_of([START + 1_000], [START + 2_000])
    driver = Driver(log, PlanPolicy(strategy=own("ByParity")))
    driver.run()
    assert watermarks(driver) == {0: None, 1: None}
    driver.restart()
    for split, time in ((A, 50_000), (B, 90_000)):
        log.splits[split].append([START + time])
    driver.run()
    assert watermarks(driver) == {0: 20_000, 1: 30_000}
    assert driver.state().watermark == START + 20_000
    assert json.loads(driver.text)["own"] == {
        "class": f"{HERE}:ByParity",
        "states": {"log": {"0": {"ranges": 2}, "1": {"ranges": 2}}},
    }


def test_in_silence_the_generator_advances_a_split_and_a_replay_has_what_it_said() -> None:
    log = log_of([START], [START])
    driver = Driver(log, PlanPolicy(strategy=own("AMinuteOfSilence"), watermark_interval=1_000), dated=True)
    driver.run()
    assert watermarks(driver) == {0: -MINUTE, 1: -MINUTE}
    driver.now += 600_000
    # One split is silent beside the rows of the other.
    log.splits[A].append([START + 1])
    driver.step()
    assert watermarks(driver) == {0: -MINUTE, 1: 600_000 - MINUTE}
    for _ in range(5):
        driver.now += 1_000
        driver.step()
    reached = driver.state().watermark
    assert reached is not None
    assert driver.now - 2_000 <= reached + MINUTE <= driver.now
    driver.restart()
    assert driver.state().watermark == reached
    assert {t.kept for t in driver.state().splits.values()} == {'"begun"'}


def test_a_lower_watermark_leaves_the_last_one_in_force() -> None:
    log = log_of([START])
    driver = Driver(log, PlanPolicy(strategy=own("Backwards")))
    found = []
    for _ in range(4):
        driver.run()
        found.append(watermarks(driver)[0])
        log.splits[A].append([START + 1])
    assert found == [-MINUTE] * 4


def test_no_index_cuts_the_ranges_of_a_group_whose_watermarks_it_does_not_show() -> None:
    """Nor does the drift stop it: rows are read a step at a time, and then their watermark is known."""
    times = [[START + n * MINUTE for n in range(500)], [START + n * 1_000 for n in range(500)]]
    policy = PlanPolicy(strategy=own("Backwards"), alignment=Alignment(max_drift=MINUTE), idleness=Idleness(timeout=1))
    driver = Driver(log_of(*times), policy)
    driver.run()
    driver.now += 1_000
    driver.run()
    assert sum(len(rows) for batch in driver.batches for rows in batch.rows.values()) == 1_000


def test_another_strategy_continues_without_the_state() -> None:
    log = log_of([START], [START])
    driver = Driver(log, PlanPolicy(strategy=own("ByParity")))
    driver.run()
    driver.policy = PlanPolicy(strategy=Bounded(5))
    driver.restart()
    log.splits[A].append([START + 9])
    driver.run()
    assert "own" not in json.loads(driver.text)
    assert {t.kept for t in driver.state().splits.values()} == {None}


# In a checkpoint.


def test_the_state_of_a_renamed_class_is_continued_if_the_class_names_its_old_name() -> None:
    kept = {A: '{"ranges":1}'}
    own("ByParity").check_kept(f"{HERE}:ByParity", kept)
    own("Renamed").check_kept(f"{HERE}:ByParity", kept)
    own("ByParity").check_kept(None, {A: None})
    with pytest.raises(OffsetError) as refused:
        own("Backwards").check_kept(f"{HERE}:ByParity", kept)
    text = str(refused.value)
    assert f'write in it: formerly = ("{HERE}:ByParity",)' in text
    assert f"set watermarkStrategy to {HERE}:ByParity, or start with a new checkpoint location" in text


def test_a_state_that_the_class_refuses_is_named_with_its_split() -> None:
    with pytest.raises(OffsetError, match=r'cannot continue the state of log-1 in .*, \{"n":1\}: it must have ranges'):
        own("ByParity").check_kept(f"{HERE}:ByParity", {A: None, B: '{"n":1}'})


def test_an_offset_keeps_the_class_and_what_it_keeps_of_each_split() -> None:
    state = SourceState(splits={A: at(5, 10, kept='{"a":[1.5,null],"b":"ä"}'), B: at(7, 20)}, kept_by="m:C")
    offset = json.loads(json.dumps(CODEC.encode(state)))
    assert offset["own"] == {"class": "m:C", "states": {"log": {"0": {"a": [1.5, None], "b": "ä"}}}}
    assert CODEC.decode(offset) == state
    without = SourceState(splits={A: at(5, 10)}, kept_by="m:C")
    assert CODEC.encode(without)["own"] == {"class": "m:C"}
    assert CODEC.decode(CODEC.encode(without)) == without


@pytest.mark.parametrize("broken", [
    None, [], {"states": {}}, {"class": ""}, {"class": 7}, {"class": "m:C", "more": 1}, {"class": "m:C", "states": []},
    {"class": "m:C", "states": {"log": 7}}, {"class": "m:C", "states": {"log": {"5": 7}}},
    {"class": "m:C", "states": {"other": {"0": 7}}},
])  # fmt: skip
def test_a_broken_record_of_a_generator_is_refused(broken: Any) -> None:
    offset = {**CODEC.encode(SourceState(splits={A: at(5, 10)})), "own": broken}
    with pytest.raises(OffsetError, match='"own"'):
        CODEC.decode(offset)


# The conformance kit.


@pytest.mark.parametrize("name", ["ByParity", "Renamed", "LaterOfMarkAndBound", "Backwards"])
def test_a_class_that_keeps_the_contract_passes_the_kit(name: str) -> None:
    check_generator(getattr(generators, name))


@pytest.mark.parametrize(("name", "text"), [
    ("ByTheClock", "planned by another process: seen .*, expected"),
    ("InTheInstance", "planned by another process: seen"),
    ("Grows", "returned a state of .* bytes"),
    ("ATuple", "which JSON gives back as"),
    ("Fails", "failed in on_range"),
    ("Silent", "no watermark in .* ranges"),
    ("Connects", "a connection was made"),
    ("RefusesItself", "cannot continue the state of log-. in .*: not mine"),
])  # fmt: skip
def test_a_class_that_breaks_the_contract_fails_the_kit(name: str, text: str) -> None:
    with pytest.raises(NonConformanceError, match=text):
        check_generator(getattr(generators, name))


ROWS = pa.RecordBatch.from_pydict({
    "end_of_hour": [None, None, 7_200_000, None, 3_600_000, None, 10_800_000, None],
    "writer": ["a", "b", "a", None, "b", "a", "b", "a"],
    "written_to": [5_000, None, 9_000, None, 8_000, 7_000, None, 1],
})  # fmt: skip


@pytest.mark.parametrize("generator", [generators.RangesAndRows, HourlyFiles, Heartbeats])
def test_a_class_that_sees_rows_passes_the_kit(generator: type[WatermarkGenerator]) -> None:
    check_generator(generator, rows=ROWS)


@pytest.mark.parametrize(("name", "rows", "text"), [
    ("FirstRow", ROWS, r"the summary of rows that are cut at \[1\]: seen '7', expected '8'"),
    ("RangesAndRows", None, "rows are to be given for summarize, and for nothing else"),
    ("ByParity", ROWS, "rows are to be given for summarize"),
    ("FailsInTasks", ROWS, "failed in summarize"),
    ("FailsInSilence", None, "failed in on_silence"),
])  # fmt: skip
def test_a_class_that_sees_rows_and_breaks_the_contract_fails_the_kit(
    name: str, rows: pa.RecordBatch | None, text: str
) -> None:
    with pytest.raises(NonConformanceError, match=text):
        check_generator(f"{HERE}:{name}", rows=rows)


def test_the_watermark_of_several_writers_is_that_of_the_slowest_heartbeat() -> None:
    strategy, found = Own("examples.file_log.watermarks:Heartbeats"), []
    kept: str | None = None
    for rows in (ROWS.slice(0, 4), ROWS.slice(4, 1), ROWS.slice(5)):
        summary = strategy.summary_of(A, rows)
        assert summary is not None
        watermark, kept = strategy.on_range(A, kept, RangeSummary(summaries=(summary,)), None)
        found.append(watermark)
    assert found == [9_000, 8_000, 8_000]


def test_the_kit_takes_ranges_of_the_users_own() -> None:
    ranges = [RowsRead("t", 0, START), RowsRead("t", 0, START + 1)]
    check_generator(f"{HERE}:ByParity", ranges)
    with pytest.raises(NonConformanceError, match="no watermark in 1 ranges"):
        check_generator(generators.ByParity, ranges[:1])


def test_the_class_on_the_page_keeps_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[3] / "docs" / "strategies.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(# shop/watermarks\.py.*?)```", page, re.DOTALL)
    (tmp_path / "shop_of_the_page.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    check_generator("shop_of_the_page:TwiceTheWorst")
    (code,) = re.findall(r"```python\n(# shop/files\.py.*?)```", page, re.DOTALL)
    (tmp_path / "files_of_the_page.py").write_text(code, encoding="utf-8")
    check_generator("files_of_the_page:HourlyFiles", rows=ROWS)
