"""What ``python -m watermark_source doctor --kafka`` looks at: what a query needs, and what its user should know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

from pyspark_aligned_kafka.client.setting_table import SETTINGS
from pyspark_aligned_kafka.lookup.checked_cluster import CheckedCluster
from pyspark_aligned_kafka.lookup.doctor_checks import checks_of
from pyspark_aligned_kafka.options import kafka_options
from pyspark_aligned_kafka.options.kafka_option_table import OPTION_TABLE
from watermark_source.checks import Finding, examine
from watermark_source.option_table import OptionTable

OPTIONS = OptionTable((*OPTION_TABLE.options, *(row.option for row in SETTINGS if row.option.secret)))
"""With the settings that are secret, which come from the environment."""
ASKED_FOR = None
"""Many clusters need no password."""
_PROBE = "probetopic"


def findings(given: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what each check finds. Beside the source's options there is ``probeTopic``, to which a record is written.

    Raises:
        OptionError: options that cannot work, before anything is connected.
    """
    probe_topic = next((value for name, value in given.items() if name.lower() == _PROBE), None)
    parsed = kafka_options.parse({name: value for name, value in given.items() if name.lower() != _PROBE})
    with closing(CheckedCluster(parsed, probe_topic)) as cluster:
        yield from examine(checks_of(cluster), cluster)
