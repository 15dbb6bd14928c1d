"""`encode` writes a data set of texts as Parquet shards of token ids, and `verify` compares them with their checksums.

A first run and a continued run take the same steps: open the inputs, compare the output with the settings, write the
missing shards, then write the report.
"""

from __future__ import annotations

import copy
import glob
import hashlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from importlib.metadata import version
from inspect import signature
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any, Literal

from .._common.compat import bytes_of_table
from .._common.errors import bad_data_error, require_one_of, shorten, type_error, value_error, warn
from .._common.files import is_path, no_such_file
from .._common.integers import as_integer
from ..collator import DataCollatorWithPositionalEncoding
from ..collator.settings import Settings, refuse_unknown
from ..tokenization import to_files
from ..tokenization.loading import SharedTokenizer, private_copy
from ..tokenization.rust import dropout
from .engines import run_in_processes, run_on_ray
from .output import JOB, MANIFEST, SHARD, TOKENIZER, Output, Report
from .reading import Reading, RemoteFiles, Slices, open_inputs, reached
from .shards import Job

if TYPE_CHECKING:
    from datasets import Dataset

# By default a shard has 1/64 of the input, within these bounds, so that all workers finish at about the same time.
_MIN_BYTES, _MAX_BYTES, _SHARDS = 4 << 20, 64 << 20, 64
_LIBRARIES = ("hf-posenc", "tokenizers", "transformers", "datasets", "pyarrow", "numpy")
_OF_BATCHES = ("embedding", "look_ahead", "mlm_probability", "return_tensors", "seed", "store_embeddings")
_OF_PADDING = ("padding", "padding_side", "pad_to_multiple_of")
_NOT_RECORDED = ("backend", "on_empty", *_OF_BATCHES, *_OF_PADDING)
# Keywords of `Dataset.map` and `load_dataset`, and what to write here.
_EQUIVALENTS = {
    "num_proc": "workers=...",
    "remove_columns": "columns=[...], those to keep",
    **dict.fromkeys(("batch_size", "streaming"), "leave it out: files are read in parts that fit into memory"),
}


