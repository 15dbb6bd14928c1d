"""The page of `hf-posenc explore` and of the documentation: ten scenes and a sandbox about a model's inputs.

WordPiece and byte-level BPE run in the page's script; texts of other tokenizers are tokenized beforehand.
"""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import metadata
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from .._common.errors import value_error
from ..tokenization.rust import to_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TEXTS = ("dog bites man", "The cat sat, and the dog ran.", "Unhappily, no.")
# One text as BERT's and GPT-2's own tokenizers split it, and how their tokens differ.
_TWO = {
    "text": "the dog ran unsurprisingly 🚲",
    "tokens": {
        "BERT": [
            *(("[CLS]", 101), ("the", 1996), ("dog", 3899), ("ran", 2743), ("un", 4895), ("##sur", 26210)),
            *(("##pr", 18098), ("##ising", 9355), ("##ly", 2135), ("[UNK]", 100), ("[SEP]", 102)),
        ],
        "GPT-2": [
            *(("the", 1169), ("Ġdog", 3290), ("Ġran", 4966), ("Ġunsurprisingly", 49619)),
            *(("ĠðŁ", 12520), ("ļ", 248), ("²", 110)),
        ],
    },
    "marks": [
        ("begins a text", "[CLS]; a classifier reads its output", "nothing"),
        ("ends a text", "[SEP], also between two texts", "<|endoftext|>, between documents"),
        ("begins a word", "no mark", "Ġ, the space before it"),
        ("continues a word", "##", "no mark"),
        ("padding", "[PAD]", "none of its own; often <|endoftext|>"),
        ("unknown character", "[UNK]", "none: it becomes bytes"),
    ],
}
_MOST_TOKENS = 64_000  # of a vocabulary in the page: about 1 MB
_SOURCES = (
    *("lab.css", "scenes.css"),
    *("tokens.js", "positions.js", "attention.js", "learning.js", "views.js", "scenes.js", "clocks.js", "training.js"),
    "batch.js",
    "page.js",
)
_BYTES = 256  # first letters of a byte-level BPE
_RUNS = (
    f"it runs BERT's WordPiece and GPT-2's byte-level BPE, of up to {_MOST_TOKENS:,} tokens without rules of their own"
)


def lab_html(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str] | None = None) -> str:
    r"""Return the Input Lab as HTML: typed texts become a batch, which one attention head reads.

    The result is a fragment, to be placed in a page; `page_of` makes a page of it. It makes no request. WordPiece
    tokenizers as BERT's and byte-level BPEs as GPT-2's, of up to 64,000 tokens without rules of their own such as
    `lstrip`, run in the page. For any other tokenizer the page shows `texts`, and no others can be typed.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): the tokenizer.
        texts (sequence of `str`, *optional*): the first texts. By default three short ones.

    Returns:
        `str`, a fragment of HTML.

    Raises:
        ValueError: without `texts`, for a tokenizer that does not run in the page; if `texts` is empty.

    Example:
        >>> from hf_posenc import train_bpe
        >>> fragment = lab_html(train_bpe(["low lower"], 300))
        >>> fragment.startswith("<div"), "Why 10000" in fragment
        (True, True)
    """
    in_page = _in_page(tokenizer)
    if in_page is None and texts is None:
        raise value_error(
            f"the page cannot run this tokenizer: {_RUNS}",
            got=f"{type(tokenizer).__name__}, and no texts",
            fix="texts=[...] (--text FILE): the page shows them, tokenized beforehand",
        )
    every = list(TEXTS if texts is None else texts)
    chosen = every[:8]
    if not chosen:
        raise value_error("texts must be a list of at least one text", got=repr(texts), fix=repr([TEXTS[0]]))
    padding = tokenizer.pad_token or tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    vectors = json.loads(source("words.json"))
    data = {
        "tokenizer": in_page,
        "texts": chosen,
        "count": len(every),
        "lists": None if in_page else [_tokens(tokenizer, text) for text in chosen],
        "why": in_page is None and f"The texts were tokenized beforehand and cannot be changed here: {_RUNS}.",
        "words": {
            word: [round(number * vectors["unit"], 4) for number in row] for word, row in vectors["words"].items()
        },
        "two": _TWO,
        "gpt2": in_page and in_page["kind"] == "wordpiece" and json.loads(source("gpt2.json"))["tokens"],
        "padding": {"token": padding, "id": tokenizer.convert_tokens_to_ids(padding)},
        "mask": tokenizer.mask_token and {"token": tokenizer.mask_token, "id": tokenizer.mask_token_id},
    }
    return with_script("showLab", data, _SOURCES, source("lab.html").replace("<!-- about -->", _about()))


def _about() -> str:
    """Return the authors, version, license and address of the package as HTML, and a BibTeX entry."""
    package = metadata("hf-posenc")
    version, license, address = package["Version"], package["License-Expression"], package["Project-URL"].split(", ")[1]
    fields = {"author": "{The hf_posenc developers}", "title": "hf_posenc: The Input Lab"}
    fields |= {"version": version, "url": address, "license": license}
    entry = ",\n".join(["@software{hf_posenc", *(f"  {name} = {{{value}}}" for name, value in fields.items())])
    return (
        f"<p>The Input Lab of hf_posenc {version}, by the hf_posenc developers, {license}: "
        f'<a href="{address}" target="_blank" rel="noreferrer">{address}</a>. '
        "Word vectors: all-MiniLM-L6-v2 (Apache-2.0). Merges: GPT-2 (MIT).</p>"
        f"<details><summary>BibTeX</summary><pre>{entry}\n}}</pre></details>"
    )


