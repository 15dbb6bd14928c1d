"""The Input Lab: its arithmetic against Python's, and the page in a real browser."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hf_posenc.view
from hf_posenc import AttentionMask, DataCollatorWithPositionalEncoding, sinusoidal_encoding
from hf_posenc.positions import CONVENTIONS, frequencies
from hf_posenc.testing import standard_library_docstrings
from hf_posenc.view import lab_html, page_of

SCENES = ["ids", "order", "train", "clock", "base", "beyond", "adding", "masks", "tests", "price", "sandbox"]


def test_a_tokenizer_of_another_kind_needs_texts(unigram: Any) -> None:
    with pytest.raises(ValueError, match="cannot run this tokenizer: it runs BERT's WordPiece and GPT-2's byte-level"):
        lab_html(unigram)
    page = lab_html(unigram, ["I ride 🚲 bike"])
    assert "The texts were tokenized beforehand and cannot be changed here" in page
    with pytest.raises(ValueError, match="texts must be a list of at least one text"):
        lab_html(unigram, [])


def test_explore_writes_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], unigram: Any) -> None:
    from hf_posenc.cli import main

    unigram.save_pretrained(tmp_path / "tokenizer")
    (tmp_path / "texts.txt").write_text("I ride bike\n\nbike ride I\n")
    output = tmp_path / "lab.html"
    command = ["explore", "--no-browser", "-t", str(tmp_path / "tokenizer"), "-o", str(output)]
    with pytest.raises(SystemExit) as end:
        main([*command, "--text", str(tmp_path / "texts.txt")])
    assert end.value.code in (0, None)
    assert str(output) in capsys.readouterr().out
    page = output.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert '["I ride bike","bike ride I"]' in page


def test_the_page_is_short(bert: Any) -> None:
    folder = Path(str(hf_posenc.view.__file__)).parent
    words = re.sub(r"<[^>]+>", " ", (folder / "lab.html").read_text(encoding="utf-8")).split()
    assert len(words) <= 2_775
    lines = {file.name: len(file.read_text(encoding="utf-8").splitlines()) for file in folder.glob("*.js")}
    assert sum(lines.values()) <= 2_000
    assert max(lines.values()) <= 390
    assert len(page_of(lab_html(bert), "The Input Lab").encode()) <= 520_000


# ------------------------------------------------------------------------------------------------- the arithmetic


@pytest.fixture(scope="module")
def functions(chromium: Any) -> Iterator[Any]:
    """A page with the functions that compute, apart from those that draw."""
    page = chromium.new_page()
    folder = Path(str(hf_posenc.view.__file__)).parent
    for name in ("tokens.js", "positions.js", "attention.js", "learning.js"):
        page.add_script_tag(path=str(folder / name))
    yield page
    page.close()


def data_of(tokenizer: Any) -> dict[str, Any]:
    """The data of the page."""
    found: dict[str, Any] = json.JSONDecoder().raw_decode(lab_html(tokenizer).split("showLab(host, ")[-1])[0]
    return found


def in_page(tokenizer: Any) -> dict[str, Any]:
    """The tokenizer as the page has it."""
    tokenizer_data: dict[str, Any] = data_of(tokenizer)["tokenizer"]
    return tokenizer_data


@pytest.mark.browser
@pytest.mark.parametrize("kind", ["bert", "wordpiece", "byte_bpe"])
def test_tokens_are_those_of_python(
    kind: str, functions: Any, sentences: list[str], request: pytest.FixtureRequest
) -> None:
    tokenizer = request.getfixturevalue(kind)
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.model_max_length = 10**9
    texts = [*sentences, "", " ", *standard_library_docstrings()[:4000]]
    run = "([data, texts]) => texts.map(tokenizerOf(data).tokenize).map(tokens => tokens.map(({id}) => id))"
    found = functions.evaluate(run, [in_page(tokenizer), texts])
    for text, ids in zip(texts, found, strict=True):
        assert ids == tokenizer(text)["input_ids"], text


@pytest.mark.browser
def test_every_character_of_the_browsers_unicode_has_the_ids_of_bert(functions: Any, bert: Any) -> None:
    run = """() => Array.from({length: 0x110000}, (_, code) => code).filter(
        code => code && (code < 0xd800 || code > 0xdfff) &&
            !/[\\p{Cn}\\p{Co}\\p{Script=Hangul}\\p{Script=Tangut}]/u.test(String.fromCodePoint(code)))"""
    codes = functions.evaluate(run)
    assert len(codes) > 130_000
    raw = bert.backend_tokenizer
    raw.no_truncation()
    raw.no_padding()
    run = "([data, texts]) => texts.map(tokenizerOf(data).tokenize).map(tokens => tokens.map(({id}) => id))"
    different = []
    for start in range(0, len(codes), 20_000):
        texts = [f"x{chr(code)}y" for code in codes[start : start + 20_000]]
        expected = [encoding.ids for encoding in raw.encode_batch(texts)]
        found = functions.evaluate(run, [in_page(bert), texts])
        different += [text for text, one, other in zip(texts, found, expected, strict=True) if one != other]
    assert different == []


def test_the_text_by_two_tokenizers_has_the_ids_of_bert(bert: Any, wordpiece: Any) -> None:
    two = data_of(wordpiece)["two"]
    ids = bert(two["text"])["input_ids"]
    assert two["tokens"]["BERT"] == [list(pair) for pair in zip(bert.convert_ids_to_tokens(ids), ids, strict=True)]
    letters = "".join(token for token, _ in two["tokens"]["GPT-2"]).replace("Ġ", " ")
    assert letters.startswith("the dog ran unsurprisingly ")  # what follows are the bytes of the emoji


@pytest.mark.browser
def test_merges_and_notes_of_a_word_are_those_of_gpt2_and_bert(functions: Any, bert: Any) -> None:
    """The merges in the page against the ids of GPT-2's tokenizer; notes against normalizer, vocabulary and UTF-8."""
    data = data_of(bert)
    run = """([tokens, text]) => {
        const {tokenize, notes} = gpt2Of(tokens);
        return [tokenize(text).map(({token, id}) => [token, id]), notes(text)];
    }"""
    found, notes = functions.evaluate(run, [data["gpt2"], "the dog ran"])
    assert (found, notes) == (data["two"]["tokens"]["GPT-2"][:3], [])
    steps = functions.evaluate("tokens => gpt2Of(tokens).steps('this').map(({tokens}) => tokens)", data["gpt2"])
    assert steps == [["t", "h", "i", "s"], ["t", "h", "is"], ["th", "is"], ["this"]]  # in the order of its merges
    assert functions.evaluate(run, [data["gpt2"], "狗"])[1] == ["“狗” is 3 bytes: E7 8B 97, written ç ĭ Ĺ."]
    words = ["The köpek", "🚲", "a" * 101, "bike"]
    notes = functions.evaluate("([data, words]) => words.map(tokenizerOf(data).notes)", [data["tokenizer"], words])
    assert notes == [
        ["Normalized: “The” becomes “the”.", "Normalized: “köpek” becomes “kopek”."],
        ["[UNK]: no token of the vocabulary begins “🚲”, so the whole word is unknown."],
        [f"[UNK]: “{'a' * 101}” has more than 100 letters."],
        [],
    ]


