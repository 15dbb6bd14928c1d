"""The content and the server of the page, without a browser: `test_explorer_browser.py` looks at the page itself."""

from __future__ import annotations

import json
import runpy
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoTokenizer

from hf_posenc import sinusoidal_encoding
from hf_posenc.explorer import Settings, answer, serve

TEXT = "I ride bike\nbike ride I, she said"
HARD = [
    "a" * 100_000,
    "word " * 20_000,
    "a\n" * 50_000,
    "👨‍👩‍👧‍👦 👍🏽",
    "שלום עולם\nمرحبا بالعالم",
    "<script>alert('&')</script><!--",
    "\u202eright to left override\u202c \ufeff\u200d\x00\x1b[31m",
    "half a pair: \ud83d",
    '"""\\',
]


@pytest.fixture
def folder(byte_bpe: Any, tmp_path: Path) -> Path:
    """A saved BPE tokenizer without a padding token."""
    byte_bpe.save_pretrained(tmp_path / "gpt")
    return tmp_path / "gpt"


def shown(folder: Path, /, **settings: Any) -> dict[str, Any]:
    return answer({"text": TEXT, "tokenizer": "folder", "folder": str(folder), **settings})


# ----------------------------------------------------------------------------------------------------------- content


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"padding_side": "left", "look_ahead": False},
        {"packing": True, "max_length": 8},
        {"convention": "marian", "scale": "none", "d_model": 6},
        {"tokenizer": "bert"},
        {"text": 'say "hi"\\\n\u202e\tÄ', "base": 100.5},
    ],
)
def test_the_python_makes_the_batch_that_is_shown(
    settings: dict[str, Any], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = shown(folder, **settings)
    script = tmp_path / "script.py"
    script.write_text(content["python"], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    page = (tmp_path / "batch.html").read_text(encoding="utf-8")
    assert content["batch"] in page


def test_the_numbers_of_the_lessons_are_those_of_the_package(folder: Path) -> None:
    content = shown(folder, d_model=16)
    rows = sinusoidal_encoding(torch.arange(64), 16)
    torch.testing.assert_close(torch.tensor(content["encoding"]), rows)
    torch.testing.assert_close(torch.tensor(content["dots"]), rows @ rows.T)
    real, total = content["real"]
    assert 0 < real < total
    attention = content["attention"]
    assert attention["without"]["difference"] < 1e-5
    assert attention["with"]["difference"] > 1e-2
    for name in ("without", "with"):
        weights = torch.tensor(attention[name]["weights"])
        assert weights.shape == (len(attention["tokens"]),) * 2
        torch.testing.assert_close(weights.sum(1), torch.ones(len(weights)))
    assert content["merges"][0][0] == "I"


def test_equal_tokens_have_equal_attention_only_without_positions(folder: Path) -> None:
    attention = shown(folder, text="a b a", look_ahead=False)["attention"]
    first, last = (index for index, token in enumerate(attention["tokens"]) if token.strip("Ġ") == "a")
    rows = {name: torch.tensor(attention[name]["weights"]) for name in ("without", "with")}
    if attention["tokens"][first] == attention["tokens"][last]:
        torch.testing.assert_close(rows["without"][first], rows["without"][last])
    assert not torch.allclose(rows["with"][first], rows["with"][last])


def test_look_ahead_hides_later_keys_in_the_table_of_attention(folder: Path) -> None:
    free, masked = (shown(folder, look_ahead=look_ahead)["attention"] for look_ahead in (False, True))
    for name in ("without", "with"):
        every, earlier = (torch.tensor(each[name]["weights"]) for each in (free, masked))
        assert (every > 0).all()
        assert torch.equal(earlier > 0, torch.ones_like(earlier).tril().bool())
        torch.testing.assert_close(earlier, every.tril() / every.tril().sum(1, keepdim=True))
        assert masked[name]["difference"] == free[name]["difference"]  # the question of order has no mask


def test_attention_weights_have_the_factors_that_the_page_names(folder: Path) -> None:
    width, seed = 64, torch.Generator().manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(TEXT.split("\n", maxsplit=1)[0], return_tensors="pt")["input_ids"][0][:16]
    table = torch.randn(len(tokenizer), width, generator=seed) * width**-0.5
    x = F.layer_norm(table[ids] * width**0.5 + sinusoidal_encoding(torch.arange(len(ids)), width), (width,))
    seed = torch.Generator().manual_seed(0)
    query, key = (x @ (torch.randn(width, width, generator=seed) * width**-0.5) for _ in range(2))
    weights = torch.softmax(query @ key.T / width**0.5, dim=-1)
    attention = shown(folder, look_ahead=False)["attention"]
    torch.testing.assert_close(torch.tensor(attention["with"]["weights"]), weights)


@pytest.mark.parametrize("convention", ["vaswani", "marian"])
def test_dot_products_depend_on_the_distance_of_positions_only(convention: str) -> None:
    dots = torch.tensor(answer({"text": "", "convention": convention, "d_model": 256})["dots"])
    assert torch.equal(dots.argmax(1), torch.arange(64))
    for distance in range(64):
        diagonal = dots.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=0, atol=1e-3)


def test_without_text_the_encoding_is_shown() -> None:
    content = answer({"text": " \n"})
    assert set(content) == {"encoding", "dots", "notes"}


@pytest.mark.parametrize("text", HARD)
def test_any_text_is_answered(text: str, folder: Path) -> None:
    content = shown(folder, text=text)
    assert "error" not in content
    json.dumps(content).encode()
    compile(content["python"], "script", "exec")
    assert "<script>alert" not in content["batch"]


def test_what_is_not_read_is_noted(folder: Path) -> None:
    notes = shown(folder, text="a " * 5_000 + "\nb" * 9)["notes"]
    assert "the first 8 of 10 texts are read" in notes
    assert "the first 4,000 of 10,000 characters of a text are read" in notes
    assert "1 of 8 texts are truncated to 24 tokens" in notes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_model": 1}, "d_model must be an integer from 2 to 512 on this page"),
        ({"d_model": 7.5}, "d_model must be an integer\n  got: 7.5\n  fix: d_model=64"),
        ({"max_length": True}, "max_length must be an integer\n  got: True\n  fix: max_length=32"),
        ({"max_length": None}, "max_length must be an integer"),
        (
            {"max_length": 33},
            "max_length must be an integer from 4 to 32 on this page\n  got: 33\n  fix: max_length=32",
        ),
        ({"base": None}, "base must be a number"),
        ({"base": 1e999}, "base must be a number"),
        ({"base": 0.5}, "base"),
        ({"tokenizer": "gpt"}, "tokenizer"),
        ({"convention": "unknown"}, "convention"),
        ({"folder": "/nowhere"}, "there is no such folder on this machine"),
        ({"folder": "a\0b"}, "there is no such folder on this machine"),
        ({"widht": 3}, "widht"),
    ],
)
def test_a_bad_setting_is_named_in_three_lines_and_offers_no_python(
    settings: dict[str, Any], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = shown(folder, **settings)
    assert list(content) == ["error"]
    assert message in content["error"]
    assert "\n  got: " in content["error"] or "\n  fix: " in content["error"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("values", [None, [], "text", 3])
def test_settings_that_are_no_object_are_refused(values: object) -> None:
    assert "settings must be a JSON object" in answer(values)["error"]


def test_a_bug_is_named_and_its_traceback_goes_to_stderr(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(F, "layer_norm", broken)
    assert "this is a bug of hf_posenc\n  got: ZeroDivisionError: oh" in shown(folder)["error"]
    assert "Traceback" in capsys.readouterr().err


def test_visitors_at_the_same_time_get_their_own_answers(folder: Path) -> None:
    widths = [4, 6, 8, 10] * 3
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda width: shown(folder, d_model=width), widths))
    assert [len(content["encoding"][0]) for content in answers] == widths


def test_the_settings_begin_with_width_64_and_scaled_embeddings() -> None:
    assert (Settings().d_model, Settings().scale) == (64, "sqrt_d")


# ------------------------------------------------------------------------------------------------------------ server


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The page served by the command; it ends with Ctrl-C and prints nothing more."""
    command = [sys.executable, "-m", "hf_posenc", "explore", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().partition(" ")[0]
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=180)
        finally:
            process.kill()
    assert (process.returncode, out, errors) == (0, "", "")


def request(address: str, path: str = "/", data: bytes | None = None, **headers: str) -> tuple[int, str]:
    asked = urllib.request.Request(address + path, data, {name.replace("_", "-"): one for name, one in headers.items()})
    try:
        with urllib.request.urlopen(asked, timeout=180) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


JSON = {"Content_Type": "application/json"}


def test_the_server_answers_its_page_and_its_content(address: str) -> None:
    assert address.startswith("http://127.0.0.1:")
    status, page = request(address)
    assert (status, "<title>Positions and masks</title>" in page) == (200, True)
    assert "src=" not in page
    assert "http" not in page.replace("http-equiv", "")
    status, content = request(address, "/answer", json.dumps({"text": ""}).encode(), **JSON)
    assert (status, set(json.loads(content))) == (200, {"encoding", "dots", "notes"})


@pytest.mark.parametrize("path", ["/../etc/passwd", "/page.html", "/answer"])
def test_nothing_else_is_served(path: str, address: str) -> None:
    assert request(address, path)[0] == 404


def test_another_host_or_origin_is_refused(address: str) -> None:
    port = address.rpartition(":")[2]
    body = json.dumps({"text": ""}).encode()
    assert request(address, Host="example.org")[0] == 403
    assert request(address, Host=f"example.org:{port}")[0] == 403
    assert request(address, "/answer", body, Origin="http://example.org", **JSON)[0] == 403
    assert request(address, "/answer", body, Origin="null", **JSON)[0] == 403
    assert request(address, "/answer", body, Origin=f"http://localhost:{port}", **JSON)[0] == 200
    assert request(address, "/answer", body, Content_Type="text/plain")[0] == 404  # what a foreign page could send


def test_a_bad_request_is_refused(address: str) -> None:
    assert request(address, "/answer", b"{", **JSON)[0] == 400
    assert request(address, "/answer", b"[" * 100_000, **JSON)[0] in (200, 400)
    assert request(address, "/answer", b"1" * (1 << 20) + b"1", **JSON)[0] == 413


def test_a_port_that_is_taken_is_refused(address: str) -> None:
    port = int(address.rpartition(":")[2])
    with pytest.raises(ValueError, match=rf"port {port} cannot be listened on\n  got: in use"):
        serve(port, browser=False)


def test_the_page_can_be_served_from_a_thread() -> None:
    lines: list[str] = []
    ready = threading.Event()
    thread = threading.Thread(
        target=serve, kwargs={"browser": False, "say": lambda line: (lines.append(line), ready.set())}, daemon=True
    )
    thread.start()
    assert ready.wait(60)
    assert request(lines[0].partition(" ")[0])[0] == 200
