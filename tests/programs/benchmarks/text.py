"""Texts to padded tensors: first pass and later passes of a process over texts that it has not seen.

Every contender runs in a forked process of its own, which loads the tokenizer, and then encodes four slices of the
texts. The first is the first pass. The caches of the libraries are filled then, but each later slice is new, too.
"""

from __future__ import annotations

import copy
import gc
import hashlib
import importlib
import json
import multiprocessing
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from hf_posenc import DataCollatorWithPositionalEncoding, train_bpe
from hf_posenc.testing import standard_library_docstrings

from .measuring import Case, bert, cpu_milliseconds, docstrings, each

LIMIT, BATCH, PASS, PASSES = 512, 64, 64, 4  # tokens a row, rows a batch, batches a pass, passes of a process
IDS = 16_000  # of the tokenizers that are trained here
PACKAGES = ("torch", "transformers", "datasets", "numpy")
Encode = Callable[[list[str]], Any]


def documents() -> tuple[list[str], list[str]]:
    """Return texts to train tokenizers on, and texts to encode: docstrings of Python, and of installed packages."""
    seen = docstrings()
    packages = Path(sysconfig.get_path("purelib"))
    new = sorted(set().union(*(standard_library_docstrings(packages / name) for name in PACKAGES)) - set(seen))
    np.random.default_rng(0).shuffle(new)
    return seen, new[: PASSES * PASS * BATCH]


def sentencepiece_bpe(texts: list[str], size: int = IDS) -> Any:
    """Return a BPE of `tokenizers` as SentencePiece makes them for Llama, with bytes for unknown characters."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    rust = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    rust.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    rust.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")  # only training looks at words
    rust.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False))
    rust.pre_tokenizer = None
    rust.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    rust.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s>:1 $B:1", [("<s>", 1)])
    content = json.loads(rust.to_str())
    content["added_tokens"] = content["added_tokens"][:3]  # bytes are no special tokens
    return Tokenizer.from_str(json.dumps(content))


def llama(texts: list[str]) -> Any:
    """Return such a BPE as a tokenizer of transformers."""
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=sentencepiece_bpe(texts), model_max_length=LIMIT, **names)


def contenders(tokenizer: Any, library: str) -> dict[str, Callable[[], Encode]]:
    """Return functions that load each contender, and return what encodes a batch of texts."""
    settings = {"padding": True, "truncation": True, "return_tensors": "pt"}

    def bare() -> Encode:
        rust = copy.deepcopy(tokenizer.backend_tokenizer)
        rust.no_padding()
        rust.enable_truncation(LIMIT)
        return rust.encode_batch_fast

    def alone() -> Encode:
        if library == "nanotoken":
            from nanotoken import Tokenizer as Nanotoken

            return Nanotoken(tokenizer).encode_batch
        from gigatoken import Tokenizer as Gigatoken

        encode = Gigatoken(tokenizer).encode
        return lambda texts: [encode(text) for text in texts]

    def wrapped() -> Encode:
        wrapper = importlib.import_module(library).Tokenizer(tokenizer).as_hf()
        return lambda texts: wrapper(texts, max_length=LIMIT, **settings)

    return {
        "`tokenizer(...)`": lambda: lambda texts: tokenizer(texts, **settings),
        "hf_posenc": lambda: DataCollatorWithPositionalEncoding(tokenizer, backend="auto"),
        'hf_posenc, `backend="tokenizers"`': lambda: DataCollatorWithPositionalEncoding(
            tokenizer, backend="tokenizers"
        ),
        "bare `encode_batch_fast`": bare,
        f"{library} alone": alone,
        f"`{library}.Tokenizer.as_hf()`": wrapped,
    }


def digests(out: Any, special: list[int]) -> tuple[str, str]:
    """Return digests of a padded batch (empty for other outputs), and of the ids of all rows.

    Of a row, special tokens and ids after the first 400 are left out, because bare libraries do not truncate.
    """
    padded = ""
    if isinstance(out, Mapping):
        ids, keep = (np.asarray(out[name]).astype(np.int64) for name in ("input_ids", "attention_mask"))
        padded = hashlib.sha256(ids.tobytes() + keep.tobytes()).hexdigest()
        out = [row[mask.astype(bool)] for row, mask in zip(ids, keep, strict=True)]
    rows = hashlib.sha256()
    for one in out:
        row = np.asarray(getattr(one, "ids", one)).astype(np.int64)
        rows.update(row[~np.isin(row, special)][:400].tobytes() + b"|")
    return padded, rows.hexdigest()


def in_child(run: Callable[[], Any]) -> Any:
    """Return the result of `run`, called in a forked process; raise EOFError after an error there, which it prints."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    child = fork.Process(target=lambda: sender.send(run()))
    child.start()
    sender.close()
    result = receiver.recv()
    child.join()
    return result


def passes(name: str, tokenizer: Any, library: str, texts: list[str], rounds: int) -> Iterator[Case]:
    """Compare all contenders on one tokenizer, after their outputs."""
    batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
    slices = [batches[start : start + PASS] for start in range(0, len(batches), PASS)]
    loaders = contenders(tokenizer, library)

    def checked(load: Callable[[], Encode]) -> Any:
        encode = load()
        return [digests(encode(batch), tokenizer.all_special_ids) for batch in batches]

    def timed(load: Callable[[], Encode]) -> list[float]:
        encode = load()
        encode(["a"])  # libraries import modules in the first call
        return [cpu_milliseconds(each(encode, some)) for some in slices]

    outputs = {one: in_child(lambda load=load: checked(load)) for one, load in loaders.items()}
    expected = next(iter(outputs.values()))
    for one, output in outputs.items():
        pairs = zip(output, expected, strict=True)
        different = sum(
            rows != right_rows or padded not in ("", right) for (padded, rows), (right, right_rows) in pairs
        )
        if different and library not in one:
            raise SystemExit(f"{name}: {one} differs from tokenizer(...) in {different} of {len(expected)} batches")
        if different:  # a peer that is wrong for a few texts is shown with their number
            loaders[f"{one}, other ids in {different} of {len(expected)} batches"] = loaders.pop(one)
    values: dict[str, list[list[float]]] = {one: [] for one in loaders}
    for _ in range(rounds):
        for one, load in loaders.items():
            values[one].append(in_child(lambda load=load: timed(load)))
    yield Case(f"{name}, first pass", {one: [found[0] for found in some] for one, some in values.items()})
    later = {one: [value for found in some for value in found[1:]] for one, some in values.items()}
    yield Case(f"{name}, later passes", later)


def run(rounds: int) -> Iterator[Case]:
    """Compare three kinds of tokenizers."""
    if not (find_spec("nanotoken") and find_spec("gigatoken")):
        raise SystemExit('pip install ".[fast]"')
    seen, new = documents()
    byte_bpe = train_bpe(seen, IDS, model_max_length=LIMIT)
    gc.collect()
    gc.freeze()  # forked processes then share the pages of all objects
    yield from passes("BERT", bert(), "nanotoken", new, rounds)
    yield from passes("byte-level BPE", byte_bpe, "gigatoken", new, rounds)
    yield from passes("SentencePiece-BPE", llama(seen), "gigatoken", new, rounds)
    gc.unfreeze()
