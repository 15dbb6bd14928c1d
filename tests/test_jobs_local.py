"""The local engine: every task done exactly once and no process left, whoever is killed, and whenever."""

from __future__ import annotations

from local_writers import Echo, tasks

from hf_posenc.jobs.local import run_writers


def test_every_task_gives_one_record() -> None:
    records = list(run_writers(Echo, tasks(200), workers=2))
    assert sorted(record["shard"] for record in records) == list(range(200))
    assert len({record["pid"] for record in records}) <= 2
