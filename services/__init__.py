"""Real servers for the demo, the tests, the examples and the benchmarks; a development tool, not part of the wheel."""
