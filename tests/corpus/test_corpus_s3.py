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
from reading import BYTES, table, texts

from hf_posenc.corpus import encode, verify

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
    assert count > 50


def shards(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("data/*.parquet")}


def test_from_s3_to_s3_the_shards_have_the_bytes_of_a_local_run(tmp_path: Path, store: dict[str, Any]) -> None:
    import s3fs

    (tmp_path / "in").mkdir()
    lines = [f"I ride bike {number}, she said" for number in range(600)]
    (tmp_path / "in/a.txt").write_text("\n".join(lines))
    (tmp_path / "in/b.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in [*lines[:200], ""]))
    pq.write_table(pa.table({"text": lines}), tmp_path / "in/c.parquet", row_group_size=200)
    (tmp_path / "in/d.csv").write_text("text\n" + "\n".join(f'"{line}"' for line in lines))
    (tmp_path / "in/LICENSE").write_text("not read")
    system = s3fs.S3FileSystem(**store)
    system.mkdir("bucket")
    system.put(str(tmp_path / "in"), "bucket/in", recursive=True)
    settings: dict[str, Any] = {"on_bad_row": "skip", "storage_options": store, "progress": False}
    report = encode("s3://bucket/in", BYTES, tmp_path / "local", workers=0, **settings)
    assert texts(table(tmp_path / "local")) == [*lines, *lines[:200], *lines, *lines]
    assert report.totals["bad"] == 1
    encode("s3://bucket/in", BYTES, "s3://bucket/out", workers=2, part="1/2", **settings)
    assert encode("s3://bucket/in", BYTES, "s3://bucket/out", workers=0, part="2/2", **settings).finished
    system.invalidate_cache()
    system.get("bucket/out", str(tmp_path / "copy"), recursive=True)
    assert shards(tmp_path / "copy") == shards(tmp_path / "local")
    for path in (tmp_path / "copy").rglob("*.*"):
        assert not any(key.encode() in path.read_bytes() for key in KEYS.values())
    assert verify("s3://bucket/out", storage_options=store) == []
    system.rm("bucket/out/data/shard-000002.parquet")
    assert len(verify("s3://bucket/out", storage_options=store)) == 1
    assert encode("s3://bucket/in/", BYTES, "s3://bucket/out", workers=0, **settings).totals == report.totals
    system.put(str(tmp_path / "in/a.txt"), "bucket/in/e.txt")
    with pytest.raises(ValueError, match=r"(?s)holds another job.*s3://bucket/in/e\.txt: None before, \d+ now"):
        encode("s3://bucket/in", BYTES, "s3://bucket/out", workers=0, **settings)