def encode(
    inputs: Any,
    tokenizer: Any,
    output: str | Path,
    *,
    columns: Sequence[str] = (),
    format: str | None = None,
    config: str | None = None,
    split: str | None = None,
    sample_by: Literal["line", "paragraph", "document"] | None = None,
    on_bad_row: Literal["error", "skip"] = "error",
    shards: int | None = None,
    workers: int | None = None,
    engine: Literal["processes", "ray"] = "processes",
    address: str | None = None,
    part: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    loading: Mapping[str, Any] | None = None,
    progress: bool = True,
    **settings: Any,
) -> Report:
    r"""Tokenize a data set of any size into Parquet shards, and continue where an interrupted run ended.

    `datasets` reads the inputs. The shards have the columns that `collate.columns` returns, as int32: `input_ids`, not
    padded, and `length`; `token_type_ids` of pairs, `labels`, or with `packing` also `position_ids` and `document_ids`.
    `load_dataset(output)` reads them, and `DataCollatorWithPositionalEncoding` makes batches of their rows. A shard
    appears whole or not at all. The same inputs and settings give the same bytes, for any number of workers and
    interruptions.

    Args:
        inputs: a data set, or what `datasets.load_dataset` and `load_from_disk` read: files, folders, patterns, names
            on the Hub; or a list of these. `datasets` keeps them as Arrow files in its cache. Files at addresses
            (`s3://`, `hf://`, `https://`) are read by the tasks instead, and each is one shard.
        tokenizer: a tokenizer, its name or folder, or a `DataCollatorWithPositionalEncoding`.
        output (`str` or `Path`): a folder, or an address that `fsspec` can write to; new, or of an earlier run of the
            same job.
        columns (sequence of `str`, *optional*): columns of the input to copy. By default none.
        format (`str`, *optional*): builder of `datasets`, such as `"json"`; by default given by the suffixes of files.
        config, split (`str`, *optional*): as in `load_dataset`: the configuration, and a split such as `"train"`,
            `"train[:10%]+test"` or `"all"`.
        sample_by (`"line"`, `"paragraph"` or `"document"`, *optional*): the documents of a text file, as in
            `load_dataset`. `"document"` is the whole file.
        on_bad_row (`"error"` or `"skip"`, *optional*): raise for a row without text or tokens, or leave it out and list
            it in the report. Blank lines of text files are left out and counted.
        shards (`int`, *optional*): number of shards; by default they have 4 to 64 MiB of the input.
        workers (`int`, *optional*): number of processes, by default one for each core; 0 works in this process. With
            Ray, the number of tasks at a time.
        engine (`"processes"` or `"ray"`, *optional*): processes of this machine, or tasks of Ray.
        address (`str`, *optional*): address of a Ray cluster, such as `"auto"`; by default Ray starts on this machine.
        part (`str`, *optional*): `"k/n"` writes only each n-th shard, beginning with the k-th, for n machines that
            share an output.
        storage_options (mapping, *optional*): options of `fsspec` for addresses, such as keys. They are stored nowhere.
        loading (mapping, *optional*): further arguments of `load_dataset`, such as `{"encoding_errors": "replace"}`.
        progress (`bool`, *optional*, defaults to `True`): show a progress bar; without a terminal, a line each minute.
        **settings: settings of the collator, such as `text_column="content"`, `max_length=512`, `packing=True` or
            `labels="causal_lm"`. They change those of a given collator.

    Returns:
        `Report`: `totals` (rows, documents, tokens, ...), `bad_rows`, `shards`, and `finished`.

    Raises:
        ValueError: for wrong settings, for a bad row, for a file that cannot be read, and for an output that holds
            another job, with what differs.
        TypeError: if a column does not hold texts, for a stream, and for an unknown keyword.
        FileNotFoundError: if an input is not found, or the output is a file.
        ChildProcessError: if a worker dies; the same call continues.
        OSError: if the output is in use by another run, or the disk is full.

    Example:
        >>> import datasets, tempfile
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> raw = Tokenizer(models.WordLevel({"<unk>": 0, "I": 1, "ride": 2, "bike": 3}, unk_token="<unk>"))
        >>> raw.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> texts = datasets.Dataset.from_dict({"text": ["I ride bike", "bike"]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     report = encode(texts, raw, folder, workers=0, progress=False)
        >>> report.totals["documents"], report.totals["tokens"]
        (2, 4)
    """
    require_one_of("on_bad_row", on_bad_row, ("error", "skip"))
    require_one_of("engine", engine, ("processes", "ray"))
    if address is not None and engine != "ray":
        raise value_error("address is that of a Ray cluster", got=f"engine={engine!r}", fix='engine="ray"')
    if workers is not None:
        workers = as_integer(workers, "workers", minimum=0 if engine == "processes" else 1, example=2)
    elif engine == "processes":  # one for each core that this process may use
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    own, of_collator = signature(encode).parameters, signature(DataCollatorWithPositionalEncoding).parameters
    refuse_unknown(settings, [*[*own][:-1], *[*of_collator][1:]], _EQUIVALENTS)
    collate = _collator(tokenizer, settings)
    texts = collate._text_columns
    if isinstance(columns, str):
        raise type_error("columns must be a list of names", got=repr(columns), fix=f"columns=[{columns!r}]")
    if len({*texts, *columns}) < len(texts) + len(columns) or (columns and collate.packing):
        kept = [] if collate.packing else [name for name in dict.fromkeys(columns) if name not in texts]
        rule = "a column is copied once, no column of texts is copied, and none is copied to packed rows"
        fix = f"columns={kept}" + ", and a column for each text" * (len({*texts}) < len(texts))
        fix += ", or packing=False" * bool(columns and collate.packing)
        raise value_error(rule, got=f"columns={list(columns)}", fix=fix)
    options, arguments = dict(storage_options or {}), dict(loading or {})
    arguments |= {} if sample_by is None else {"sample_by": sample_by}
    reading = Reading(
        texts, columns, collate._config.settings._reads_formats, format, config, split, workers, options, arguments
    )
    opened, lines = open_inputs(inputs, reading)
    source, described = _divided(opened, lines, shards)
    versions = {name: version(name) for name in _LIBRARIES}
    recorded = {**_recorded(collate, tokenizer), **described, "columns": ", ".join(columns), "shards": len(source)}
    recorded |= {f"load_dataset {name}": repr(value) for name, value in arguments.items()}
    recorded |= {f"version of {name}": number for name, number in versions.items()}
    job = Job(Output.of(output, options), collate, columns, on_bad_row, versions=versions)
    run: Any = run_in_processes if engine == "processes" else partial(run_on_ray, address=address)
    with reached(str(job.output)), job.output.locked("" if part is None else f"-{part}"):
        return _written(job, source, recorded, part, partial(run, workers=workers), progress=progress)


