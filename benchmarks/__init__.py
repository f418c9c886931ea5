"""Benchmarks: Spark's own readers of Kafka and MySQL and ours, side by side; ``python -m benchmarks``."""