@pytest.mark.browser
def test_spans_are_the_text_of_each_token(functions: Any, wordpiece: Any) -> None:
    text = "Élodie rides, the cafe\u0301 🚲 [MASK] closed."
    run = "([data, text]) => tokenizerOf(data).tokenize(text).map(({begin, end}) => text.slice(begin, end))"
    parts = functions.evaluate(run, [in_page(wordpiece), text])
    assert "".join(parts) == text.replace(" ", "")
    assert {",", "🚲"} <= set(parts)


@pytest.mark.browser
@pytest.mark.parametrize("kind", ["bert", "wordpiece", "byte_bpe"])
def test_the_steps_of_a_word_end_in_its_tokens(kind: str, functions: Any, request: pytest.FixtureRequest) -> None:
    tokenizer = request.getfixturevalue(kind)
    run = "([data, words]) => words.map(tokenizerOf(data).steps)"
    words = ["unsurprisingly", "bike", "I", "Café", "GPT-2", "two words"]
    for word, steps in zip(words, functions.evaluate(run, [in_page(tokenizer), words]), strict=True):
        assert steps[-1]["tokens"] == tokenizer.tokenize(word)
        assert steps[-1]["rest"] == ""
        for before, after in itertools.pairwise(steps):
            if kind == "byte_bpe":  # two neighbors are joined
                assert "".join(before["tokens"]) + before["rest"] == "".join(after["tokens"]) + after["rest"]
                assert len(after["tokens"]) < len(before["tokens"]) or before["rest"] != after["rest"]
            else:  # one token is taken from the rest
                new = after["tokens"][after["last"]].removeprefix("##")
                assert before["rest"].replace(" ", "") == new + after["rest"].replace(" ", "")
    assert functions.evaluate("data => tokenizerOf(data).steps('')", in_page(tokenizer)) == []


@pytest.mark.browser
@pytest.mark.parametrize("convention", list(CONVENTIONS))
def test_sinusoids_are_those_of_python(convention: str, functions: Any) -> None:
    for width in (1, 2, 7, 32, 64):
        sines, cosines = CONVENTIONS[convention].columns(width)
        given = {
            "width": width,
            "frequencies": frequencies(width, convention=convention).tolist(),
            "sines": [sines.start, sines.step],
            "cosines": [cosines.start, cosines.step],
        }
        run = "given => Array.from({length: 500}, (_, p) => Array.from(encodingOf(p, given)))"
        found = torch.tensor(np.array(functions.evaluate(run, given)), dtype=torch.float64).float()
        assert torch.equal(found, sinusoidal_encoding(torch.arange(500), width, convention=convention))
    paper = np.array(functions.evaluate("Array.from(encodingOf(9, paperEncoding(32, 100)))"))
    expected = sinusoidal_encoding(torch.tensor(9), 32, base=100, dtype=torch.float64).numpy()
    np.testing.assert_allclose(paper, expected, rtol=0, atol=1e-14)


@pytest.mark.browser
def test_planes_are_those_of_numpy(functions: Any) -> None:
    vectors = np.random.default_rng(0).normal(size=(8, 5)) * [4, 3, 1, 1, 1]
    centered = vectors - vectors.mean(axis=0)
    plane = np.array(functions.evaluate("vectors => planeOf(centered(vectors))", vectors.tolist()))
    np.testing.assert_allclose(np.abs(plane @ np.linalg.svd(centered)[2][:2].T), np.eye(2), rtol=0, atol=1e-6)


@pytest.mark.browser
def test_the_slowest_hand_decides_if_a_base_tells_far_positions(functions: Any) -> None:
    bases, length = [10, 100, 1000, 10_000, 1_000_000], 512
    far = []
    for base in bases:
        rows = sinusoidal_encoding(torch.arange(513) * length / 512, 64, base=base, dtype=torch.float64)
        match = (rows[0] * sinusoidal_encoding(torch.tensor([1]), 64, base=base, dtype=torch.float64)).sum() / 32
        run = "base => [matchOf(1, paperEncoding(64, base)), farOf(512, paperEncoding(64, base))]"
        found = functions.evaluate(run, base)
        assert found[0] == pytest.approx(match.item(), abs=1e-12)
        rows, wanted = rows - rows.mean(0), torch.arange(513, dtype=torch.float64) / 512 - 0.5
        weights = torch.linalg.solve(rows.T @ rows + 0.001 * 513 * torch.eye(64), rows.T @ wanted)
        wrong = (wanted - rows @ weights).square().sum() + 0.001 * 513 * weights.square().sum()
        explained = 1 - wrong / wanted.square().sum()
        assert found[1] == pytest.approx(explained.item(), abs=1e-8)
        far.append([round(100 * (1 - found[0]), 1), round(found[1], 2)])
    assert far == [[11.0, 0.1], [6.0, 1.0], [4.2, 1.0], [3.4, 1.0], [2.5, 1.0]]


# ------------------------------------------------------------------------------------------------ a head that learns

NAMES = ["dog", "man", "cat", "girl", "fox", "king"]


