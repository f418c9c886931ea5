"""The Spark side: Data Source V2 reader, input partitions, markers, progress reports, follow_watermark.

Imports ``arrow_columns``, ``clock``, ``contract``, ``durations``, ``errors``, ``group_store``,
``installation``, ``monitor``, ``option_table``, ``planning``, ``signals``, ``spark_process``,
``supported_spark``, ``words``.
"""
