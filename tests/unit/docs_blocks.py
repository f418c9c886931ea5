"""What becomes of each block of code on the pages, in the order of a page: the test that runs it, or why none does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GENERATED = "docs/api.md"
"""Its blocks are signatures, made from the code."""


class Block(NamedTuple):
    """Code on a page."""

    language: str
    """Of the fence; ``""`` without one, and for a block that is indented."""
    code: str


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page in their order."""
    fence = r"^ *```(?P<language>\w*)\n(?P<fenced>.*?)^ *```$"
    indented = r"(?<=\n\n)(?P<indented>(?:    [^\n]*\n|\n(?=    ))+)"
    for found in re.finditer(f"{fence}|{indented}", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        yield Block(found["language"] or "", found["fenced"] or found["indented"])


MAKE = "not run: it installs a gigabyte, and takes minutes; what it installs and its demos are tested"
SERVER = "not run: its servers are the reader's; its options are checked here"
PART = "not run: a part of a query; its names are checked here"
CLUSTER = "not run: it needs a cluster, or a package of another project"
SCHEMAS = "not run: it needs a registry, or files made by protoc"
COMMAND = "not run as it stands: the address is the reader's; the command is tested"
OF_TOPICS = "test_lines_that_read_a_topic_give_its_records"
OF_VIEWS = "test_lines_that_look_at_a_query_print_what_holds_it"
OF_STRATEGIES = "test_lines_of_strategies_and_late_rows_give_what_was_written"
OF_OPERATORS = "test_lines_of_tables_joins_and_ordering_give_what_was_written"
OF_CDC = "test_the_pipelines_table_is_the_servers_after_each_run"
OF_JOBS = "test_lines_of_jobs_in_a_row_give_what_the_first_one_wrote"
OUTPUT = "not run: it shows what is printed, logged or recorded"
DRAWING = "not run: it is a drawing"

BLOCKS: Mapping[str, tuple[str, ...]] = {
    "README.md": (
        MAKE,
        "test_the_job_of_the_readme_runs_as_it_stands",
        MAKE,
        "test_the_join_of_clicks_and_users_is_right_on_them",
    ),
    "docs/architecture.md": (DRAWING,),
    "docs/batch.md": (OF_TOPICS, OF_TOPICS),
    "docs/between-jobs.md": (OF_JOBS, OF_JOBS, OF_JOBS, OF_JOBS, OUTPUT, COMMAND, OF_JOBS, OF_JOBS),
    "docs/completeness.md": (PART, PART, CLUSTER, COMMAND, CLUSTER, CLUSTER),
    "docs/deployment.md": (CLUSTER,) * 5,
    "docs/event-time.md": (OF_TOPICS, PART, COMMAND, OUTPUT),
    "docs/joins.md": (OF_OPERATORS,) * 5,
    "docs/late-rows.md": (OF_STRATEGIES, OF_STRATEGIES, OF_STRATEGIES, PART, OF_STRATEGIES),
    "docs/logins.md": ("test_the_worked_example_of_the_page_logs_in", CLUSTER, SCHEMAS),
    "docs/monitoring.md": (
        COMMAND, OUTPUT, OUTPUT, OF_VIEWS, OUTPUT, OF_VIEWS, COMMAND, OF_VIEWS, OUTPUT, OF_VIEWS, OUTPUT, COMMAND,
        OF_VIEWS, OF_VIEWS, COMMAND,
    ),
    "docs/mysql.md": (
        OF_OPERATORS, OF_OPERATORS, COMMAND, OF_CDC, OF_CDC,
    ),
    "docs/offsets.md": (OUTPUT,),
    "docs/ordering.md": (
        OF_OPERATORS, OF_OPERATORS, "test_early_readings_wait_for_those_on_time_and_late_ones_are_distinguished",
    ),
    "docs/payload.md": (OF_TOPICS, SCHEMAS, SCHEMAS, SCHEMAS),
    "docs/quickstart.md": (
        MAKE,
        "test_the_lines_of_the_quickstart_are_those_that_play_prints",
        OUTPUT,
        OUTPUT,
        "test_the_lines_of_the_quickstart_are_those_that_play_prints",
        OUTPUT,
        MAKE,
        MAKE,
        SERVER,
    ),
    "docs/processing-time.md": (OF_STRATEGIES,) * 2,
    "docs/sinks.md": ("test_the_lines_of_the_page_write_what_was_read",) * 6,
    "docs/several-sources.md": (
        PART, "test_a_source_that_is_gone_leaves_by_the_command_and_one_that_reports_does_not",
    ),
    "docs/strategies.md": (
        OF_STRATEGIES, OF_STRATEGIES, "test_the_class_on_the_page_keeps_the_contract", PART,
        "test_the_class_on_the_page_keeps_the_contract",
    ),
    "docs/surfaces.md": (OF_TOPICS,),
    "docs/troubleshooting.md": (OUTPUT, PART),
    "docs/tuning.md": (COMMAND, OF_TOPICS, OF_TOPICS, OF_TOPICS, OF_TOPICS),
    "docs/verify.md": (
        COMMAND, "test_a_copy_that_is_written_like_its_table_is_accepted_and_damage_to_it_is_not", COMMAND, PART,
    ),
    "docs/watermarks.md": (
        PART, "test_windows_of_a_pipeline_close_by_the_sources_watermark", OF_OPERATORS, PART,
    ),
    "docs/writing-a-source.md": (COMMAND, PART, PART, PART, CLUSTER, PART),
}  # fmt: skip
