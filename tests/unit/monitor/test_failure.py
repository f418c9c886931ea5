"""The error that ended a query, out of the texts that Spark 4.3 had about it in runs, without most of their frames."""

from __future__ import annotations

import time

import pytest

from watermark_source.monitor.failure import Failure, failure_of

STREAM = (
    "[STREAM_FAILED] Query [id = 07cb7d47-a8dc-461c-8a4c-132cc6d1bf44, runId = f43ddb8f-829e-4dfd-9b94-f4b2d68c3272] "
    "terminated with exception: "
)
STATUS = """
=== Streaming Query ===
Identifier: [id = 07cb7d47-a8dc-461c-8a4c-132cc6d1bf44, runId = f43ddb8f-829e-4dfd-9b94-f4b2d68c3272]
Current Committed Offsets: {}
Current Available Offsets: {org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@3c: {"n": 1}}

Current State: ACTIVE
Thread State: RUNNABLE

Logical Plan:
WriteToMicroBatchDataSource noop-table
+- ~StreamingDataSourceV2ScanRelation[n#0] orders
"""
STACK = """
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1097)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""

READER = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/opt/job/reader.py", line 17, in read
    if gone: raise DataLossError("orders-1: records 5 to 9 no longer exist.\\nSet failOnDataLoss to false to go on")
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
watermark_source.errors.DataLossError: orders-1: records 5 to 9 no longer exist.
Set failOnDataLoss to false to go on
 SQLSTATE: 38000"""
CHAINED = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/opt/job/reader.py", line 20, in read
    try: {}["k"]
         ~~^^^^^
KeyError: 'k'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/opt/job/reader.py", line 21, in read
    except KeyError as e: raise UnreachableError("lost the broker; check it") from e
                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