@pytest.mark.browser
@pytest.mark.parametrize("kind", ["none", "added", "rotary", "writer"])
def test_losses_and_slopes_are_those_of_torch(kind: str, functions: Any) -> None:
    """Loss and gradients of one batch; the writer's rows are packed, padded, masked and have several labels."""
    run = """([names, kind]) => {
        const right = {lookAhead: true, paddingMask: true, packingMask: true, shift: 1}, isWriter = kind === "writer";
        const course = isWriter ? writerOf(names, right, 0) : courseOf(names, 3, 0);
        const head = course.heads[isWriter ? 0 : KINDS.indexOf(kind)], list = rows => rows.map(row => [...row]);
        const examples = isWriter ? course.batch() : course.task.batch(8), {followers, vectors} = head;
        for (const [word, line] of followers?.values.entries() ?? []) line.forEach((_, other) => {
            line[other] = Math.sin(word + 3 * other);
        });
        const [query, key] = [head.query, head.key].map(one => list(one.values)), loss = lossOf(head, examples);
        return {examples, loss, query, key, vectors: list(vectors), followers: list(followers?.values ?? []),
            dQuery: list(head.query.slopes), dKey: list(head.key.slopes), dFollowers: list(followers?.slopes ?? [])};
    }"""
    found = functions.evaluate(run, [NAMES, kind])
    names = ("query", "key", "vectors", "followers", "dQuery", "dKey", "dFollowers")
    query, key, vectors, followers, *slopes = (torch.tensor(found[name], dtype=torch.float64) for name in names)
    trained = [query, key, followers]
    for tensor in trained:
        tensor.requires_grad_()
    width = vectors.shape[1]

    def turned(x: torch.Tensor) -> torch.Tensor:
        angles = torch.arange(len(x), dtype=torch.float64)[:, None] * frequencies(width)
        even, odd = x[:, 0::2], x[:, 1::2]
        pairs = angles.cos() * even - angles.sin() * odd, angles.cos() * odd + angles.sin() * even
        return torch.stack(pairs, -1).flatten(1)

    losses = []
    for example in found["examples"]:
        words = torch.tensor(example["words"])
        x, labels = vectors[words], torch.tensor(example["labels"])
        positions = torch.tensor([place or 0 for place in example.get("positions", range(len(x)))])
        if kind in ("added", "writer"):
            x = x + sinusoidal_encoding(positions, width, dtype=torch.float64)
        q, k = x @ query.T, x @ key.T
        if kind == "rotary":
            q, k = turned(q), turned(k)
        scores = q @ k.T / width**0.5
        if kind == "writer":  # causal, and within a document
            documents = torch.tensor(example["documents"])
            may = (documents[:, None] == documents).tril()
            scores = scores.masked_fill(~may, -torch.inf)
            is_next = documents[1:] == documents[:-1]
            expected = torch.where(is_next & (documents[1:] >= 0), words[1:], -1)
            assert torch.equal(labels[:-1], expected)
        logits = scores.softmax(-1) @ x @ vectors.T / width**0.5 + (followers[words] if kind == "writer" else 0)
        losses.append(-logits.log_softmax(-1)[labels >= 0, labels[labels >= 0]])
    loss = torch.cat(losses).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    assert found["loss"] == pytest.approx(loss.item(), abs=1e-12)
    for tensor, slope in list(zip(trained, slopes, strict=True))[: 3 if kind == "writer" else 2]:
        torch.testing.assert_close(slope, tensor.grad, rtol=0, atol=1e-12)


@pytest.mark.browser
def test_a_broken_mask_shows_in_the_loss_or_when_the_head_writes(functions: Any) -> None:
    """Loss in training, right answers in a batch, and right answers alone: with each switch broken, for two seeds."""
    run = """([names, broken, seed]) => {
        const right = {lookAhead: true, paddingMask: true, packingMask: true, shift: 1};
        const course = writerOf(names, {...right, ...broken}, seed), losses = [], [head] = course.heads;
        while (head.steps < LEARN.steps) losses.push(course.step()[0]);
        const loss = losses.slice(-12).reduce((a, b) => a + b) / 12;
        return [loss, rightShare(head, course.tests), rightShare(head, course.alone)];
    }"""
    for seed in range(2):
        loss, written, alone = functions.evaluate(run, [NAMES, {}, seed])
        assert 1 < loss < 1.5
        assert min(written, alone) > 0.95
        cheats, at_chance, _ = functions.evaluate(run, [NAMES, {"lookAhead": False}, seed])
        assert cheats < 0.1
        assert at_chance < 0.6
        for mask, lost in (("paddingMask", 0.5), ("packingMask", 0.7)):  # only the batch is answered badly
            _, written, alone = functions.evaluate(run, [NAMES, {mask: False}, seed])
            assert written < lost
            assert alone > 0.8
        loss_0, written_0, _ = functions.evaluate(run, [NAMES, {"shift": 0}, seed])
        loss_2, written_2, _ = functions.evaluate(run, [NAMES, {"shift": 2}, seed])
        assert (written_0, written_2) == (0, 0)
        assert loss_0 < 0.01
        assert abs(loss_2 - loss) < 0.3  # no worse than the right one


@pytest.mark.browser
def test_heads_with_positions_answer_for_pairs_that_they_never_saw(functions: Any) -> None:
    run = """([names, most, seed]) => {
        const {task, heads, step} = courseOf(names, most, seed);
        const seen = task.batch(2000).map(({words}) => words.slice(-4).map(word => task.vocabulary[word]));
        const isHeld = seen.some(words => task.held.some(pair => pair.every(name => words.includes(name))));
        for (let number = 0; number < LEARN.steps; number++) step();
        const reach = head => Array.from({length: 9}, (_, before) => rightShare(head, task.tests(before)));
        return [isHeld, ...heads.map(reach)];
    }"""
    reach = []
    for seed in range(3):
        is_held, none, added, rotary = functions.evaluate(run, [NAMES, 3, seed])
        assert not is_held  # none of the pairs that are tested was in the training
        assert none == [0.5] * 9
        assert rotary == [1.0] * 9
        assert np.mean(added[:4]) > 0.95
        reach.append(added[5])
    assert max(reach) < 0.2  # with 5 words before, "hardly ever"
    added = functions.evaluate(run, [NAMES, 7, 0])[2]
    assert min(added[:8]) > 0.95


def test_word_vectors_are_those_of_the_model(bert_folder: Path) -> None:
    from safetensors import safe_open
    from transformers import AutoTokenizer

    data = json.loads((Path(str(hf_posenc.view.__file__)).parent / "words.json").read_text(encoding="utf-8"))
    with safe_open(bert_folder / "model.safetensors", framework="pt") as file:
        (name,) = [name for name in file.keys() if name.endswith("word_embeddings.weight")]  # noqa: SIM118
        table = file.get_tensor(name)
    ids = AutoTokenizer.from_pretrained(bert_folder).convert_tokens_to_ids(list(data["words"]))
    found = torch.tensor(list(data["words"].values())) * data["unit"]
    torch.testing.assert_close(found, table[ids], rtol=0, atol=data["unit"] * 0.51)


@pytest.mark.browser
def test_masks_are_those_of_the_package(functions: Any) -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        lengths, look_ahead, side = (
            random.integers(1, 9, 3),
            bool(random.integers(2)),
            ["left", "right"][random.integers(2)],
        )
        run = """([lengths, lookAhead, side]) => {
            const lists = lengths.map(length => Array(length).fill({token: "a", id: 1}));
            const rows = batchOf(lists, {side, positions: "text"}, {token: "p", id: 0});
            return rows.map(row => [row.real, row.positions,
                reasonsOf(row, {lookAhead, paddingMask: true}).map(line => line.map(isAttended))]);
        }"""
        for real, positions, mask in functions.evaluate(run, [lengths.tolist(), look_ahead, side]):
            keep = torch.tensor([real])
            dense = AttentionMask.from_batch({"attention_mask": keep.long()}, look_ahead=look_ahead).dense()[0, 0]
            assert torch.equal(torch.tensor(mask)[keep[0]], dense[keep[0]])
            assert [one for one in positions if one is not None] == list(range(sum(real)))


