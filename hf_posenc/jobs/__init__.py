"""Whole corpora: text files and data sets of any size to shards of token ids, resumable.

Reading is in `sources`, writing in `shard`; `encode` puts them together, on one machine or on Ray.
"""