def _written(
    job: Job, source: Slices | RemoteFiles, recorded: dict[str, Any], part: str | None, run: Any, *, progress: bool
) -> Report:
    """Write missing shards with one of the engines, and if none is left the report; return the report."""
    output = job.output
    job = replace(job, digest=output.begin(recorded))
    checksums = output.checksums()
    found = output.records(job.digest)
    records = {number: record for number, record in found.items() if job.on_bad_row == "skip" or not record["bad"]}
    k, n = _share_of(part)
    own = [number for number in range(len(source)) if number % n == k]
    missing = [number for number in own if number not in records]
    with _bar(sum(map(source.size, own)), isinstance(source, RemoteFiles), progress) as bar:
        bar.update(sum(source.size(number) for number in own if number in records))
        tokens = 0
        for record in run(job, source, missing):
            records[record["shard"]] = record
            tokens += record["tokens"]
            bar.set_postfix_str(f"{tokens / (bar.format_dict['elapsed'] or 1):,.0f} tokens/s", refresh=False)
            bar.update(source.size(record["shard"]))
    if part is not None:
        records = output.records(job.digest) | records  # with those of other parts
    report = Report(str(output), recorded, [records[number] for number in sorted(records)], len(records) == len(source))
    if report.finished:
        if not report.totals["rows"]:
            rule = "all rows were left out, and `datasets` opens no data set without rows"
            raise bad_data_error(rule, got=shorten(report.bad_rows[:1]), fix="check the inputs and text_column=")
        for record in records.values():
            if "sha256" not in record:  # of an earlier run
                # That of the manifest, if there is one: the file may have been damaged since.
                record["sha256"] = checksums.get(record["file"]) or output.sha256(record["file"])
        output.remove_unfinished()
        for name, content in to_files(job.collate.tokenizer).items():
            output.write(f"{TOKENIZER}/{name}", content)
        report.save(output)
    if missing and report.totals["cut"] and job.collate._config.settings.max_length is None:
        warn(f"{report.totals['cut']:,} documents were truncated to {job.collate.max_length} tokens")
    return report


