"""`encode` tokenizes a corpus into Parquet shards, and `verify` reads them again.

A first run and a continued run take the same steps: open the inputs, compare the output with the options, write the
missing shards, then write manifest and data card.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any

from .._common.errors import counted, value_error
from ..tokenization import Encoder, RustOnlyTokenizer, SerializedTokenizer, to_files
from .engines import Records, WriteShards, library_versions, run_in_processes, run_on_ray
from .files import InputFile, StorageOptions, check_path
from .manifest import OTHER_OUTPUT, BadFile, Manifest, OnRead, Remedy, differences, job_digest
from .options import Options, Progress, resolve, with_options
from .output import CARD, DATA, JOB, MANIFEST, TOKENIZER, Output
from .shards import Job, Task, read_record, rejected_name, schema_of
from .sources import Sources, open_sources

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Bytes of input from which on a document may be so long that a message warns of its memory.
_SMALL = 1 << 20
# By default a shard holds 1/64 of the input, within these bounds, so that all workers finish at about the same time.
_MIN_SHARD_BYTES, _MAX_SHARD_BYTES, _SHARDS = 4 << 20, 64 << 20, 64
_SAVED = 1000  # shards after which the manifest is written
# The data card; `load_dataset(folder)` reads its header.
_CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/shard-*.parquet
# license: that of the texts; fill it in
---

# {title} as token ids

{tokens:,} token ids of {documents:,} documents, in {rows:,} rows of at most {longest:,}. {cut:,} documents were
truncated, {rejected:,} are listed in `rejected/`. Batches of 32 neighboring rows are {padding:.1%} padding.
`manifest.json` holds settings, inputs and versions, and a checksum of each shard, which `hf-posenc verify` compares.

```python
from datasets import load_dataset
from hf_posenc import DataCollatorWithPositionalEncoding

# In this folder, or with its path before "data" and "tokenizer"
rows = load_dataset("parquet", data_files="data/shard-*.parquet", split="train")
collate = DataCollatorWithPositionalEncoding({tokenizer}{pad_token})
```
"""


