"""Kills of jobs: `python -m tests.programs.faults`. It needs no pytest, and can run for hours on any machine."""
