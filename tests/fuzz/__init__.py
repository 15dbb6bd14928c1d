"""Fuzzing: random tokenizers, rows, options and damaged files against a slow reference. `python -m tests.fuzz`."""