@pytest.mark.browser
@pytest.mark.parametrize("head", ["positions", "both", "random"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"divide": False, "side": "left"}, {"hide": "ones"}, {"hide": "billion"}, {"paddingMask": False}],
)
def test_attention_is_that_of_torch(head: str, settings: dict[str, Any], functions: Any) -> None:
    given = {"side": "right", "positions": "text", "head": head, "back": 2, "gain": 4, "divide": True}
    given |= {"hide": "infinity", "together": False, "paddingMask": True, "lookAhead": True, **settings}
    run = """given => {
        const lists = ["abcde", "xyz"].map(letters => Array.from(letters, token => ({token})));
        const encoding = paperEncoding(16, 10000), rows = batchOf(lists, given, {token: "pad"});
        const matrix = name => matrixOf(name, 16).map(line => Array.from(line));
        return rows.map(row => {
            const found = attend(row, given, encoding);
            const tokens = row.tokens.map(one => Array.from(embeddingOf(one, 16)));
            return {
                real: row.real, positions: row.positions.map(one => one ?? 0), tokens, weights: found.weights,
                outputs: found.outputs.map(one => Array.from(one)),
                alone: testsOf([row], given, encoding).alone.difference,
                query: matrix("query"), key: matrix("key"),
            };
        });
    }"""
    for row in functions.evaluate(run, given):
        positions, real = torch.tensor(row["positions"]), torch.tensor(row["real"])
        sinusoids = sinusoidal_encoding(positions, 16, dtype=torch.float64)
        x = torch.tensor(row["tokens"], dtype=torch.float64) + sinusoids
        if head == "random":
            scaled = x / x.square().mean(-1, keepdim=True).sqrt()
            q, k = (scaled @ torch.tensor(row[name], dtype=torch.float64).T for name in ("query", "key"))
        elif head == "positions":
            q, k = sinusoidal_encoding(positions - 2, 16, dtype=torch.float64), sinusoids
        else:
            angles = 2 * frequencies(16)
            q, k = x.clone(), x
            q[:, 0::2] = x[:, 0::2] * angles.cos() - x[:, 1::2] * angles.sin()
            q[:, 1::2] = x[:, 1::2] * angles.cos() + x[:, 0::2] * angles.sin()
        may = torch.ones(5, 5).tril().bool()
        if given["paddingMask"]:
            may = may & real & real[:, None]
        scores = 4 * q @ k.T / (4 if given["divide"] else 1)
        scores = scores + may if given["hide"] == "ones" else scores.masked_fill(~may, -torch.inf)
        shown = [[np.nan if cell is None else cell for cell in line] for line in row["weights"]]
        torch.testing.assert_close(
            torch.tensor(shown, dtype=torch.float64)[real], scores.softmax(-1)[real], rtol=0, atol=1e-9
        )
        outputs = torch.tensor(row["outputs"], dtype=torch.float64)
        torch.testing.assert_close(outputs[real], (scores.softmax(-1) @ x)[real], rtol=0, atol=1e-9)
        # With the padding on the right, a look-ahead mask hides it too.
        right = settings in ({}, {"hide": "billion"}, {"paddingMask": False})
        assert (row["alone"] < 1e-12) == right


@pytest.mark.browser
@pytest.mark.parametrize("positions", ["text", "none"])
@pytest.mark.parametrize("look_ahead", [False, True])
def test_order_matters_with_positions_or_a_look_ahead_mask(positions: str, look_ahead: bool, functions: Any) -> None:
    run = """given => {
        const lists = ["abcd", "xy"].map(letters => Array.from(letters, token => ({token})));
        const rows = batchOf(lists, given, {token: "pad"}), found = testsOf(rows, given, paperEncoding(16, 10000));
        return Object.fromEntries(Object.entries(found).map(([name, {difference}]) => [name, difference]));
    }"""
    given = {"side": "left", "positions": positions, "head": "random", "gain": 1, "divide": True, "hide": "infinity"}
    found = functions.evaluate(run, given | {"together": False, "paddingMask": True, "lookAhead": look_ahead})
    assert found["alone"] < 1e-12
    assert (found["later"] < 1e-12) == look_ahead
    assert (found["order"] < 1e-12) == (positions == "none" and not look_ahead)


# ------------------------------------------------------------------------------------------------------- the page


