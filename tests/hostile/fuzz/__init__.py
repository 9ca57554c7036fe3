"""Fuzzers of every parser of our own. `python -m tests.hostile.fuzz` runs them."""
