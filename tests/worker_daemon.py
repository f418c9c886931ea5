"""Spark's daemon of Python workers, which has loaded what all our tasks need: each starts half a second sooner.

Spark itself loads nothing before it forks, for what it loads may start threads.
"""

from __future__ import annotations

import importlib

import pyspark.daemon

_OF_EVERY_TASK = (
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.worker",
    "watermark_source.spark.executor.reading",
    "pyspark_aligned_kafka.source",
    "pyspark_aligned_kafka.records.decoding",
)

if __name__ == "__main__":
    for name in _OF_EVERY_TASK:
        importlib.import_module(name)
    pyspark.daemon.manager()
