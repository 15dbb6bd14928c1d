"""A tokenised data set as rows of several documents each, ready for Trainer; a stream through a window.

Documents keep their tokens' order and no others' company: which share a row is `pack`'s affair.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from .._explain import as_integer, explain, one_of
from .lengths import is_arrow, lengths_of
from .window import COLUMNS, TooLong, packed_window, tell_long

_FORMAT = 2  # of the rows; a part of what `datasets` caches by, which does not look into installed packages


def pack_dataset(
    dataset: Any,
    capacity: int,
    *,
    column: str = "input_ids",
    too_long: TooLong = "error",
    labels: Literal["causal_lm"] | None = "causal_lm",
    document_ids: bool = False,
    pad_token_id: int = 0,
    first_position: int = 0,
    window: int = 10_000,
    seed: int = 0,
    num_proc: int | None = None,
) -> Any:
    r"""Packs the documents of a tokenised data set into rows of exactly `capacity` tokens.

    The rows have `input_ids`, `position_ids` that restart with every document, and `labels`; no `attention_mask`. That
    is what Trainer takes as it is, with its own collator and its removal of columns. Documents are kept apart by the
    restarts in models that read them so when there is neither a mask nor a cache: GPT-2, Llama, Mistral, Qwen and
    others of their kind. A mask of nothing but ones would switch that off without a word, and a tokenizer given to
    Trainer adds one: give `data_collator=transformers.default_data_collator` then. For other models pack with
    `DataCollatorWithPositionalEncoding(model=..., packing=True)`, which makes the mask that they need.

    Args:
        dataset (`datasets.Dataset` or `datasets.IterableDataset`): one document a row, tokenised; or several, with
            `document_ids` or with `position_ids` that restart. Padding inside (0 in `attention_mask`) takes no room,
            and neither does a row without tokens.
        capacity (`int`): tokens of a row.
        column (`str`, *optional*, defaults to `"input_ids"`): the column that holds the tokens.
        too_long (`"error"`, `"truncate"` or `"split"`, *optional*, defaults to `"error"`): a document longer than
            `capacity` is refused; or loses its end, with a warning that counts; or becomes several documents.
        labels (`"causal_lm"`, *optional*): the tokens themselves, or the `labels` of the data set, without the first
            of every document: models shift labels by one, and it would be learnt from another document's end. With
            `None`, the `labels` of the data set as they are, if there are any.
        document_ids (`bool`, *optional*, defaults to `False`): a column with the number of each token's document in its
            row, -1 at padding, for models that name it.
        pad_token_id (`int`, *optional*, defaults to 0): what fills the few places that stay empty, after the documents;
            with the label -100.
        first_position (`int`, *optional*, defaults to 0): the position of a document's first token, and of padding.
        window (`int`, *optional*, defaults to 10,000): how many documents are packed together. Of a stream so many are
            read before the first row.
        seed (`int`, *optional*, defaults to 0): of the order of the rows within a window.
        num_proc (`int`, *optional*): processes for `datasets.map`.

    Returns:
        A data set of the same kind, with int32 columns; `token_type_ids` are kept, and all other columns dropped.

    Raises:
        ValueError: for a document that is too long, a missing column, or one label a row.
        TypeError: for anything but a data set of `datasets`.

    Example:
        >>> import datasets
        >>> documents = datasets.Dataset.from_dict({"input_ids": [[5, 6, 7], [8, 9], [4]]})
        >>> packed = pack_dataset(documents, 4)
        >>> for row in sorted(packed, key=lambda row: row["input_ids"]):
        ...     print(row["input_ids"], row["position_ids"], row["labels"])
        [5, 6, 7, 4] [0, 1, 2, 0] [-100, 6, 7, -100]
        [8, 9, 0, 0] [0, 1, 0, 0] [-100, 9, -100, -100]
    """
    capacity = as_integer(capacity, "capacity", minimum=1, example=2048)
    window = as_integer(window, "window", minimum=1, example=10_000)
    seed = as_integer(seed, "seed", minimum=0, example=0)
    if too_long not in ("error", "truncate", "split"):
        raise ValueError(one_of("too_long", too_long, ("error", "truncate", "split")))
    if labels not in ("causal_lm", None):
        raise ValueError(one_of("labels", labels, ("causal_lm", None)))
    names = _column_names(dataset, column)
    settings: dict[str, Any] = {
        "capacity": capacity,
        "column": column,
        "too_long": too_long,
        "shifted": labels == "causal_lm",
        "document_ids": document_ids,
        "pad_token_id": pad_token_id,
        "first_position": first_position,
        "seed": seed,
        "format_version": _FORMAT,
    }
    more: dict[str, Any] = {}
    if is_arrow(dataset):
        if not {"document_ids", "position_ids"} & set(names):  # else rows may hold several documents
            _check_lengths(dataset, names, settings)
            settings["known"] = True
        more["remove_columns"] = names  # a stream takes the rows that are made in place of those that came
    if num_proc is not None:
        more["num_proc"] = num_proc
    packed = dataset.with_format("arrow").map(
        packed_window,
        batched=True,
        batch_size=window,
        with_indices=True,
        features=_features(names, settings),
        fn_kwargs=settings,
        **more,
    )
    return packed.with_format(None)


def _features(names: list[str], settings: dict[str, Any]) -> Any:
    """The columns of the rows, for a stream to know them before it is read."""
    import datasets

    made = {"input_ids", "position_ids"} | ({"token_type_ids", "labels"} & set(names))
    made |= {"labels"} if settings["shifted"] else set()
    made |= {"document_ids"} if settings["document_ids"] else set()
    return datasets.Features({name: datasets.List(datasets.Value("int32")) for name in COLUMNS if name in made})


def _column_names(dataset: Any, column: str) -> list[str]:
    """The columns of a data set of `datasets`; of a stream that does not know them, those of its first row."""
    if not callable(getattr(dataset, "map", None)) or not hasattr(dataset, "with_format"):
        raise TypeError(
            explain(
                "pack_dataset packs a data set of datasets",
                got=type(dataset).__name__,
                fix='datasets.Dataset.from_dict({"input_ids": ids})',
            )
        )
    names = dataset.column_names
    if isinstance(names, dict):
        raise TypeError(
            explain(
                "one data set is packed, and here are several",
                got=f"{type(dataset).__name__} of {list(names)}",
                fix=f"pack_dataset(dataset[{next(iter(names), 'train')!r}], capacity)",
            )
        )
    if names is None:
        names = list(next(iter(dataset), {}))
    if column not in names:
        raise ValueError(
            explain(
                f"column '{column}' is missing, and documents are its rows",
                got=f"columns {names}",
                fix="tokenise first: dataset.map(collate, batched=True), or name the column that holds the tokens",
            )
        )
    return list(names)


def _check_lengths(dataset: Any, names: list[str], settings: dict[str, Any]) -> None:
    """Looks at all lengths before anything is packed, where they can be had for nothing."""
    lengths = lengths_of(dataset, settings["column"])
    capacity = settings["capacity"]
    if int(lengths.max(initial=0)) <= capacity:
        return
    if "attention_mask" in names:  # rows that came padded are shorter than they look
        import pyarrow.compute as pc

        mask = dataset.with_format("arrow")[:]["attention_mask"]
        ends = np.cumsum(lengths)
        before = np.concatenate([[0], np.cumsum(pc.list_flatten(mask).to_numpy() != 0)])
        lengths = before[ends] - before[ends - lengths]
    if int(lengths.max(initial=0)) > capacity:
        tell_long(lengths, capacity, settings["too_long"], range(len(lengths)), counted=True)