def encode(
    inputs: Any,
    tokenizer: Any,
    output: str | Path,
    *,
    storage_options: StorageOptions | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Manifest:
    r"""Tokenize a corpus of any size into Parquet shards, and continue where an interrupted run ended.

    The shards hold `input_ids` (int32, not padded), `length` (the number of tokens), and the columns that the options
    select. `load_dataset("parquet", ...)` reads them, and `DataCollatorWithPositionalEncoding` makes batches of their
    rows. Each worker opens its own part of the input and writes its own shards, complete or not at all;
    `manifest.json` lists their checksums. The same inputs and options give the same bytes, for any number of workers
    and interruptions. Another run of a finished job checks all shards and replaces damaged ones.

    The options are keyword arguments, one for each field of `Options`, such as `max_length=512`.

    Args:
        inputs (`str`, `Path`, a data set of `datasets`, or a list of these): files, folders (also of `save_to_disk`),
            glob patterns, addresses that `fsspec` opens (`s3://`, `hf://`, `https://`), names of data sets on the Hub.
            Files hold text, JSON lines, CSV, Parquet or Arrow; the first three may be compressed. Inputs must not
            change during the run.
        tokenizer (`str`, `Path`, a tokenizer, or `DataCollatorWithPositionalEncoding`): name on the Hub, folder, or
            object. The settings of a collator are used for options that are not given.
        output (`str` or `Path`): a folder, or an address that `fsspec` can write to; new, or of an earlier run of the
            same job.
        storage_options (mapping, *optional*): options for the file systems of the addresses, such as keys; they are
            never printed or stored.
        progress (`Progress`, *optional*): callbacks that report progress; by default messages become warnings.
        **options:

    Returns:
        `Manifest`: the settings and results of the job, such as `.totals` (rows, documents, tokens, ...), `.shards` and
        `.finished`, which is False if `part` is given and other shares are missing.

    Raises:
        ValueError: if an option is wrong; if the output holds another job, with the differences; if a row is bad, with
            its file and line.
        TypeError: if an option has the wrong type, or a column does not hold text.
        RuntimeError: if a worker dies; the same call continues.
        OSError: if a file cannot be opened; if the folder is used by another run or cannot be written to; if the disk
            is full.

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
    for item in inputs if isinstance(inputs, list | tuple) else [inputs]:
        if isinstance(item, str | os.PathLike):  # before a tokenizer is loaded, which takes seconds
            check_path(os.fspath(item))
    progress, storage = progress or Progress(), storage_options or {}
    place = Output.of(output, storage)
    resolved, own_tokenizer, first_position, notes = resolve(options, tokenizer)
    encoder = Encoder(own_tokenizer, backend=resolved.backend)  # raises if the tokenizer does not have that backend
    progress.backend("transformers" if encoder.backend is None else encoder.backend.name)
    sources = open_sources(inputs, resolved, storage)
    if sources.size == 0:
        fix = "check the paths, and the format: format='text', 'json', ..."
        got = f"nothing in {', '.join(source.shown for source in sources.sources[:3])}"
        raise value_error("there are no documents in the inputs", got=got, fix=fix)
    if encoder.reason_not_cut is not None and (sources.size is None or sources.size > _SMALL):
        notes.append(
            f"long documents cannot be tokenized in pieces, because of the tokenizer: {encoder.reason_not_cut}; "
            "a document that is tokenized whole needs 50 to 200 times its size in memory"
        )
    job = Job(
        **vars(resolved),
        output=place,
        tokenizer=SerializedTokenizer.of(own_tokenizer),
        carried=sources.columns.carried,
        has_types="token_type_ids" in own_tokenizer.model_input_names,
        first_position=first_position,
    )
    _check_names(job)
    name = str(tokenizer if isinstance(tokenizer, str | os.PathLike) else own_tokenizer.name_or_path)
    is_local = _is_local(name)
    public_name = PureWindowsPath(name).name if is_local else name  # the folders of a local path are private
    _refuse_other_files(place)
    with place.locked("" if job.part is None else f"-{job.part.replace('/', '-of-')}"):
        manifest, job = _same_job(job, sources, public_name, type(own_tokenizer).__name__)
        bad = manifest.find_shards(progress.checked, check_all=manifest.finished)
        _check_other_files(place, bad)
        for numbers, record in list(manifest.records.items()):
            if record["on_bad_row"] not in (None, job.on_bad_row):
                del manifest.records[numbers]
        for note in (*notes, *sources.notes, *(sources.slow_notes(job.shard_bytes or 0) if job.workers != 0 else ())):
            progress.message(note)
        tasks = _write_missing(job, sources, manifest, progress)
        if job.part is not None:
            manifest.find_shards(check_all=False)  # those of the other shares
        shards = manifest.finished_shards()
        is_new = not manifest.finished
        manifest.finished = all(manifest.is_complete(task, shards.get(task, frozenset())) for task in range(tasks))
        if not manifest.finished:
            missing = sum(not manifest.is_complete(task, shards.get(task, frozenset())) for task in range(tasks))
            progress.message(f"part {job.part} is finished; {missing:,} of {tasks:,} tasks are left to other parts")
            return manifest
        manifest.save()
        _number_rejected(place, manifest)
        if is_local:  # the code in the card loads it
            for file, content in to_files(own_tokenizer).items():
                place.write(f"{TOKENIZER}/{file}", content)
        place.create(CARD, _card(manifest, TOKENIZER if is_local else public_name, own_tokenizer))
        if is_new and (cut := manifest.totals["cut"]):
            documents = manifest.totals["documents"]
            progress.message(f"{cut:,} of {documents:,} documents were truncated to {job.max_length} tokens")
        return manifest


def _refuse_other_files(output: Output) -> None:
    """Raise `ValueError` if the output holds files, and none of them is of a job."""
    shards = output.files(DATA)
    names = [*output.files(), *shards]
    if not names or not {JOB, MANIFEST}.isdisjoint(names):
        return
    for name, size in shards.items():
        with suppress(ValueError):
            read_record(output, name, size)
            return
    raise value_error(
        f"the output {output} holds other files, and no {JOB} of an earlier run",
        got=", ".join(names[:3]) + f" and {len(names) - 3} more" * (len(names) > 3),
        fix="another --output, new or empty",
    )


def _is_local(name: str) -> bool:
    r"""Return True if the name of a tokenizer is a local path or empty, and False for a name on the Hub.

    Example:
        >>> _is_local("google-bert/bert-base-uncased"), _is_local("/home/me/bert"), _is_local("")
        (False, True, True)
    """
    return re.match(r"[./~\\]|[A-Za-z]:", name) is not None or Path(name).exists()


def _same_job(job: Job, sources: Sources, name: str, kind: str) -> tuple[Manifest, Job]:
    """Return the manifest of the output, or a new one, and `job` with `shard_bytes` and `digest` filled in.

    Raise `ValueError` if the output holds the shards of another job.
    """
    before = Manifest.read(job.output)
    shard_bytes = job.shard_bytes
    if shard_bytes is None:
        size = _SHARDS * _MAX_SHARD_BYTES if sources.size is None else sources.size
        shard_bytes = min(max(size // _SHARDS, _MIN_SHARD_BYTES), _MAX_SHARD_BYTES)
        if before is not None:
            # Keep the earlier size: the error for a changed input should name the input, not a different shard size.
            shard_bytes = before.config["shard_bytes"]
    job = replace(job, shard_bytes=shard_bytes)
    config = {
        **job.recorded(),
        "first_position": job.first_position,
        "columns": {field.name: str(field.type) for field in schema_of(job)},
    }
    only_rust = isinstance(job.tokenizer.content, RustOnlyTokenizer)
    libraries = ("hf-posenc", "tokenizers", "numpy", "pyarrow", *(() if only_rust else ("transformers",)))
    now = Manifest(
        job.output,
        config=config,
        tokenizer={"class": kind, "digest": job.tokenizer.digest, "name": name},
        inputs=sources.identities,
        libraries=library_versions(libraries),
    )
    now.digest = job_digest(now)
    if before is not None and before.digest != now.digest and job.part is None and not job.output.files(DATA):
        job.output.remove(JOB)  # a run that wrote no shard decides nothing
        before = None
    if before is None:
        before = now.save_job()
    if not before.finished:  # often set after a bad row stopped a run
        before.set_on_bad_row(now.config)
    wrong = before.differences(now)
    changes, doubtful = before.input_differences(now, names=job.source_columns)
    if doubtful and not wrong and not changes:
        manifest_copy = replace(before, records=dict(before.records))
        manifest_copy.find_shards(check_all=False)
        changes = _other_content(manifest_copy, sources, doubtful)
    if wrong := wrong or changes:
        raise value_error(f"{job.output} holds the output of another job", got="; ".join(wrong), fix=OTHER_OUTPUT)
    before.inputs = now.inputs  # they may have grown, or their files been touched
    return before, replace(job, digest=before.digest, libraries=now.libraries)


def _other_content(manifest: Manifest, sources: Sources, doubtful: Mapping[int, str]) -> list[str]:
    """Read the finished parts of the doubtful sources, and return a line for the first shard of other content.

    `doubtful` maps the number of a source to a difference that is known already.
    """
    reasons = {sources.sources[number].name: words for number, words in doubtful.items()}
    shards, last = manifest.finished_shards(), max((task for task, _ in manifest.records), default=-1)
    task = None
    for task in sources.tasks(manifest.config["shard_bytes"]) if shards else ():
        doubted = [part.source for part in task.parts if part.source.name in reasons]
        if doubted and task.number in shards:
            digests = sources.digests(task, manifest.config["shard_bytes"])
            for shard in sorted(shards[task.number]):
                record = manifest.records[task.number, shard]
                if digests.get(shard) != record["digest"]:
                    return [f"input {doubted[0].shown}: {reasons[doubted[0].name]}other content in {record['file']}"]
        if task.number == last:
            return []
    return [] if task is None else [f"inputs: they end before {manifest.shards[-1]['file']}"]


def _write_missing(job: Job, sources: Sources, manifest: Manifest, progress: Progress) -> int:
    """Write the shards that are missing, and add their records to the manifest; return the number of all tasks."""
    (k, n), shards, count = job.share, manifest.finished_shards(), 0

    def missing() -> Iterator[Task]:
        nonlocal count
        for task in tasks:
            count = task.number + 1
            done = shards.get(task.number, frozenset())
            if task.number % n == k - 1 and not manifest.is_complete(task.number, done):
                if wrong := differences("", manifest.libraries, job.libraries):
                    rule = f"missing shards of {job.output} must be made by the versions that made the others"
                    raise value_error(rule, got="; ".join(wrong), fix=f"install those, or {OTHER_OUTPUT}")
                yield replace(task, done=done)

    tasks = sources.tasks(job.shard_bytes or _MAX_SHARD_BYTES)
    bytes_read = sum(record["read"] for record in manifest.records.values())
    progress.start(bytes_total=sources.size, bytes_done=bytes_read, shards_done=len(manifest.records))
    try:
        with closing(_run(job, missing())) as records:
            for number, record in enumerate(records, 1):
                manifest.add(record)
                progress.shard(record)
                if number % _SAVED == 0:
                    manifest.save()
    finally:
        progress.stop()
    return count


def _run(job: Job, tasks: Iterator[Task]) -> Records:
    function = WriteShards(job)
    if job.engine == "ray":
        tasks = (_for_other_machines(task) for task in tasks)
        return run_on_ray(function, tasks, workers=job.workers, address=job.address, libraries=job.libraries)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return run_in_processes(function, tasks, workers=cores if job.workers is None else job.workers)


def _for_other_machines(task: Task) -> Task:
    """Return a task with absolute paths, and without the times of the files, which differ between copies."""
    parts = []
    for part in task.parts:
        source = part.source
        if isinstance(source, InputFile):
            source = replace(
                source, stamp=None, name=source.name if source.path is None else str(source.path.absolute())
            )
        parts.append(replace(part, source=source))
    return replace(task, parts=tuple(parts))


def _number_rejected(output: Output, manifest: Manifest) -> None:
    """Replace the line in the shard of each rejected document by the line in its file."""
    for record in manifest.shards:
        if record["rejected"]:
            name, first = rejected_name(record["file"]), record["first_line"]
            head, *rest = (output.read(name) or b"").split(b'"line_in_shard": ')
            parts = [re.match(rb"(\d+)(.*)", piece, re.DOTALL) for piece in rest]
            lines = [b"%d%b" % (int(part[1]) + first - 1, part[2]) for part in parts if part]
            output.write(name, b'"line": '.join([head, *lines]))


def _check_names(job: Job) -> None:
    """Raise `ValueError` if a column to copy from the input has the name of another column of the shards."""
    carried, names = job.carried.names, schema_of(job).names
    if twice := [name for name in carried if names.count(name) > 1]:
        unique_names = [name for name in carried if name not in twice]
        fix = f"columns={unique_names!r} carries the others; or rename it"
        raise value_error(
            f"column '{twice[0]}' comes with the documents, and the shards have a column of that name",
            got=f"columns to carry: {', '.join(carried)}",
            fix=fix + "; or source_columns=False" * (twice[0] in ("source", "row")),
        )


def _check_other_files(output: Output, bad: list[BadFile]) -> None:
    """Raise `ValueError` if `data/` holds files that are not shards of this job."""
    # Other libraries would read them as shards.
    if bad_files := [bad_file for bad_file in bad if bad_file.remedy is Remedy.MOVE_AWAY]:
        raise value_error(
            f"{output} holds files that are not of this job, and would be read with its shards",
            got=", ".join(f"{bad_file.file} {bad_file.difference}" for bad_file in bad_files[:3])
            + f", and {len(bad_files) - 3} more" * (len(bad_files) > 3),
            fix="move them to another folder, and run the same command again",
        )


def _card(manifest: Manifest, name: str, tokenizer: PreTrainedTokenizerBase) -> bytes:
    """Return the data card: figures, and code that loads the shards, and the tokenizer by its name or folder."""
    first, totals = " ".join(Path(manifest.inputs[0]["name"]).name.split()), manifest.totals
    has_only_eos = tokenizer.pad_token is None and tokenizer.eos_token is not None
    text = _CARD.format(
        title=f"`{first}`" + (f" and {len(manifest.inputs) - 1:,} more" if len(manifest.inputs) > 1 else ""),
        padding=1 - totals["tokens"] / max(totals["padded"], 1),
        tokenizer=json.dumps(name, ensure_ascii=False),
        pad_token=', pad_token="eos"' if has_only_eos else "",
        **totals,
    )
    return text.encode("utf-8", "replace")


# -------------------------------------------------------------------------------------------------------------- verify


@dataclass(frozen=True)
class Verification:
    r"""The result of `verify`.

    Args:
        output (`str`): the output.
        shards (`int`): number of shards that were checked.
        bad (`tuple` of `BadFile`): the files that differ from the manifest.
        finished (`bool`): True if the job was finished.
        rows (`int`), tokens (`int`): rows and tokens of the sound shards.

    Example:
        >>> print(Verification("out", 12, (BadFile("data/shard-000003-000.parquet", "is missing"),), True))
        out: 1 file differs from the manifest
          data/shard-000003-000.parquet: is missing
        The same hf-posenc encode again repairs the output, and makes only the bad shards again.
    """

    output: str
    shards: int
    bad: tuple[BadFile, ...]
    finished: bool
    rows: int = 0
    tokens: int = 0

    @property
    def sound(self) -> bool:
        """True if no file differs from the manifest, even if the job is not finished."""
        return not self.bad

    def __str__(self) -> str:
        if self.bad:
            verb = "differs" if len(self.bad) == 1 else "differ"
            first = f"{counted(len(self.bad), 'file')} {verb} from the manifest"
        else:
            shards = counted(self.shards, "shard") + ("" if self.finished else " so far")
            first = f"{shards}, {self.rows:,} rows, {self.tokens:,} tokens, all as they were written"
        lines = [f"{self.output}: {first}", *(f"  {bad_file}" for bad_file in self.bad)]
        if any(bad_file.remedy is Remedy.ENCODE_AGAIN for bad_file in self.bad):
            lines.append("The same hf-posenc encode again repairs the output, and makes only the bad shards again.")
        elif not self.finished:
            lines.append("The job is not finished: the same hf-posenc encode again continues it.")
        return "\n".join(lines)


def verify(
    output: str | Path,
    on_read: OnRead | None = None,
    *,
    storage_options: StorageOptions | None = None,
) -> Verification:
    r"""Read every file of an output again and compare it with `manifest.json`, to find lost and damaged files.

    If the job is not finished, each shard is compared with the checksum in its own footer instead.

    Args:
        output (`str` or `Path`): the output given to `encode`.
        on_read (callable, *optional*): called after each shard, with its size in bytes.
        storage_options (mapping, *optional*): as given to `encode`.

    Returns:
        `Verification`; `.bad` lists each file that differs from the manifest, with the reason.

    Raises:
        ValueError: if there is no output, or its manifest is of another format.
        OSError: if a file exists and cannot be read.

    Example:
        >>> verify("no such folder")
        Traceback (most recent call last):
        ValueError: no such folder holds no manifest.json
          fix: a folder or address that hf-posenc encode wrote to
    """
    manifest = Manifest.read(Output.of(output, storage_options or {}))
    if manifest is None:
        raise value_error(f"{output} holds no {MANIFEST}", fix="a folder or address that hf-posenc encode wrote to")
    shards = len(manifest.records)
    bad = manifest.find_shards(on_read, check_all=True)
    totals = manifest.totals
    return Verification(
        str(output),
        shards=max(shards, len(manifest.records)),
        bad=tuple(bad),
        finished=manifest.finished,
        rows=totals["rows"],
        tokens=totals["tokens"],
    )


encode.__signature__ = with_options(encode)  # type: ignore[attr-defined]
_described = [
    f"    {field.name} (defaults to `{field.default!r}`): {field.metadata['help']}" for field in fields(Options)
]
encode.__doc__ = inspect.cleandoc(encode.__doc__ or "").replace("    **options:", "\n".join(_described))
