"""Fuzzing with random tokenizers, rows, options and damaged files: `python -m tests.programs.fuzz`."""
