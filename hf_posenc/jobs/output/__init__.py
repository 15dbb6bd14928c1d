"""The folder that a job writes: one run at a time, files that are whole, what they hold, and whether they still do.

Nothing here reads a corpus or makes a shard.
"""