def verify(output: str | Path, storage_options: Mapping[str, Any] | None = None) -> list[str]:
    r"""Compare the shards of a finished job with the checksums in its `manifest.json`, and open each of them.

    Returns:
        `list` of `str`: a line for each missing, damaged or unknown shard. Delete a damaged shard, and run `encode`
        again.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if the output has no manifest, because the job is not finished.

    Example:
        >>> verify("no-such-folder")
        Traceback (most recent call last):
        FileNotFoundError: there is no file or folder no-such-folder
          got: ...
    """
    place = Output.of(output, storage_options or {})
    if place.folder is not None and not place.folder.exists():
        raise FileNotFoundError(no_such_file(str(output)))
    with reached(str(place)):
        manifest = place.read_json(MANIFEST)
    if manifest is None:
        there, count = place.shards(), (place.read_json(JOB) or {}).get("shards", 0)
        missing = {number for number in range(count) if SHARD.format(number) not in there}
        done = {*range(count)} - missing
        got = f"{len(missing)} of {count} shards are missing"
        # The fewest parts of which each is complete or not begun.
        n = next((n for n in range(2, 65) if {k % n for k in missing}.isdisjoint(k % n for k in done)), 0)
        parts = [f'with part="{k + 1}/{n}", ' for k in sorted({k % n for k in missing})] if n and done else []
        ways = "and ".join(parts) + "or " if 0 < len(parts) < 9 else ""
        fix = f"the same encode {ways}without part=, which writes all of them"
        raise value_error(f"{output} has no {MANIFEST}: it is not the output of a finished job", got=got, fix=fix)
    from datasets import load_dataset

    shards, bad, features = set(place.shards()), [], None
    for record in manifest["shards"]:
        if record["file"] not in shards:
            bad.append(f"{record['file']} is missing; run the same encode again")
            continue
        address = glob.escape(f"{place.address}/{record['file']}")
        settings = {"split": "train", "streaming": True, "storage_options": copy.deepcopy(dict(place.options))}
        reason = "" if place.sha256(record["file"]) == record["sha256"] else "its checksum differs"
        try:
            if not reason:
                rows = load_dataset("parquet", data_files=address, features=features, **settings)
                next(iter(rows), None)
                features = rows.features  # the others must have the same
        except Exception as error:
            reason = f"`datasets` cannot open it, {shorten(str(error))}"
        if reason:
            bad.append(f"{record['file']} is damaged: {reason}; delete it, and run the same encode again")
    known = {record["file"] for record in manifest["shards"]}
    return bad + [f"{name} is not in {MANIFEST}" for name in sorted(shards - known)]


def _collator(tokenizer: Any, settings: dict[str, Any]) -> DataCollatorWithPositionalEncoding:
    """Return the collator of a job; raise for settings that have no effect on stored rows, or change with each run."""
    for name in (*_OF_BATCHES, *_OF_PADDING):
        if name in settings:
            fix = f"DataCollatorWithPositionalEncoding(tokenizer, {name}=...), which makes batches of the shards"
            raise value_error(f"{name} has no effect on stored rows", got=f"{name}={shorten(settings[name])}", fix=fix)
    if "on_empty" in settings:
        raise value_error("on_bad_row is the treatment of empty texts", got="on_empty=", fix='on_bad_row="skip"')
    collate: DataCollatorWithPositionalEncoding
    is_collator = isinstance(tokenizer, DataCollatorWithPositionalEncoding)
    packing = settings.pop("packing", tokenizer.packing if is_collator else False)
    labels = settings.get("labels", tokenizer.labels if is_collator else None)
    if labels not in (None, "causal_lm"):
        rule = "only causal_lm labels are stored: masked labels are drawn for each batch"
        raise value_error(rule, got=f"labels={labels!r}", fix="labels=None here; the collator of batches makes them")
    made = {**settings, "on_empty": "keep", "packing": False, "padding": False}
    if is_collator:
        collate = tokenizer.replace(store_embeddings=False, padding_side=None, pad_to_multiple_of=None, **made)
    else:
        if isinstance(tokenizer, str | Path):  # the folder may be that of a collator, whose settings are not the job's
            tokenizer = SharedTokenizer(private_copy(tokenizer, pad_token=made.get("pad_token")))
        collate = DataCollatorWithPositionalEncoding(tokenizer, **made)
    if packing:  # in a second step: only a loaded tokenizer shows if it has a padding token
        own = collate.tokenizer  # packed rows are not padded, so any token may stand for padding
        spare = {} if own.pad_token is not None else {"pad_token": own.eos_token or own.convert_ids_to_tokens(0)}
        collate = collate.replace(packing=packing, padding=True, **spare)
    if settings.get("on_no_labels") is not None and collate.label_name is None:
        rule = "on_no_labels is the treatment of rows without labels, and encode stores none"
        raise value_error(rule, got=f"on_no_labels={collate.on_no_labels!r}, labels=None", fix='labels="causal_lm"')
    if collate.packing == "flat":
        raise value_error("stored rows have a length", got='packing="flat"', fix="packing=True, max_length=2048")
    if collate.tokenizer.is_fast and (share := dropout(collate.tokenizer)):
        rule = "each run of a job makes the same shards, and this tokenizer draws tokens at random"
        raise value_error(rule, got=f"dropout={share}", fix="tokenizer.backend_tokenizer.model.dropout = None")
    return collate


