"""Other people's training scripts with this package's lines: `python -m tests.programs.clients` runs them."""
