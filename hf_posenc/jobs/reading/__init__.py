"""The documents in the bytes of a task: lines of text, paragraphs, JSON lines and tables, each with its number.

Runs in a worker, on NumPy and Arrow; where the bytes come from is for `sources`.
"""
