"""Benchmarks: Spark's built-in Kafka source and ours, side by side on one broker; ``python -m benchmarks``."""
