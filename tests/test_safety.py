"""Files from anyone: none is read without bound, none leads out of its folder, none runs code."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest
from installed import before
from tokenizers import Tokenizer, models

import hf_posenc
from hf_posenc import DataCollatorWithPositionalEncoding
from hf_posenc.corpus import encode

C = DataCollatorWithPositionalEncoding
TOO_LARGE = 2**28 + 1


def _grow(path: Path) -> None:
    """Make a file larger than any that is read whole; on disk it takes no space."""
    os.truncate(path, TOO_LARGE)


@pytest.mark.parametrize("name", ["hf_posenc.json", "tokenizer.json", "tokenizer_config.json"])
def test_a_file_of_a_saved_collator_that_is_too_large_is_not_read(wordpiece, tmp_path: Path, name: str) -> None:
    C(wordpiece).save_pretrained(tmp_path)
    _grow(tmp_path / name)
    with pytest.raises(ValueError, match=rf"{name} must have at most 268,435,456 bytes"):
        C.from_pretrained(tmp_path)


def test_a_tokenizer_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").touch()
    _grow(tmp_path / "tokenizer.json")
    with pytest.raises(ValueError, match=r"tokenizer\.json must have at most 268,435,456 bytes"):
        C(str(tmp_path))


_HUGE_ID = """
import json, resource, sys
from pathlib import Path
from tokenizers import Tokenizer, models
from hf_posenc import DataCollatorWithPositionalEncoding as C
from hf_posenc.corpus import encode

top = Path(sys.argv[1])
saved = C(Tokenizer(models.WordLevel({"[UNK]": 0, "[PAD]": 1, "a": 2}, unk_token="[UNK]")))
for name in ("bare", "tokenizer", "collator"):
    saved.save_pretrained(top / name)
    content = json.loads((top / name / "tokenizer.json").read_text())
    content["model"]["vocab"]["a"] = 4_000_000_000
    (top / name / "tokenizer.json").write_text(json.dumps(content))
(top / "bare" / "tokenizer_config.json").unlink()
settings = json.loads((top / "collator" / "hf_posenc.json").read_text())
del settings["tokenizer"]  # the digests of its files, which find other damage
(top / "collator" / "hf_posenc.json").write_text(json.dumps(settings))
(top / "a.txt").write_text("a")
# Without this limit the process would take 16 GB.
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 2**30, size + 2**30))
calls = [
    lambda: C(str(top / "bare")),
    lambda: C(top / "bare" / "tokenizer.json"),
    lambda: C(str(top / "tokenizer")),
    lambda: C.from_pretrained(top / "collator"),
    lambda: C(Tokenizer(models.WordLevel({"[UNK]": 0, "a": 4_000_000_000}, unk_token="[UNK]"))),
    lambda: encode(top / "a.txt", str(top / "tokenizer"), top / "out", workers=0, progress=False),
]
for call in calls:
    try:
        call()
    except ValueError as error:
        text = str(error)
        assert "largest id" in text and "id 4,000,000,000 of 'a'" in text and "number the tokens from 0" in text, text
        print("refused")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit the memory of a process")
@pytest.mark.skipif(before("transformers", "5.1"), reason="transformers 5.0 itself copies a tokenizer that it loads")
def test_a_tokenizer_with_a_huge_id_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", _HUGE_ID, tmp_path], capture_output=True, text=True, check=False)
    assert ran.stdout == "refused\n" * 6, ran.stdout + ran.stderr[-2000:]


def test_large_ids_of_real_tokenizers_are_not_refused(tmp_path: Path) -> None:
    sparse = Tokenizer(models.WordLevel({"[UNK]": 0, "[PAD]": 1, "a": 2**24}, unk_token="[UNK]"))
    assert C(sparse)(["a"])["input_ids"].tolist() == [[2**24]]


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "a/../../secret", "..\\secret", "C:\\secret", "a\0b"])
def test_a_saved_collator_reads_no_tokenizer_file_outside_of_its_folder(wordpiece, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "saved"
    C(wordpiece).save_pretrained(folder)
    (tmp_path / "secret").write_text("secret")
    saved = json.loads((folder / "hf_posenc.json").read_text())
    saved["tokenizer"]["sha256"][name] = "0" * 64
    (folder / "hf_posenc.json").write_text(json.dumps(saved))
    with pytest.raises(ValueError, match=r"(?s)'tokenizer' in .* must not lead out of its folder"):
        C.from_pretrained(folder)


def test_storage_options_of_a_corpus_are_stored_and_printed_nowhere(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store, options = fsspec.filesystem("memory"), {"key": "a-secret-key"}
    store.pipe("/safety/a.txt", b"a\n")
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    report = encode("memory://safety/a.txt", words, "memory://safety/out", storage_options=options, workers=0)
    with pytest.raises(FileNotFoundError, match="there is no file") as raised:
        encode("memory://safety/b.txt", words, tmp_path / "out", storage_options=options, workers=0)
    assert report.finished
    written = [store.cat(name) for name in store.find("/safety/out")]
    assert len(written) == 6
    shown = f"{report!r} {raised.value!r} {capfd.readouterr()}".encode()
    assert not any(b"a-secret-key" in content for content in [*written, shown])


def test_code_beside_a_tokenizer_does_not_run(wordpiece, tmp_path: Path) -> None:
    C(wordpiece).save_pretrained(tmp_path)
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    auto = {"AutoTokenizer": ["evil.Evil", "evil.Evil"], "AutoProcessor": "evil.Evil", "AutoConfig": "evil.Evil"}
    named = {"auto_map": auto, "tokenizer_class": "Evil"}
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, **named}))
    (tmp_path / "config.json").write_text(json.dumps({"auto_map": auto, "model_type": "evil"}))
    for load in (C, C.from_pretrained):
        with contextlib.suppress(ValueError):
            load(str(tmp_path))
    assert not (tmp_path / "ran").exists()
    source = "".join(path.read_text(encoding="utf-8") for path in Path(hf_posenc.__file__).parent.rglob("*.py"))
    assert {*re.findall(r"trust_remote_code\W+(\w+)", source)} == {"False"}


def test_every_promise_of_security_md_names_a_test() -> None:
    tests = Path(__file__).parent
    named = re.findall(r"`(test_\w+)` \|$", (tests.parent / "SECURITY.md").read_text(), re.MULTILINE)
    source = "".join(path.read_text() for path in tests.rglob("test_*.py"))
    assert len(named) == 9
    assert [name for name in named if f"def {name}(" not in source] == []
