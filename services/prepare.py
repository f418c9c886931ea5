"""What a run of all tests needs is fetched and made side by side: ``python -m services.prepare``; once, two minutes.

The test that needs a failed part retries it, and reports its failure.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial

from services.browser import usable_browser
from services.errors import ServiceError
from services.ivy import merge_catalog_jars, spark_kafka_jars
from services.kafka_local import kafka_classpath, quick_broker
from services.mysql_program import Flavour, usable_program
from services.spark_start import quick_spark

_COMPILE_ALL = """
import sys
from release.decoders import all_functions
for each in all_functions(sys.argv[1]):
    each.make()
"""


def main() -> None:
    """Do all of it at once: half of it waits for the network."""
    tasks = _tasks()
    with ThreadPoolExecutor(len(tasks)) as pool:
        running = [pool.submit(each) for each in tasks]
        for done in as_completed(running):
            failed = done.exception()
            if isinstance(failed, ServiceError | subprocess.CalledProcessError):
                sys.stderr.write(f"left to the tests: {failed}\n")
            elif failed is not None:
                raise failed


def _tasks() -> Sequence[Callable[[], object]]:
    return (
        _broker,
        quick_spark,
        spark_kafka_jars,
        merge_catalog_jars,
        *(partial(usable_program, flavour) for flavour in Flavour),
        usable_browser,
        *map(partial(partial, _compile), ("pyspark_mysql_cdc_wm", "pyspark_aligned_kafka")),
    )


def _broker() -> None:
    kafka_classpath()
    quick_broker()


def _compile(package: str) -> None:
    # Tests with a time limit would wait for it.
    subprocess.run([sys.executable, "-c", _COMPILE_ALL, package], check=True)


if __name__ == "__main__":
    main()
