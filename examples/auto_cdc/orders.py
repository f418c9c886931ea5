"""A declarative pipeline that keeps a table equal to one of MySQL: AUTO CDC, with the source as it stands.

Run with ``spark-pipelines run --spec examples/auto_cdc/spark-pipeline.yml``, and a catalog whose tables take MERGE.
"""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812


@dp.temporary_view
def changes() -> DataFrame:
    """What the table holds, then its changes; AUTO CDC wants no rows as they were before an update."""
    stream = (
        SparkSession.active()
        .readStream.format("mysql-cdc-wm")
        .option("hostname", os.environ["MYSQL_HOST"])
        .option("port", os.environ["MYSQL_PORT"])
        .option("username", os.environ["MYSQL_USER"])
        .option("password", os.environ["MYSQL_PASSWORD"])
        .option("tables", "shop.orders")
        .option("includeMarkers", "false")
        .load()
    )
    return stream.where("_change_type <> 'update_preimage'").withColumn(
        "sequence", F.struct("_commit_version", "_change_number")
    )


dp.create_streaming_table("orders")
dp.create_auto_cdc_flow(
    target="orders",
    source="changes",
    keys=["id"],
    sequence_by="sequence",
    apply_as_deletes="_change_type = 'delete'",
    column_list=["id", "customer", "amount"],
    stored_as_scd_type=1,
)
