"""What a job is put through: `python -m tests.faults`. Without pytest, so that it can run for hours on any machine."""
