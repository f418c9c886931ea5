"""Fuzzing: any bytes at all where the outside world, or a user, gives us something to read."""
