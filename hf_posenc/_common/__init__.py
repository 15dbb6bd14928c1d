"""Functions that every room may use, and that know nothing of tokens: wording of errors, files, integers, versions."""
