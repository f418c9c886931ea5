"""How a Spark that lives shortly starts: its session is up in half the time."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from services.class_archive import class_archive
from services.java import QUICK_START
from services.pyspark_home import pyspark_home

LOCAL_CHECKPOINTS: Mapping[str, str] = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings for checkpoints on the local disk: by default Hadoop starts some sixty processes (``readlink``) for each
batch of a query with state."""


@functools.cache
def quick_spark() -> str:
    """Java options for a Spark that lives shortly: ``spark.driver.extraJavaOptions``, or ``JDK_JAVA_OPTIONS``.

    The first time, a session makes an archive of its classes: a minute, 200 MB.

    Raises:
        ServiceError: there is no Java, or no pyspark.
    """
    jars = (pyspark_home() / "jars").glob("*.jar")
    return " ".join(class_archive("spark", jars, "services.spark_first_run", QUICK_START))
