"""From a task to a shard: documents tokenised, laid out in rows, packed, and written as Parquet.

Runs in a worker; reading bytes is for `reading`, and what holds many shards together for `output`.
"""
