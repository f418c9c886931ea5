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

import pytest

from tests.simulation.driver import CODEC, START, Driver
from tests.unit.planning import generators
from tests.unit.planning.example_states import A, B, at, log_of
from tests.unit.planning.generators import HERE, MINUTE
from watermark_source import RowsRead
from watermark_source.errors import GeneratorError, OffsetError, OptionError
from watermark_source.option_table import OptionTable
from watermark_source.planning.disorder import RangeSummary
from watermark_source.planning.generator import LARGEST_STATE, Own, OwnWithMarks
from watermark_source.planning.policy import Alignment, Idleness, PlanPolicy
from watermark_source.planning.state import SourceState
from watermark_source.planning.strategy import Abilities, Bounded
from watermark_source.planning.watermark import Millis
from watermark_source.spark.option_rows import ENGINE_OPTIONS
from watermark_source.spark.options import EngineOptions
from watermark_source.testing import NonConformanceError, check_generator


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