def with_script(show: str, data: dict[str, Any], sources: Sequence[str], fallback: str) -> str:
    r"""Return an element that shows `fallback`, and a script that calls `show(element, data, style)`.

    Names of the scripts are not visible to the page. The same element may occur several times in a page.
    """
    style, script = ("\n".join(source(name) for name in sources if name.endswith(end)) for end in (".css", ".js"))
    values = [json.dumps(value, separators=(",", ":"), ensure_ascii=False) for value in (data, style)]
    content = ", ".join(value.replace("<", "\\u003c") for value in values)
    name = "hf-posenc-" + hashlib.blake2b(content.encode("utf-8", "replace"), digest_size=6).hexdigest()
    return (
        f'<div id="{name}">{fallback}</div>\n<script>(() => {{{script}\n'
        f"for (const host of document.querySelectorAll('[id=\"{name}\"]')) "
        f"if (!host.shadowRoot) {show}(host, {content});}})()</script>"
    )


def page_of(fragment: str, title: str) -> str:
    """Return a complete HTML document: `title` as its heading, and below it `fragment`, the HTML to show.

    Its colors are light or dark, as the browser prefers.
    """
    style = (
        "body{margin:0 auto;max-width:1400px;padding:12px;background:Canvas;color:CanvasText}"
        "h1{font:600 1.3rem system-ui,sans-serif;overflow-wrap:anywhere;margin:0 0 4px}"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{html.escape(title)}</title>'
        f'<link rel="icon" href="data:,"><style>{style}</style>'
        f"</head><body><main><h1>{html.escape(title)}</h1>{fragment}</main></body></html>\n"
    )


@lru_cache(maxsize=8)
def source(name: str) -> str:
    """Return the text of a file of this room."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _tokens(tokenizer: PreTrainedTokenizerBase, text: str) -> list[dict[str, Any]]:
    """Return the tokens of a text in the form of `tokenizerOf` in tokens.js."""
    ids, special = list(tokenizer(text, truncation=True)["input_ids"]), set(tokenizer.all_special_ids)
    return [  # without spans, which mark the chosen token in the text
        {"token": str(token), "id": id, "begin": 0, "end": 0, "special": id in special}
        for token, id in zip(tokenizer.convert_ids_to_tokens(ids), ids, strict=True)
    ]


def _in_page(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any] | None:
    """Return the tokenizer for tokens.js, or `None` if that cannot run it."""
    ids = tokenizer.get_vocab()
    if not tokenizer.is_fast or not len(set(ids.values())) == len(ids) <= _MOST_TOKENS:
        return None
    parts = json.loads(to_json(tokenizer))
    model, normalizer, splitter = parts["model"], parts["normalizer"] or {}, parts["pre_tokenizer"] or {}
    vocabulary: list[str | None] = [None] * (max(ids.values()) + 1)
    for token, number in ids.items():
        vocabulary[number] = token
    rules = ("single_word", "lstrip", "rstrip", "normalized")
    has_rules = any(entry[rule] for entry in parts["added_tokens"] for rule in rules)
    alone = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a")["input_ids"]
    begin = next((at for at in range(len(whole)) if whole[at : at + len(alone)] == alone), None)
    if has_rules or begin is None or not alone:
        return None
    common = {
        "vocabulary": vocabulary,
        "added": [entry["content"] for entry in parts["added_tokens"]],
        "before": tokenizer.convert_ids_to_tokens(whole[:begin]),
        "after": tokenizer.convert_ids_to_tokens(whole[begin + len(alone) :]),
    }
    if (model["type"], normalizer.get("type"), splitter.get("type")) == (
        "WordPiece",
        "BertNormalizer",
        "BertPreTokenizer",
    ):
        strip, lower = normalizer["strip_accents"], normalizer["lowercase"]
        return {
            **common,
            "kind": "wordpiece",
            "unknown": model["unk_token"],
            "prefix": model["continuing_subword_prefix"],
            "longest": model["max_input_chars_per_word"],
            "lower": lower,
            "strip": lower if strip is None else strip,
            "clean": normalizer["clean_text"],
            "chinese": normalizer["handle_chinese_chars"],
        }
    letters = sum(len(token) == 1 for token in model["vocab"])
    plain = not any(
        model.get(name)
        for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges")
    )
    is_byte_level = splitter.get("type") == "ByteLevel" and splitter["use_regex"] and not normalizer
    if model["type"] == "BPE" and is_byte_level and plain and letters >= _BYTES:
        pairs = [pair.split(" ", 1) if isinstance(pair, str) else pair for pair in model["merges"]]
        merges = [(ids[left], ids[right], ids[left + right]) for left, right in pairs]
        return {**common, "kind": "bpe", "merges": merges, "prefixSpace": splitter["add_prefix_space"]}
    return None