def _recorded(collate: DataCollatorWithPositionalEncoding, tokenizer: Any) -> dict[str, Any]:
    """Return what `job.json` has of a collator: the settings that differ from their defaults, and the tokenizer."""
    own, digest = collate.tokenizer, hashlib.sha256(type(collate.tokenizer).__name__.encode())
    for name, content in sorted(to_files(own).items()):
        digest.update(f"\0{name}\0{len(content)}\0".encode() + content)
    given = str(tokenizer if isinstance(tokenizer, str | os.PathLike) else own.name_or_path)
    is_local = is_path(given) or Path(given).exists()
    defaults = {option.name: option.default for option in fields(Settings)}
    settings = {name: value for name, value in collate.settings().items() if name not in _NOT_RECORDED}
    settings["max_length"] = collate.max_length
    settings["max_target_length"] = None if collate.text_target_column is None else collate.max_target_length
    settings["model"] = None if collate.model is None else repr(collate.model)
    settings["first position"] = collate.first_position or None
    return {
        "tokenizer": PureWindowsPath(given).name if is_local else given,  # the folders of a path are private
        "sha256 of the tokenizer": digest.hexdigest(),
        **{name: value for name, value in settings.items() if value != defaults.get(name)},
    }


def _divided(
    opened: Dataset | RemoteFiles, lines: Sequence[range], shards: int | None
) -> tuple[Slices | RemoteFiles, dict[str, Any]]:
    """Return the parts of the input, one for each shard, and its description for `job.json`."""
    if isinstance(opened, RemoteFiles):
        if shards is not None:
            raise value_error("each file at an address is one shard", got=f"shards={shards}", fix="leave shards= out")
        shown = {re.sub(r"(?<=//)[^/@]*@|[?].*", "", name): size for name, size in opened.sizes.items()}
        format = {} if opened.reading.format is None else {"format": opened.reading.format}
        return opened, {f"bytes of {name}": size for name, size in shown.items()} | format  # without keys, passwords
    if shards is None:
        size = bytes_of_table(opened.data)
        shards = max(1, -(-size // min(max(size // _SHARDS, _MIN_BYTES), _MAX_BYTES)))
    shards = as_integer(shards, "shards", minimum=1, example=64)
    described = {"rows of the input": len(opened), "fingerprint of the input": opened._fingerprint}
    return Slices(opened, min(shards, len(opened)), lines), described


def _share_of(part: str | None) -> tuple[int, int]:
    """Return the index of a part, counted from 0, and the number of parts."""
    match = re.fullmatch(r"(\d+)/(\d+)", "1/1" if part is None else str(part))
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise value_error("part must be k/n, with k from 1 to n", got=repr(part), fix='part="3/8"')
    return int(match[1]) - 1, int(match[2])


def _bar(total: int, counts_files: bool, progress: bool) -> Any:
    """Return a progress bar of rows or files; without a terminal it prints a line each minute."""
    from tqdm.auto import tqdm

    unit = {"unit": " files"} if counts_files else {"unit": " rows", "unit_scale": True}
    has_screen = sys.stderr.isatty() or "ipykernel" in sys.modules
    lines = {} if has_screen else {"bar_format": "{l_bar}{bar}{r_bar}\n", "mininterval": 60, "ascii": True}
    return tqdm(total=total, disable=not progress, desc="encode", **unit, **lines)
