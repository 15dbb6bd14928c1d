"""From S3 to S3, on a server of this machine (moto) that fails every seventh request: the bytes of a local run."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import BYTES

from hf_posenc.corpus import Manifest, Progress, encode, verify

pytest.importorskip("s3fs", reason="needs s3fs and moto: pip install s3fs 'moto[server]'")
pytest.importorskip("moto.server", reason="needs s3fs and moto: pip install s3fs 'moto[server]'")

KEYS = {"key": "a-key-of-mine", "secret": "a-secret-of-mine"}


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, Any]]:
    """Storage options of a server that answers every seventh request with an error."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    application = DomainDispatcherApplication(create_backend_app)
    count = 0

    def unreliable(environment: dict[str, Any], start: Any) -> Any:
        nonlocal count
        count += 1
        if count % 7 == 0:
            start("503 Slow Down", [("Content-Type", "text/plain"), ("Content-Length", "0")])
            return [b""]
        return application(environment, start)

    server = make_server("127.0.0.1", 0, unreliable, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield {**KEYS, "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{server.server_port}"}}
    server.shutdown()
    thread.join()
    server.server_close()
    assert count > 70


class Made(Progress):
    """The shards that a run made; stops it after some of them."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.shards: list[str] = []
        self.stop_after = stop_after

    def message(self, text: str) -> None:
        assert not any(key in text for key in KEYS.values())

    def shard(self, record: dict[str, Any]) -> None:
        self.shards.append(record["file"])
        if len(self.shards) == self.stop_after:
            raise KeyboardInterrupt


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("[!.]*") if path.is_file()}


def test_from_s3_to_s3_the_shards_have_the_bytes_of_a_local_run(tmp_path: Path, store: dict[str, Any]) -> None:
    import s3fs

    (tmp_path / "in").mkdir()
    lines = [f"I ride bike {number}, she said" for number in range(600)]
    (tmp_path / "in/a.txt").write_text("\n".join(lines))
    (tmp_path / "in/b.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in [*lines[:200], 3]))
    pq.write_table(pa.table({"text": lines}), tmp_path / "in/c.parquet", row_group_size=200)
    system = s3fs.S3FileSystem(**store)
    system.mkdir("bucket")
    system.put(str(tmp_path / "in"), "bucket/in", recursive=True)
    options: dict[str, Any] = {"shard_bytes": 6_000, "on_bad_row": "skip", "storage_options": store}
    # The names and ETags of the inputs are parts of the digest of the job, so both runs read from S3.
    encode("s3://bucket/in", BYTES, tmp_path / "local", workers=0, progress=Made(), **options)
    with pytest.raises(KeyboardInterrupt):
        encode("s3://bucket/in", BYTES, "s3://bucket/out", workers=2, progress=Made(3), **options)
    made = Made()
    manifest = encode("s3://bucket/in", BYTES, "s3://bucket/out", workers=1, progress=made, **options)
    assert isinstance(manifest, Manifest)
    assert manifest.finished
    assert 0 < len(made.shards) < len(manifest.shards)
    system.invalidate_cache()
    system.get("bucket/out", str(tmp_path / "copy"), recursive=True)
    assert files(tmp_path / "copy") == files(tmp_path / "local")
    for content in files(tmp_path / "copy").values():
        assert not any(key.encode() in content for key in KEYS.values())
    assert verify("s3://bucket/out", storage_options=store).sound
    again = Made()
    encode("s3://bucket/in", BYTES, "s3://bucket/out", workers=1, progress=again, **options)
    assert again.shards == []
    system.rm("bucket/out/data/shard-000002-000.parquet")
    found = verify("s3://bucket/out", storage_options=store)
    assert [str(bad) for bad in found.bad] == ["data/shard-000002-000.parquet: is missing"]
    encode("s3://bucket/in", BYTES, "s3://bucket/out", workers=0, progress=again, **options)
    assert again.shards == ["data/shard-000002-000.parquet"]
