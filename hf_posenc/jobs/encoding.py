"""`encode`: tokenize a corpus into Parquet shards.

A first run and a continued run take the same steps: open the inputs, compare the output folder with the options, write
the missing shards, then write the data card and the totals.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path, PureWindowsPath
from typing import Any

from .._common.errors import value_error
from ..tokenization import Encoder
from ..tokenization.serialized import SerializedTokenizer
from .card import write_card
from .folder import CARD, data_files, output_folder, shard_name, write_tokenizer
from .manifest import Manifest, job_libraries
from .on_ray import run_on_ray
from .options import Job, Options, Progress, resolve, with_options
from .processes import Records, run_in_processes
from .rejected import find_rejected, join_rejected
from .shard_columns import schema_of
from .shard_writer import ShardWriter
from .sources import Sources, open_sources
from .task import Cursor, Task

# Bytes of input from which on a document may be so long that a message warns of its memory.
_SMALL = 1 << 20
# By default a shard holds 1/64 of the input, within these bounds, so that all workers finish at about the same time.
_MIN_SHARD_BYTES, _MAX_SHARD_BYTES, _SHARDS = 4 << 20, 64 << 20, 64


def encode(
    inputs: Any, tokenizer: Any, output: str | Path, *, progress: Progress | None = None, **options: Any
) -> Manifest:
    r"""Tokenize a corpus of any size into Parquet shards, and continue where an interrupted run ended.

    The shards hold `input_ids` (int32, not padded), `length` (the number of tokens), and the columns that the options
    select. `load_dataset("parquet", ...)` reads them, and `DataCollatorWithPositionalEncoding` makes batches of their
    rows. Each shard is written atomically; `manifest.json` lists its checksum. The same inputs and options give the
    same bytes, for any number of workers and interruptions. Another run of a finished job checks all shards and
    replaces damaged ones.

    The options are keyword arguments, one for each field of `Options`, such as `max_length=512`.

    Args:
        inputs (`str`, `Path`, a data set of `datasets`, or a list of these): files, folders (also of `save_to_disk`),
            glob patterns, URLs, names of data sets on the Hub. Files hold text, JSON lines, CSV, Parquet or Arrow; the
            first three may be compressed. Inputs are streamed, and must not change during the run.
        tokenizer (`str`, `Path`, a tokenizer, or `DataCollatorWithPositionalEncoding`): name on the Hub, folder, or
            object. The settings of a collator are used for options that are not given.
        output (`str` or `Path`): a local folder: a new one, or the output of an earlier run of the same job.
        progress (`Progress`, *optional*): callbacks that report progress; by default messages become warnings.
        **options:

    Returns:
        `Manifest`: the settings and results of the job, such as `.totals` (rows, documents, tokens, ...), `.shards` and
        `.folder`.

    Raises:
        TypeError: for an option that does not exist.
        ValueError: for a wrong option; for a bad row (such as a document that is not UTF-8, or has no tokens), unless
            `on_bad_row` allows it; if the folder holds the output of another job (the message lists the differences);
            if the input changed while it was read.
        OSError: if an input file does not exist; if the folder is in use by another run or cannot be written to; if the
            disk is full.

    Example:
        >>> import tempfile
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> raw = Tokenizer(models.WordLevel({"<unk>": 0, "I": 1, "ride": 2, "bike": 3}, unk_token="<unk>"))
        >>> raw.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "corpus.txt").write_text("I ride bike\nbike\n")
        ...     manifest = encode(Path(folder, "corpus.txt"), raw, Path(folder, "encoded"), workers=0)
        ...     print(manifest.totals["documents"], manifest.totals["tokens"])
        2 4
    """
    if re.match(r"[A-Za-z][\w+.-]+:/", str(output)):  # one slash, as in Path("s3://bucket")
        raise value_error(
            "the output must be a local folder: object stores cannot rename a file in one step",
            got=output,
            fix=f'output="encoded", and then a copy of it to {output}',
        )
    progress = progress or Progress()
    resolved, own_tokenizer, first_position, notes = resolve(options, tokenizer)
    encoder = Encoder(own_tokenizer, backend=resolved.backend)  # raises if the tokenizer does not have that backend
    progress.backend("transformers" if encoder.backend is None else encoder.backend.name)
    sources = open_sources(inputs, resolved)
    if encoder.reason_not_cut is not None and (sources.size is None or sources.size > _SMALL):
        notes.append(
            f"long documents cannot be tokenized in pieces, because of the tokenizer: {encoder.reason_not_cut}; "
            "a document that is tokenized whole needs 50 to 200 times its size in memory"
        )
    folder = Path(output).expanduser().absolute()  # workers may have another working directory
    job = Job(
        **vars(resolved),
        folder=folder,
        tokenizer=SerializedTokenizer.of(own_tokenizer),
        carried=sources.columns.carried,
        first_position=first_position,
    )
    _check_names(job)
    with output_folder(folder):
        name = str(tokenizer if isinstance(tokenizer, str | os.PathLike) else own_tokenizer.name_or_path)
        is_local = _is_local(name)
        public_name = PureWindowsPath(name).name if is_local else name  # the folders of a local path are private
        manifest, job = _manifest(job, sources, public_name, type(own_tokenizer).__name__)
        bad = manifest.check(progress.checked)
        rejected = find_rejected(folder, manifest.shards)
        done = {
            shard: Cursor(*record["ends"])
            for shard, record in sorted(manifest.shards.items())
            if shard not in {**bad, **rejected.bad} and record["on_bad_row"] in (None, job.on_bad_row)
        }
        for note in (*notes, *sources.notes):
            progress.message(note)
        if not (manifest.finished and len(done) == len(manifest.shards)):
            manifest.check_same_libraries(job_libraries(job))
            _write_missing(job, sources, manifest, done, progress)
        join_rejected(folder, manifest.shards)
        _check_other_files(manifest)
        if not manifest.finished or not (folder / CARD).exists():
            if is_local:  # the code in the card loads it
                write_tokenizer(folder, own_tokenizer)
            if not write_card(manifest, own_tokenizer):
                progress.message("README.md was changed by hand, and is not replaced")
            manifest.finish()
            if cut := manifest.totals["cut"]:
                documents = manifest.totals["documents"]
                progress.message(f"{cut:,} of {documents:,} documents were truncated to {job.max_length} tokens")
        return manifest


def _is_local(name: str) -> bool:
    r"""Return True if the name of a tokenizer is a local path or empty, and False for a name on the Hub.

    Example:
        >>> _is_local("google-bert/bert-base-uncased"), _is_local("/home/me/bert"), _is_local("")
        (False, True, True)
    """
    return re.match(r"[./~\\]|[A-Za-z]:", name) is not None or Path(name).exists()


def _manifest(job: Job, sources: Sources, name: str, kind: str) -> tuple[Manifest, Job]:
    """Return the manifest of the output folder, and a copy of `job` with `shard_bytes` and `settings` filled in."""
    earlier = Manifest.read(job.folder)
    if earlier is not None and not earlier.started:
        earlier = None
    shard_bytes = job.shard_bytes
    if shard_bytes is None:
        size = _SHARDS * _MAX_SHARD_BYTES if sources.size is None else sources.size
        shard_bytes = min(max(size // _SHARDS, _MIN_SHARD_BYTES), _MAX_SHARD_BYTES)
        if earlier is not None:
            # Keep the earlier size: the error for a changed input should name the input, not a different shard size.
            shard_bytes = earlier.config["shard_bytes"]
    job = replace(job, shard_bytes=shard_bytes)
    config = {
        **job.recorded(),
        "first_position": job.first_position,
        "columns": {field.name: str(field.type) for field in schema_of(job)},
    }
    manifest = Manifest(
        job.folder,
        config=config,
        tokenizer={"class": kind, "digest": job.tokenizer.digest, "name": name},
        inputs=sources.fingerprints,
        libraries=job_libraries(job),
    )
    if earlier is not None:
        before = None if earlier.problem is not None else earlier.inputs  # footers of shards do not name the inputs
        stamps, shards = earlier.stamps(), earlier.shards
        earlier.check_same_job(
            manifest, lambda: sources.differences(before, stamps, shards, shard_bytes, names=job.source_columns)
        )
        manifest = earlier
    if not manifest.finished:
        manifest.save()
    manifest.save_stamps(sources.stamps)
    return manifest, replace(job, settings=manifest.settings)


def _write_missing(job: Job, sources: Sources, manifest: Manifest, done: dict[int, Cursor], progress: Progress) -> None:
    """Write the shards that are not finished, and add the record of each one to the manifest."""
    read = sum(manifest.shards[shard]["read"] for shard in done)
    progress.start(bytes_total=sources.size, bytes_done=read, shards_done=len(done))
    tasks = sources.tasks(job.shard_bytes or _MAX_SHARD_BYTES, done)
    try:
        with closing(_records(job, tasks)) as records:
            for record in records:
                sources.check_unchanged(record["begins"][0], record["ends"][0])
                manifest.add(record)
                progress.shard(record)
    finally:
        progress.stop()
    sources.check_unchanged()


def _records(job: Job, tasks: Iterator[Task]) -> Records:
    """Write the shard of each task, and yield its record; the option `engine` selects local processes or Ray."""
    writer = ShardWriter(job)
    if job.engine == "ray":
        settings = {"workers": job.workers, "address": job.address, "libraries": job.settings["libraries"]}
        loaded = (task.loaded() for task in tasks)  # other machines may not see the inputs
        return run_on_ray(writer, loaded, folder=job.folder, **settings)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return run_in_processes(writer, tasks, workers=cores if job.workers is None else job.workers)


def _check_names(job: Job) -> None:
    """Raise `ValueError` if a column to copy from the input has the name of another column of the shards."""
    carried, names = job.carried.names, schema_of(job).names
    if twice := [name for name in carried if names.count(name) > 1]:
        others = [name for name in carried if name not in twice]
        fix = f"columns={others!r} carries the others; or rename it"
        raise value_error(
            f"column '{twice[0]}' comes with the documents, and the shards have a column of that name",
            got=f"columns to carry: {', '.join(carried)}",
            fix=fix + "; or source_columns=False" * (twice[0] in ("source", "row")),
        )


def _check_other_files(manifest: Manifest) -> None:
    """Raise `ValueError` if `data/` holds files that are not shards of this job."""
    # Other libraries would read them as shards.
    if others := sorted(data_files(manifest.folder).difference(map(shard_name, manifest.shards))):
        raise value_error(
            f"{manifest.folder} holds files that are not of this job, and would be read with its shards",
            got=", ".join(others[:3]) + f", and {len(others) - 3} more" * (len(others) > 3),
            fix="move them to another folder, and run the same command again",
        )


encode.__signature__ = with_options(encode)  # type: ignore[attr-defined]
_described = [
    f"        {each.name} (defaults to `{each.default!r}`): {each.metadata['help']}" for each in fields(Options)
]
encode.__doc__ = (encode.__doc__ or "").replace("        **options:", "\n".join(_described))