watermark_source.errors.UnreachableError: lost the broker; check it
 SQLSTATE: 38000"""
HOOK = """[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform \
planPartitions: Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/pyspark/sql/streaming/python_streaming_source_runner.py", line 271, in main
    partitions_func(reader, infile, outfile)
  File "/opt/job/reader.py", line 15, in partitions
    if unknown: raise OptionError("topic", "x", "expected one that exists", example="orders")
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
watermark_source.errors.OptionError: option topic = "x": expected one that exists, for example orders
 SQLSTATE: 38000"""
PROXY = "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):"
SINK = "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink. "
FOREACH_BATCH = f"""{PROXY}
  File "/usr/lib/python3.11/site-packages/py4j/clientserver.py", line 643, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/opt/job/sink.py", line 52, in write
    raise ValueError("disk is full\\nsecond line")
ValueError: disk is full
second line
"""
NESTED = f"""{PROXY}
  File "/opt/job/sink.py", line 56, in write
    df.selectExpr("raise_error('boom')").collect()
pyspark.errors.exceptions.captured.SparkRuntimeException: [USER_RAISED_EXCEPTION] boom SQLSTATE: P0001
"""
NESTED_PYTHON = f"""{PROXY}
  File "/opt/job/sink.py", line 60, in write
    df.select(bad("n")).collect()
pyspark.errors.exceptions.captured.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: \
Traceback (most recent call last):
  File "/opt/job/sink.py", line 64, in bad
    def bad(n): return 1//0
                       ~^^~
ZeroDivisionError: integer division or modulo by zero
 SQLSTATE: 38000

JVM stacktrace:
org.apache.spark.api.python.PythonException
"""
CAUSED_BY_SPARK = f"""{NESTED_PYTHON}\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.read(x.scala:1)

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/opt/job/sink.py", line 70, in write
    raise UnreachableError("lost the broker; check it") from error
watermark_source.errors.UnreachableError: lost the broker; check it
"""
STAGE = (
    "Job aborted due to stage failure: Task 0 in stage 6.0 failed 4 times, most recent failure: Lost task 0.3 in stage "
    "6.0 (TID 9) (host-1.example executor 1): "
)
CAST = (
    '[CAST_INVALID_INPUT] The value \'x1\' of the type "STRING" cannot be cast to "INT" because it is malformed. Use '
    "`try_cast` to tolerate malformed input and return NULL instead."
)
CAST_QUERY = "\n== SQL (line 1, position 1) ==\ncast(concat('x',n) as int)\n^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
FULL_DISK = "java.io.IOException: disk is full"
ABORTED = "[WRITING_JOB_ABORTED] Writing job aborted"

LOSS = Failure("orders-1: records 5 to 9 no longer exist. Set failOnDataLoss to false to go on", "DataLossError")
UNREACHABLE = Failure("lost the broker; check it", "UnreachableError")
OPTION = Failure('option topic = "x": expected one that exists, for example orders', "OptionError")
FULL = Failure("ValueError: disk is full second line")
BOOM = Failure("[USER_RAISED_EXCEPTION] boom")
ZERO = Failure("ZeroDivisionError: integer division or modulo by zero")


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (READER, LOSS),
        (CHAINED, UNREACHABLE),
        (HOOK, OPTION),
        (FOREACH_BATCH, FULL),
        (NESTED, BOOM),
        (NESTED_PYTHON, ZERO),
        (CAUSED_BY_SPARK, UNREACHABLE),
    ],
    ids=["reader", "chained", "hook", "foreach-batch", "spark-in-foreach-batch", "python-in-foreach-batch", "of-spark"],
)
def test_of_a_python_error_it_is_the_last_error_of_its_traceback(text: str, failure: Failure) -> None:
    reason = f"{SINK}Reason: " if text.startswith(PROXY) else ""
    assert failure_of(f"{STREAM}{reason}{text} SQLSTATE: XXKST{STATUS}") == failure
    assert failure_of(f"{text}{STATUS}") == failure
    assert failure_of(f"org.apache.spark.SparkException: {text}{STACK}") == failure
    of_stage = f"org.apache.spark.SparkException: {STAGE}org.apache.spark.api.python.PythonException: {text}\n{STACK}"
    assert failure_of(f"{of_stage}\nDriver stacktrace:{STACK}Caused by: org.apache.spark.x: {text}{STACK}") == failure
    aborted = f"org.apache.spark.SparkException: Job aborted.{STACK}Caused by: org.apache.spark.api.x: {text}{STACK}"
    assert failure_of(aborted) == failure


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"{STREAM}{CAST} SQLSTATE: 22018{CAST_QUERY} SQLSTATE: XXKST{STATUS}", CAST),
        (f"{CAST} SQLSTATE: 22018{CAST_QUERY}{STATUS}", CAST),
        (f"org.apache.spark.SparkNumberFormatException: {CAST} SQLSTATE: 22018{CAST_QUERY}{STACK}", CAST),
        (f"org.apache.spark.SparkException: {STAGE}{FULL_DISK}{STACK}", FULL_DISK),
        (f"Job aborted.{STACK}Caused by: {FULL_DISK}{STACK}", FULL_DISK),
        (f"{ABORTED} SQLSTATE: 40000{STACK}Caused by: java.lang.X: {STACK}Caused by: {FULL_DISK}{STACK}", FULL_DISK),
        (f"org.apache.spark.SparkException: {ABORTED} SQLSTATE: 40000{STATUS}", ABORTED),
        (f"java.lang.NullPointerException{STACK}", "java.lang.NullPointerException"),
        (f"the broker is gone{STACK}", "the broker is gone"),
        ("Failed: Traceback (most recent call last):\n  File", "Failed: Traceback (most recent call last):"),
        ("", ""),
    ],
)
def test_of_another_error_it_is_the_first_line_that_says_something(text: str, error: str) -> None:
    found = failure_of(text)
    assert found.own == ""
    assert found.text.endswith(error)
    assert "aborted due" not in found.text
    assert "SQLSTATE" not in found.text


@pytest.mark.parametrize("piece", [" ", "\n", " SQLSTATE: a", "Job aborted due to stage failure: (TID 1) ("])
@pytest.mark.parametrize("begin", ["", "Caused by: ", "Traceback (most recent call last):\nValueError: "])
def test_a_text_of_a_megabyte_is_read_at_once(begin: str, piece: str) -> None:
    before = time.process_time()
    failure_of(f"{begin}{piece * (1_000_000 // len(piece))}!")
    assert time.process_time() - before < 2


def test_what_to_do_at_the_end_of_a_long_message_is_kept_and_no_text_is_endless() -> None:
    message = f"{'orders, ' * 60}: write less"
    assert failure_of(READER.replace("to go on\n", f"to go on{message}\n")).text.endswith(": write less")
    assert len(failure_of("x" * 100_000).text) < 1_100