class Lab:
    """The open page."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def set(self, name: str, value: Any, scene: str = "sandbox") -> None:
        field = self.page.locator(f"#{scene} [name={name}]")
        field.scroll_into_view_if_needed()  # a figure in view is drawn at once, others a moment later
        if isinstance(value, bool):
            field.set_checked(value)
        elif field.evaluate("node => node.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(str(value))

    def token(self, row: int, token: int) -> Any:
        return self.page.locator(f"#sandbox [data-row='{row}'][data-token='{token}']")

    def tokens(self, row: int) -> list[str]:
        return list(self.page.locator(f"#sandbox [data-row='{row}'] span").all_inner_texts())

    def show(self, selector: str) -> Any:
        """Scroll to an element: figures are drawn when they come into view."""
        found = self.page.locator(selector)
        found.scroll_into_view_if_needed()
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return found

    def text(self, selector: str) -> str:
        return str(self.show(selector).inner_text())

    def results(self) -> list[str]:
        self.show("#cost")
        return list(self.page.locator("#cost li").all_inner_texts())


@pytest.fixture
def visit(chromium: Any, tmp_path: Path, wordpiece: Any) -> Iterator[Callable[..., Lab]]:
    """Function that opens the page; no message on the console and no request beyond the file may follow."""
    file = tmp_path / "lab.html"
    wrong: list[str] = []
    contexts = []

    def note(request: Any) -> None:
        if not request.url.startswith((file.as_uri(), "data:")):
            wrong.append(request.url)

    def open_page(address: str = "", tokenizer: Any = wordpiece, texts: Any = None, **options: Any) -> Lab:
        file.write_text(page_of(lab_html(tokenizer, texts), "The Input Lab"), encoding="utf-8")
        contexts.append(chromium.new_context(**{"viewport": {"width": 1400, "height": 900}, **options}))
        page = contexts[-1].new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", note)
        page.goto(file.as_uri() + address)
        return Lab(page)

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.mark.browser
class TestPage:
    def test_typed_texts_become_the_batch_of_the_collator(self, visit: Callable[..., Lab], wordpiece: Any) -> None:
        lab = visit()
        lab.set("lookAhead", False)
        lab.set("texts", "I ride bike\n\nbike ride I, she said")
        for side in ("right", "left"):
            lab.set("side", side)
            collate = DataCollatorWithPositionalEncoding(wordpiece, padding_side=side)
            expected = collate.tokens(collate(["I ride bike", "bike ride I, she said"]))
            assert [lab.tokens(0), lab.tokens(1)] == expected
        lab.set("texts", "")
        assert lab.text("#cost") == "Type a text."
        lab.set("texts", "a\n" * 9 + "word " * 60)
        assert lab.text("#sandbox .notes") == "The page shows the first 8 of 10 texts."
        lab.set("texts", "rides " * 200)
        assert lab.text("#sandbox .notes").startswith(
            "It reads the first 1000 of 1200 letters of a text. The page shows the first 32 of up to "
        )
        assert lab.show("#order .picture").locator(".ribbon").count() == 2 * 8  # of the first 8 tokens, in both orders

    def test_mistakes_cost_something_and_the_page_shows_it(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        same = "Padding and other texts change nothing: true (0)"
        assert lab.results()[0] == same
        lab.set("side", "left")
        assert lab.results()[0] == same
        for name, wrong, right, words in (
            ("divide", False, True, "no ÷ √d"),
            ("hide", "ones", "infinity", "0 and 1 added in place of −∞ and 0"),
            ("paddingMask", False, True, "no padding mask"),
            ("positions", "padding", "text", "positions that count the padding"),
            ("packed", "together", "", "packed documents without a mask between them"),
        ):
            lab.set(name, wrong)
            assert lab.results()[0].startswith("Padding and other texts change nothing: false (")
            assert lab.results()[0].endswith(f": {words})")
            assert lab.page.locator("#cost .wrong").count() == 1
            lab.set(name, right)
            assert lab.results()[0] == same
        lab.set("hide", "billion")
        lab.set("packed", "apart")
        assert lab.results()[0] == same

    def test_the_address_restores_the_state(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        for name, value in {
            "texts": "I ride & bike\nno",
            "side": "left",
            "back": 3,
            "divide": False,
            "d": "16",
        }.items():
            lab.set(name, value)
        lab.token(1, 2).click()
        lab.page.mouse.move(0, 0)  # no cell is previewed
        again = visit(lab.page.evaluate("location.hash"))
        for selector in ("#cost", "#sandbox .sentence", "#sandbox .one", "#sandbox .dials", "#clock .picture"):
            assert again.text(selector) == lab.text(selector)
        assert again.page.locator("#sandbox [name=texts]").input_value() == "I ride & bike\nno"
        first = visit().text("#sandbox")
        assert visit("#s=%7B%22d%22").text("#sandbox") == first  # cut off
        wrong = {"d": 7, "row": -1, "head": 9, "key": 1.5, "side": "up", "place": 100, "constructor": 1, "first": 99}
        assert visit(f"#s={json.dumps(wrong)}").text("#sandbox") == first

    def test_long_texts_stay_out_of_the_address(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        lab.set("texts", "ride " * 400)
        assert "The address of the page leaves out the texts" in lab.text("#sandbox .notes")
        assert len(lab.page.evaluate("location.hash")) < 200
        lab.set("d", "16")
        lab.page.evaluate("location.hash = '#masks'")
        lab.page.go_back()
        assert lab.page.locator("#sandbox [name=texts]").input_value() == "ride " * 400
        assert lab.page.locator("#sandbox [name=d]").input_value() == "16"

    def test_typed_texts_reach_every_scene_and_stay(self, visit: Callable[..., Lab], wordpiece: Any) -> None:
        lab = visit()
        lab.set("texts", "she rides\nbike", scene="ids")
        for scene in ("ids", "order", "adding", "masks", "sandbox"):
            lab.show(f"#{scene}").get_by_text(wordpiece.tokenize("rides")[-1]).first.wait_for()
        lab.page.locator("[name=reset]").click()
        lab.page.goto(lab.page.url.split("#")[0] + "#masks")
        assert lab.page.locator("#sandbox [name=texts]").input_value() == "she rides\nbike"

    def test_a_link_goes_to_its_scene(self, visit: Callable[..., Lab]) -> None:
        for scene in SCENES:
            lab = visit(f"#{scene}")
            top = lab.page.locator(f"#{scene}").evaluate("node => node.getBoundingClientRect().top")
            assert 0 <= top < 450, scene  # the last one cannot reach the top of a high window

    def test_order_is_lost_without_positions(self, visit: Callable[..., Lab], wordpiece: Any) -> None:
        lab = visit(texts=["I ride bike", "no"])
        words = lab.show("#order .picture").locator("text.word, text.asks").all_text_contents()
        pieces = [wordpiece.tokenize(word) for word in ("I", "ride", "bike")]
        assert words == [token for word in [*pieces, *pieces[::-1]] for token in word]
        assert lab.text("#order .says").endswith("The outputs are equal.")
        lab.set("addPositions", True, scene="order")
        lab.page.get_by_text("The outputs differ by up to ").wait_for()
        shares = lab.page.locator("#order .picture text.small").all_text_contents()
        shares = [share for share in shares if share.endswith("%")]
        for above_or_below in (shares[: len(words) // 2], shares[len(words) // 2 :]):
            assert 97 <= sum(int(share.split()[0]) for share in above_or_below) <= 103
        lab.set("texts", "狗bike", scene="ids")  # one word, whose tokens take another order
        words = lab.show("#order .picture").locator("text.word, text.asks").all_text_contents()
        assert words[: len(words) // 2] != words[len(words) // 2 :]
        lab.set("texts", "no no", scene="ids")  # positions differ, sequences do not
        assert "Both orders are the same" in lab.text("#order .says")
        assert lab.show("#tests .picture").locator("tr").last.locator("td").all_inner_texts() == [
            "not tested",
            "true",
            "each text is the same in reverse",
        ]
        lab.set("texts", "no bike no", scene="ids")
        assert "no (1) " in lab.text("#order .says")
        lab.set("texts", "no " * 9, scene="ids")
        assert "the first 8 of 9 tokens of the text" in lab.text("#order .strips")

    def test_a_head_is_trained_and_answers_for_the_readers_names(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        lab.set("names", "ann bob cid", scene="train")
        assert lab.text("#train .says") == "Type 4 to 10 different names."
        lab.set("names", " ".join(f"name{number}" for number in range(12)), scene="train")
        assert lab.text("#train .says").endswith("The first 10 of 12 names take part.")
        lab.set("word", "unsurprising" * 6, scene="ids")
        assert "(the first 60 of 72 letters), step by step" in lab.text("#ids div.strips")
        lab.set("names", "ann bob cid dora, Eve who?", scene="train")
        lab.page.locator("#train .train").click()
        lab.page.get_by_text("Trained in ").wait_for(timeout=60_000)
        assert "Right: 50 % without positions" in lab.text("#train .says")
        chosen = lab.page.locator("#train :is([name=first], [name=second]) option:checked")
        first, second = chosen.all_inner_texts()
        assert (first, second) == ("ann", "bob")
        without, added = lab.page.locator("#train .panel").all_inner_texts()
        assert f"{first} bites {second} who? → {first} ✓" in added
        assert f"swapped: {second} bites {first} who? → {second} ✓" in added
        assert without.count("✓") == 1  # one of two sentences with the same output
        lab.page.locator("#train .swap").click()
        assert f"\n{second} bites {first} who? → {second} ✓" in lab.page.locator("#train .panel").last.inner_text()
        lab.set("before", 6, scene="beyond")
        added, rotary = lab.show("#beyond .strips").locator(".panel").all_inner_texts()
        assert (added.count("✗"), rotary.count("✓")) == (2, 2)
        assert "rotary: 100 % of the answers are right" in lab.text("#beyond .says")

    def test_a_writer_is_trained_and_read_by_other_scenes(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        assert lab.page.locator("#masks [name=trained]").is_disabled()
        lab.set("maskLater", False, scene="price")
        lab.page.locator("#price .train").click()
        lab.page.locator("#price .says").get_by_text("Trained in ").wait_for(timeout=60_000)
        name, loss, right, alone, *_ = (
            lab.page.locator("#price .plain").last.locator("tr").nth(2).inner_text().split("\t")
        )
        assert (name, loss[:3]) == ("no look-ahead mask", "0.0")
        assert max(int(share.split()[0]) for share in (right, alone)) < 60
        assert f"right when it writes on its own {right}" in lab.text("#price .says")
        assert f"these switches {right}" in lab.page.locator("#price svg").last.get_attribute("aria-label")
        built = lab.text("#masks .one")
        own = lab.page.locator("#ids [name=texts]").input_value()
        for _ in range(2):  # the sentences come once, before the reader's texts
            lab.page.locator(".sentences").click()
            first, second, *texts = lab.page.locator("#ids [name=texts]").input_value().split("\n")
            assert ([first, second], texts) == (
                ["dog bites man who dog.", "now fox sees girl whom girl."],
                own.split("\n"),
            )
            assert lab.page.locator("#masks").evaluate("node => node.getBoundingClientRect().top < 450")
        assert lab.text("#masks .one") != built
        assert "The head that you trained in scene 10" in lab.text("#masks .one-view")
        assert not lab.page.locator("#masks [name=lookAhead]").is_checked()
        assert "The head that you trained in scene 10" in lab.text("#sandbox .one-view")

    def test_the_clock_and_its_chords_are_those_of_the_encoding(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        assert "Chord to position 7: 0.91, for every p" in lab.text("#clock .says")
        lab.set("place", 20, scene="clock")
        assert "Chord to position 23: 0.91, for every p" in lab.text("#clock .says")
        dial = lab.show("#clock .large").bounding_box()
        x, y = dial["x"] + dial["width"] / 2, dial["y"] + dial["height"] / 2
        lab.page.mouse.move(x + 70, y)
        lab.page.mouse.down()
        lab.page.mouse.move(x, y - 70, steps=9)  # a quarter of a turn, of 19.9 positions
        lab.page.mouse.up()
        assert lab.page.locator("#clock [name=place]").input_value() == "25"
        assert "Chord to position 28: 0.91" in lab.text("#clock .says")
        lab.set("d", "4", scene="clock")
        sine, cosine = sinusoidal_encoding(torch.tensor(25), 4).tolist()[2:]
        rows = sinusoidal_encoding(torch.tensor([25, 28]), 4, dtype=torch.float64)
        words = lab.text("#clock .says")
        assert f"sine {sine:.2f}, cosine {cosine:.2f}." in words
        assert words.endswith(f"= {torch.dist(*rows):.2f}.")
        assert lab.page.locator("#clock figure").count() == 2

    def test_the_ruler_counts_hands(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        for power, base in ((40, 10_000), (10, 10)):
            lab.set("power", power, scene="base")
            turns = 2 * np.pi / frequencies(64, base=base).numpy()
            counts = [(turns <= 512).sum(), ((turns > 512) & (turns <= 36 * 512)).sum(), (turns > 36 * 512).sum()]
            words = "{} of 32 hands come round within the text, {} turn in part, {} hardly move".format(*counts)
            assert words in lab.text("#base .says")
            assert counts == ([16, 12, 4] if base == 10_000 else [32, 0, 0])
        lab.set("length", "128", scene="base")
        assert "and still far is 0.75: not coming round is enough, not needed." in lab.text("#base .says")
        assert lab.page.locator("#base .plain tr").nth(1).inner_text().endswith("0.75")

    def test_an_answer_comes_after_a_guess_or_without_one(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        questions, answers = lab.page.locator(".predict"), lab.page.locator(".answer")
        assert questions.count() == answers.count() > 4
        for number in range(questions.count()):
            assert not answers.nth(number).is_visible()
            guesses = questions.nth(number).locator("button:not(.show)")
            assert 2 <= guesses.count() <= 3
            questions.nth(number).get_by_text("Show the answer").click()
            assert answers.nth(number).is_visible()
            assert not questions.nth(number).get_attribute("data-guess")  # neither right nor wrong
            guesses.nth(int(questions.nth(number).get_attribute("data-right"))).click()
            assert questions.nth(number).get_attribute("data-guess") == "right"

    def test_queen_and_woman_come_together_if_tokens_are_small(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        for factor, woman, king in ((10, "0.82", "0.73"), (196, "0.33", "0.63")):
            lab.set("factor", factor, scene="adding")
            assert f"{factor / 10} · token" in lab.text("#adding table.strips")
            lines = [line.split("\t") for line in lab.text("#adding table.plain").splitlines()]
            assert len(lines) == 1 + 6  # all pairs of four words
            assert lines[1] == ["queen, woman", "3", "0.19", "0.82", woman, "0.33"]
            assert lines[2] == ["queen, king", "6", "0.63", "0.73", king, "0.63"]

    def test_a_query_that_is_padding_is_pale_and_has_weights(self, visit: Callable[..., Lab], byte_bpe: Any) -> None:
        for tokenizer in (None, byte_bpe):
            lab = visit(**({"tokenizer": tokenizer} if tokenizer else {}))
            assert "NaN" not in lab.text("#masks .figure")
            real = lab.page.locator("#masks [data-row='0']:not(.pad)").count()
            length = lab.page.locator("#masks [data-row='0']").count()
            assert lab.page.locator("#masks .all .unused").count() == real * (length - real) > 0

    @pytest.mark.parametrize("side", ["right", "left"])
    @pytest.mark.parametrize("packed", ["", "apart"])
    def test_labels_of_the_next_token_are_those_of_the_collator(
        self, packed: str, side: str, visit: Callable[..., Lab], wordpiece: Any
    ) -> None:
        texts = ["I ride bike, she said", "bike"]
        lab = visit(texts=texts)
        for name, value in (("side", side), ("packed", packed), ("labels", "next")):
            lab.set(name, value)
        settings = {"packing": True, "max_length": 32} if packed else {"padding_side": side}
        batch = DataCollatorWithPositionalEncoding(wordpiece, labels="causal_lm", look_ahead=False, **settings)(texts)
        tokens = wordpiece.convert_ids_to_tokens
        for row, labels in enumerate(batch["labels"]):
            expected = ["−100" if label == -100 else tokens(label.item()) for label in labels]
            found = lab.page.locator(f"#sandbox [data-row='{row}'] small:last-child").all_inner_texts()
            assert found == expected
        assert "which can read it without a look-ahead mask" in lab.text("#sandbox .sentence")
        leaks = lab.show("#masks .all").locator("td.leak")
        assert all(
            int(query) < int(key)
            for query, key in leaks.evaluate_all("all => all.map(({dataset: {query, key}}) => [query, key])")
        )
        assert leaks.count() > 9
        lab.set("lookAhead", True)
        assert lab.show("#masks .all").locator("td.leak").count() == 0
        assert "without a look-ahead mask" not in lab.text("#sandbox .sentence")

    def test_masked_tokens_have_the_original_ones_as_labels(self, visit: Callable[..., Lab], wordpiece: Any) -> None:
        lab = visit(texts=["I ride bike, she said", "bike"])
        before = lab.tokens(0)
        lab.set("labels", "masked")
        after = lab.tokens(0)
        labels = lab.page.locator("#sandbox [data-row='0'] small:last-child").all_inner_texts()
        assert "[MASK]" in after
        for old, new, label in zip(before, after, labels, strict=True):
            assert (new, label) in {(old, "−100"), ("[MASK]", old)}

    def test_without_position_ids_nothing_speaks_of_positions(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        lab.set("positions", "none")
        lab.set("lookAhead", False)
        assert lab.results()[2] == "Order matters: false (0)"
        assert "no position" in lab.text("#sandbox .sentence")
        assert "at position" not in lab.text("#sandbox .sentence")
        assert lab.text(".dials-view .note") == "Without position ids there are no hands."

    def test_another_tokenizer_is_shown_with_texts_that_cannot_be_changed(
        self, visit: Callable[..., Lab], unigram: Any
    ) -> None:
        texts = ["I ride 🚲 bike", "no"]
        lab = visit(tokenizer=unigram, texts=texts)
        collate = DataCollatorWithPositionalEncoding(unigram)
        assert [lab.tokens(0), lab.tokens(1)] == collate.tokens(collate(texts))
        assert lab.page.locator("#ids [name=texts], #sandbox [name=texts], [name=word]").evaluate_all(
            "fields => fields.map(field => field.disabled)"
        ) == [True, True, True]
        assert "tokenized beforehand" in lab.text("#sandbox .notes")

    def test_the_text_of_the_chosen_token_is_marked(self, visit: Callable[..., Lab]) -> None:
        lab = visit(texts=["I ride bike"])
        lab.token(0, 1).click()
        assert lab.text("#sandbox .text") == "Text 0: I ride bike"
        assert lab.text("#sandbox mark") == "I"

    @pytest.mark.parametrize("width", [360, 768, 1400])
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_it_fits_every_window_in_light_and_dark(self, width: int, scheme: str, visit: Callable[..., Lab]) -> None:
        lab = visit("#base", viewport={"width": width, "height": 800}, color_scheme=scheme)
        assert lab.page.evaluate("document.documentElement.scrollWidth") <= width
        assert lab.page.locator("[data-theme]").get_attribute("data-theme") == scheme
        lab.set("packed", "together")
        lab.set("labels", "next")
        for scene in SCENES:
            lab.show(f"#{scene}")
        small, faint = lab.page.evaluate(READABLE)
        assert small == []
        assert faint == []

    def test_controls_are_large_and_few_stops_come_before_the_first_figure(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        for sizes in lab.page.locator("input, select, button").evaluate_all(
            "all => all.map(one => [one.offsetWidth, one.offsetHeight])"
        ):
            assert min(sizes) >= 24
        stops = 0
        lab.page.locator(".contents a").last.focus()
        while not lab.page.evaluate("document.activeElement.shadowRoot?.activeElement?.closest('.picture, #order')"):
            lab.page.keyboard.press("Tab")
            stops += 1
            assert stops <= 5
        assert lab.page.locator("main").count() == 1
        lab.page.locator(".contents a").last.click()
        assert lab.page.locator("#sandbox").evaluate("node => node.getBoundingClientRect().top < 450")

    def test_without_a_script_the_texts_and_answers_stand(self, visit: Callable[..., Lab]) -> None:
        lab = visit(java_script_enabled=False)
        for words in ("The figures need JavaScript.", "cannot tell who bites whom", "No, but a roomy one."):
            assert words in lab.page.locator("main").inner_text()

    def test_a_copied_link_goes_to_its_scene_with_its_settings(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        lab.set("power", 20, scene="base")
        lab.page.locator("#base .link").click()
        link = lab.page.evaluate("location.hash")
        assert link.startswith("#base&s=")
        again = visit(link)
        assert again.page.locator("#base").evaluate("node => Math.abs(node.getBoundingClientRect().top) < 20")
        assert "Base 100: " in again.text("#base .says")

    def test_paper_shows_answers_and_colors(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        lab.page.emulate_media(media="print")
        for shown in (*lab.page.locator(".answer, .python pre").all(), lab.page.locator("#ids textarea")):
            assert shown.is_visible()
        assert not lab.page.locator("button:visible, nav:visible").count()
        for colored in (".strip", "#masks i.padding", "#masks .all td.yes"):
            style = "node => getComputedStyle(node).printColorAdjust"
            assert lab.page.locator(colored).first.evaluate(style) == "exact"

    def test_strips_and_dials_speak_and_lists_are_lists(self, visit: Callable[..., Lab]) -> None:
        lab = visit()
        names = lab.page.locator("svg, canvas, .strip").evaluate_all("all => all.map(one => one.ariaLabel)")
        names += lab.page.locator("table").evaluate_all("all => all.map(one => one.ariaLabel)")
        assert len(names) > 50
        assert all(names)
        assert lab.page.locator("td[aria-label], h2 button").count() == 0  # names are the visible text
        assert lab.page.locator("li").count() == lab.page.locator(":is(ul, ol) > li").count() > 5

    def test_nothing_moves_where_motion_is_not_wanted(self, visit: Callable[..., Lab]) -> None:
        lab = visit(reduced_motion="reduce")
        lab.set("addPositions", True, scene="order")
        assert "The outputs differ by up to " in lab.text("#order .says")  # at once, not after 400 ms
        lab.set("d", "16", scene="clock")
        lab.page.locator("#ids label.chip").nth(2).click()
        assert lab.page.evaluate("document.getAnimations().length") == 0

    def test_on_a_phone_the_part_that_a_text_speaks_of_is_on_the_screen(self, visit: Callable[..., Lab]) -> None:
        """Each paragraph against the next part of its figure: both, or 150 pixels of the part, fit into 844 pixels."""
        lab = visit(viewport={"width": 390, "height": 844})
        for scene in SCENES:
            lab.show(f"#{scene}")
        run = """() => {
            const root = document.querySelector("[id^=hf-posenc]").shadowRoot;
            const box = node => node.getBoundingClientRect(), all = (node, names) => [...node.querySelectorAll(names)];
            const span = (text, part) => Math.max(text.bottom, Math.min(part.bottom, part.top + 150)) -
                Math.min(text.top, Math.max(part.top, part.bottom - 150));
            const spans = all(root, ".scene").flatMap(scene => {
                const parts = all(scene, ".picture:not(:has(.views)), .strips, .views > section").map(box);
                return all(scene, ".words > :not(.note, .answer)").map(text => [text.textContent,
                    Math.min(...parts.filter(({height}) => height).map(part => span(box(text), part)))]);
            });
            const isSticky = node => getComputedStyle(node).position === "sticky";
            return [spans, all(root, "*").filter(isSticky).map(node => node.tagName)];
        }"""
        spans, sticky = lab.page.evaluate(run)
        assert len(spans) > 40
        assert [span for span in spans if span[1] > 844] == []
        assert set(sticky) == {"TH"}  # first cells of tables

    def test_python_of_each_figure_runs_and_has_its_number(self, visit: Callable[..., Lab], wordpiece: Any) -> None:
        lab = visit()
        for packed, labels, side in (("", "", "left"), ("apart", "next", "right"), ("", "masked", "right")):
            for name, value in (("packed", packed), ("labels", labels), ("side", side), ("offset", 5), ("shift", "2")):
                scene = {"offset": "clock", "shift": "price"}.get(name, "sandbox")
                lab.set(name, value, scene=scene)
            numbers = {}
            for scene in SCENES:
                lines = lab.show(f"#{scene}").locator(".python pre").text_content().splitlines()
                assert len(lines) <= 3
                names = {"torch": torch, "tokenizer": wordpiece}
                exec("\n".join(lines), names)
                numbers[scene] = eval(lines[-1].rpartition("; ")[2], names)
            assert f"= {numbers['clock']:.2f}." in lab.text("#clock .says")
            turn, rounds = numbers["base"]
            assert f"{float(f'{turn:.2g}'):,.0f} positions" in lab.text("#base .says")
            assert f"{rounds} of 32 hands come round" in lab.text("#base .says")
            assert numbers["adding"][0] == pytest.approx(13.86, abs=0.01)
            assert max(numbers[scene] for scene in ("order", "train", "tests")) < 1e-6
            assert numbers["beyond"][0] == pytest.approx(numbers["beyond"][1].item(), abs=1e-6)
            assert min(numbers["masks"].shape[0], 32) == len(lab.tokens(0))  # of which the page shows 32
        lab.show("#order").locator("[name=addPositions]").check()
        lines = lab.show("#order").locator(".python pre").text_content().splitlines()
        exec("\n".join(lines), names := {"torch": torch})
        assert eval(lines[-1], names) > 0
        assert lines[-1].endswith("# above 0: the order counts")

    def test_tokens_of_other_scripts_keep_numbers_in_order_and_colors_stay(self, visit: Callable[..., Lab]) -> None:
        lab = visit(texts=["שלום 12 עולם 34", "no"], forced_colors="active")
        lab.token(0, 1).click()
        assert lab.show("#sandbox .sentence").locator("bdi").count() == 3
        for scene in ("ids", "order", "adding", "masks"):
            assert lab.show(f"#{scene}").locator("bdi").count() > 5
        image = "node => getComputedStyle(node).backgroundImage"
        assert "gradient" in lab.show("#ids .strip >> nth=0").evaluate(image)
        small, faint = lab.page.evaluate(READABLE)
        assert (small, faint) == ([], [])


# Texts smaller than 12 pixels, and texts with a contrast to their background, or to its stripes, below 4.5 : 1.
READABLE = """() => {
    const root = document.querySelector("[id^=hf-posenc]").shadowRoot, small = [], faint = [];
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
    const paint = (colors) => {
        canvas.clearRect(0, 0, 1, 1);
        for (const color of colors) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); }
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const light = (rgb) => {
        const [r, g, b] = rgb.map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const walker = document.createTreeWalker(root.querySelector(".lab"), NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode, parent = node.parentElement;
        if (!node.textContent.trim() || !parent.checkVisibility() || parent.closest("style, option")) continue;
        const style = getComputedStyle(parent), layers = [];
        if (parseFloat(style.fontSize) < 12 && !parent.closest("sup")) small.push([node.textContent, style.fontSize]);
        for (let one = parent; one !== null; one = one.parentElement) layers.unshift(getComputedStyle(one));
        const plain = layers.map(one => one.backgroundColor);
        const striped = layers.flatMap(({backgroundImage}, depth) =>
            [...backgroundImage.matchAll(/(?:rgba?|color)\\([^)]*\\)/g)].map(
                ([color]) => plain.toSpliced(depth + 1, 0, color)));
        for (const back of [plain, ...striped]) {
            const [one, other] = [paint([...back, style.color]), paint(back)].map(light).sort((a, b) => b - a);
            const ratio = (one + 0.05) / (other + 0.05);
            if (ratio < 4.5) faint.push([node.textContent.slice(0, 30), parent.className, ratio]);
        }
    }
    return [small, faint];
}"""
