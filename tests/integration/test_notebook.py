"""The notebook runs from its first cell to its last, and shows the query's status as a picture."""

from __future__ import annotations

import ast
import contextlib
import io
import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from examples.play import AHEAD_SECONDS, order
from services.kafka import Kafka
from services.wait_until import wait_until
from watermark_source import recommended_conf

pytestmark = [pytest.mark.service, pytest.mark.timeout(600)]
NOTEBOOK = Path(__file__).parents[2] / "examples" / "open_windows.ipynb"
NOW = 1_767_225_600


def cells() -> list[str]:
    found = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


def run(cell: str, names: dict[str, Any]) -> Any:
    """Run a cell as Jupyter does, and return the value of its last line."""
    body = ast.parse(cell).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


@pytest.fixture
def kept_settings(spark: SparkSession) -> Iterator[None]:
    """A notebook sets what the run's session has for others as well."""
    before = {name: spark.conf.get(name, None) for name in (*recommended_conf(), "spark.sql.shuffle.partitions")}
    yield
    for name, value in before.items():
        if not spark.conf.isModifiable(name):
            continue
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


@contextlib.contextmanager
def written(kafka: Kafka, topic: str) -> Iterator[None]:
    """Write as ``make play`` does, until the end: a partition that is silent for ten seconds would count as idle."""
    done = threading.Event()

    def write() -> None:
        with contextlib.closing(KafkaProducer(bootstrap_servers=kafka.bootstrap)) as producer:
            for n in itertools.count():
                for partition in range(len(AHEAD_SECONDS)):
                    producer.send(topic, order(partition, n, NOW + n), partition=partition)
                # As many at once as windows need, then one by one.
                if n >= 300 and done.wait(0.2):
                    return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()


@pytest.mark.usefixtures("kept_settings")
@pytest.mark.long("test_lines_that_look_at_a_query_print_what_holds_it")
def test_the_notebook_runs_and_its_status_is_a_picture(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    topic = new_topic(4)
    address, imports, stream, picture, table, why, stop = cells()
    names: dict[str, Any] = {}
    run(address.replace("localhost:9092", kafka.bootstrap).replace('"orders"', f'"{topic}"'), names)
    assert (names["bootstrap"], names["topic"]) == (kafka.bootstrap, topic)
    run(imports, names)
    with written(kafka, topic), contextlib.redirect_stdout(io.StringIO()) as printed:
        run(stream, names)
        wait_until(lambda: names["spark"].table("totals").count() > 0, 300, "windows of the notebook's query")
        shown = run(picture, names)._repr_html_()
        run(table, names)
        run(why, names)
        run(stop, names)
    assert shown.startswith("<iframe")
    assert re.search(rf"{topic}-2 (holds|has held) the watermark back", shown)
    assert "|count|" in printed.getvalue()
    assert f"{topic}-2" in printed.getvalue()
