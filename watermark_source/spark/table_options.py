"""The options of a table (``CREATE TABLE ... USING``), kept in its schema: Spark does not hand them to a reader.

Spark 4.3 gives the options of a table to a Python source once, when it infers the schema, and stores that. What reads
the table gets the schema, and the options of the read alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql.types import StructField, StructType

from watermark_source.errors import OptionError
from watermark_source.option_table import is_of_table, options_of_table
from watermark_source.spark.column_names import EVENT_TIME

_KEPT, _LEFT_OUT = "watermarkSource.options", "watermarkSource.secrets"


def kept_in_schema(schema: StructType, given: Mapping[str, str], is_secret: Callable[[str], bool]) -> StructType:
    """Return the schema of a table with its options, secrets left out; of anything but a table, the schema as it is.

    Args:
        schema: the source's own.
        given: the options as Spark hands them over.
        is_secret: whether an option of this name, in lower case, is a secret.
    """
    if not is_of_table(given):
        return schema
    options = {name.lower(): str(text) for name, text in options_of_table(given).items()}
    secrets = sorted(name for name in options if is_secret(name))
    about = {_KEPT: {name: text for name, text in options.items() if name not in secrets}, _LEFT_OUT: secrets}
    return StructType(
        [
            StructField(f.name, f.dataType, f.nullable, {**(f.metadata or {}), **about}) if f.name == EVENT_TIME else f
            for f in schema.fields
        ]
    )


def taken_from_schema(schema: StructType, given: Mapping[str, str]) -> tuple[dict[str, str], StructType]:
    """Return the options of a read, those of its table included, and the schema as the source made it.

    Raises:
        OptionError: the table was made with a secret, which the read does not give.
    """
    options = {name.lower(): str(text) for name, text in given.items()}
    fields = []
    for field in schema.fields:
        about = dict(field.metadata or {})
        options = {**about.pop(_KEPT, {}), **options}
        if lacking := [name for name in about.pop(_LEFT_OUT, ()) if name not in options]:
            raise OptionError(
                lacking[0],
                None,
                "is a secret, which is not kept with a table: give it where the table is read",
                example=f'spark.readStream.option("{lacking[0]}", …).table(…)',
            )
        fields.append(StructField(field.name, field.dataType, field.nullable, about))
    return options, StructType(fields)
