"""`Batch`: the dict of tensors returned by a collator, with methods to move, pin and display it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import torch

from .._common.compat import version_of
from .._common.errors import MissingKeyError, explain, type_error
from ..positions import SinusoidalPositionalEncoding
from ..view import TokensOf, batch_html, facts, page_of
from .formats import COLLATED_BY_TRAINERS

# For a missing key: the setting of the collator that adds it, or the expression that is meant.
_MADE_BY = {
    "labels": 'labels="causal_lm" or "masked_lm", or text_target_column="target", in the collator; or rows with labels',
    "look_ahead_mask": "look_ahead=True in the collator",
    "inputs_embeds": "embedding=512 in the collator",
    **dict.fromkeys(("mask", "padding_mask"), 'batch["attention_mask"]'),
    "plot": "hf_posenc.plots.batch(batch)",
    "completion_mask": COLLATED_BY_TRAINERS,  # DPOTrainer reads it
    "overflow_to_sample_mapping": "return_overflowing_tokens=True in the collator",
}


class Batch(dict[str, Any]):
    r"""Dict of tensors returned by a collator, which can be moved to a device, pinned, and read by attribute.

    The first key is `input_ids`, or `inputs_embeds` if there are no ids. Dimension 0 of each tensor is the batch,
    except for the offsets `cu_seq_lens_q` and `cu_seq_lens_k`, which `packing="flat"` adds. A batch works like any dict
    in `model(**batch)`, `Trainer`, `accelerate` and the workers of a `DataLoader`. `batch.labels` is `batch["labels"]`.
    A key with the name of a method, such as `keys`, must be read as `batch["keys"]`. Pickling keeps only `data`,
    not the arguments for display.

    Args:
        data (mapping from `str` to `torch.Tensor` or `np.ndarray`, *optional*): the tensors; by default none.
        tokens_of (callable, *optional*): from a list of ids to their tokens, for display; by default ids are displayed.
        special_ids (collection of `int`, *optional*): ids of special tokens, for display; by default none.
        labels_are_ids (`bool`, *optional*): True to display labels as tokens; by default only if they repeat the ids.
            `None` does not display them, as those of a decoder.
        encoding (`SinusoidalPositionalEncoding`, *optional*): the encoding of the positions, for display; by default
            sinusoids of width 64, labeled as an example, or none if there is an `encoding_note`.
        encoding_note (`str`, *optional*): line that states what the displayed encoding is, if it is not part of the
            batch, or why none is displayed.

    Example:
        >>> ids, mask = torch.tensor([[5, 6], [7, 0]]), torch.tensor([[1, 1], [1, 0]])
        >>> batch = Batch({"input_ids": ids, "attention_mask": mask})
        >>> batch
        Batch(
          input_ids       (2, 2)  int64  cpu
          attention_mask  (2, 2)  int64  cpu
        )
        >>> sorted(batch.to("cpu"))
        ['attention_mask', 'input_ids']
        >>> batch.input_ids
        tensor([[5, 6],
                [7, 0]])
    """

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        tokens_of: TokensOf | None = None,
        special_ids: Collection[int] = (),
        labels_are_ids: bool | None = False,
        encoding: SinusoidalPositionalEncoding | None = None,
        encoding_note: str | None = None,
    ) -> None:
        super().__init__(data or {})
        self._moved: dict[str, _Moved] = dict(data._moved) if isinstance(data, Batch) else {}
        self._view: dict[str, Any] = {
            "tokens_of": tokens_of,
            "special_ids": special_ids,
            "labels_are_ids": labels_are_ids,
            "encoding": encoding,
            "encoding_note": encoding_note,
        }

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(self._no_key(name))

    def __missing__(self, name: str) -> Any:
        raise MissingKeyError(self._no_key(name))

    def _no_key(self, name: str) -> str:
        near = difflib.get_close_matches(str(name), map(str, self), n=1)
        fix = _MADE_BY.get(name) or (f'batch["{near[0]}"]' if near else f"batch.get({name!r}) for None")
        return explain(f"this batch has no '{name}'", got=", ".join(map(str, self)) or "no keys", fix=fix)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):  # an attribute would not be passed to the model
            raise AttributeError(
                explain("attributes of a batch are read-only", got=f"batch.{name} = ...", fix=f'batch["{name}"] = ...')
            )
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        # A view of a mapped mask would be stored with all that lies between its rows.
        return Batch, ({name: _without_gaps(value) for name, value in self.items()},)

    def to(self, device: torch.device | str | int, non_blocking: bool = False) -> Batch:
        r"""Return a new batch with every tensor on `device`.

        An expanded tensor, such as `look_ahead_mask`, is stored once for all rows. Only the stored part is moved, and
        the result is expanded again. Page-locked memory is copied without waiting.

        The new batch refers to the tensors `(B, T)` on the CPU, until the moved ones are written or replaced. So
        `AttentionMask.from_batch` and `collate.embed` know the positions and documents without waiting for the device.

        Args:
            device (`torch.device`, `str` or `int`): the device.
            non_blocking (`bool`, *optional*, defaults to `False`): as in `torch.Tensor.to`; always true for tensors
                in page-locked memory.

        Returns:
            `Batch` with the same keys; the original batch is not changed.

        Raises:
            TypeError: if the batch contains NumPy arrays.

        Example:
            >>> mask = torch.ones(1, 1, 3, 3, dtype=torch.bool).expand(8, 1, 3, 3)
            >>> Batch({"look_ahead_mask": mask}).to("cpu")["look_ahead_mask"].stride()
            (0, 9, 3, 1)
        """
        is_far = torch.device(device).type != "cpu"
        moved = self._each(
            lambda tensor, _: tensor.to(device, non_blocking=non_blocking or (is_far and tensor.is_pinned()))
        )
        for name, near in self._near.items() if is_far else ():
            if isinstance(near, torch.Tensor) and near.ndim < 3:
                here = moved[name]
                moved._moved[name] = _Moved(here, near, (version_of(here), version_of(near)))
        return moved

    @property
    def _near(self) -> dict[str, Any]:
        """Values on the CPU, and values that `to` moved from there and that have not been written since."""
        near = {}
        for name, value in self.items():
            moved = self._moved.get(name)
            if not isinstance(value, torch.Tensor) or value.device.type == "cpu":
                near[name] = value
            elif moved is not None and moved.fits(value):
                near[name] = moved.near
        return near

    def pin_memory(self) -> Batch:
        r"""Return a new batch in page-locked memory, for fast copies to a GPU. Called by `DataLoader(pin_memory=True)`.

        Returns:
            `Batch` with the same keys; the original batch is not changed.

        Raises:
            TypeError: if the batch contains NumPy arrays.
            RuntimeError: if a tensor is not on the CPU.
        """
        return self._each(_pinned)

    def _each(self, change: Callable[[torch.Tensor, str], torch.Tensor]) -> Batch:
        return Batch({name: _changed(value, name, change) for name, value in self.items()}, **self._view)

    def __repr__(self) -> str:
        rows = [(str(name), *facts(value)) for name, value in self.items()]
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
        lines = [
            "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join(["Batch(", *lines, ")"])

    def to_html(self, *, title: str | None = None, first_row: int = 0, first_token: int = 0) -> str:
        r"""Return HTML that displays the shapes, tokens, masks, positions and labels of the batch.

        A notebook displays a batch in this way. A chosen token shows its position and the keys to which it may attend.
        The HTML needs no network.

        Args:
            title (`str`, *optional*): return a complete page with this title; by default a fragment to put in a page.
            first_row, first_token (`int`, *optional*, default to 0): index of the first row and of the first token to
                display. At most 16 rows and 32 tokens are displayed, 8 rows at a time.

        Returns:
            `str`: the HTML.

        Raises:
            ValueError: if `first_row` or `first_token` is not in the batch.

        Example:
            >>> batch = Batch({"input_ids": torch.tensor([[5, 6]])})
            >>> batch.to_html(title="Two tokens").splitlines()[0]
            '<!doctype html>'
        """
        fragment = batch_html(self, first_row=first_row, first_token=first_token, **self._view)
        return fragment if title is None else page_of(fragment, title)

    def _repr_html_(self) -> str:
        return self.to_html()


class _Moved(NamedTuple):
    """A tensor on a device and the one on the CPU that was copied to it, with the versions of both."""

    here: torch.Tensor
    near: torch.Tensor
    versions: tuple[int, int]

    def fits(self, value: torch.Tensor) -> bool:
        """Return True if `value` is the tensor on the device, and neither tensor has been written since the copy."""
        return value is self.here and self.versions == (version_of(value), version_of(self.near))


def real_tokens(batch: Mapping[str, Any], padding_id: int | None = None) -> Any:
    r"""Return a mask `(B, T)` of a batch: True at tokens, False at padding.

    Args:
        batch (mapping): with an `attention_mask`, either `(B, T)` or additive `(B, 1, T, T)`; or with `document_ids`
            `(B, T)`, which are -1 at padding. The first of these keys is used.
        padding_id (`int`, *optional*): id of padding, to find padding on the left in a mask `(B, 1, T, T)`, where it
            attends to itself.

    Returns:
        `(B, T)` bool, a tensor or an array like the input; `None` if the batch has none of these keys.

    Example:
        >>> real_tokens({"document_ids": torch.tensor([[0, 1, -1]])})
        tensor([[ True,  True, False]])
    """
    mask = batch.get("attention_mask")
    if isinstance(mask, dict):  # one mask per kind of layer; in each, every token attends to itself
        mask = next(iter(mask.values()))
    if mask is None:
        return batch["document_ids"] >= 0 if "document_ids" in batch else None
    if mask.ndim != 4:
        return mask != 0
    sees_itself, sees_last = (mask[:, 0].diagonal(offset, 1, 2) == 0 for offset in (0, -1))  # (B, T), (B, T - 1)
    if padding_id is None or "input_ids" not in batch:
        return sees_itself
    is_inner = batch["input_ids"] != padding_id
    is_inner[:, 1:] |= sees_last
    is_inner[:, :-1] |= sees_last
    before = is_inner.cumsum(1)
    return sees_itself & (before > 0) & (before < before[:, -1:] + is_inner)


def written_tokens(
    batch: Mapping[str, Any], name: str = "input_ids", rows: slice = slice(None)
) -> list[list[str]] | None:
    r"""Return the ids of a batch as token strings.

    Example:
        >>> batch = Batch({"input_ids": torch.tensor([[5, 6]])}, tokens_of=lambda row: [f"token {id}" for id in row])
        >>> written_tokens(batch), written_tokens(dict(batch))
        ([['token 5', 'token 6']], None)
    """
    tokens_of: TokensOf | None = batch._view["tokens_of"] if isinstance(batch, Batch) else None
    ids = batch.get(name)
    if tokens_of is None or ids is None or ids.ndim != 2:
        return None
    return [tokens_of(row) for row in ids[rows].tolist()]


def _changed(value: Any, name: str, change: Callable[[torch.Tensor, str], torch.Tensor]) -> Any:
    """Return the tensor `value` changed by `change(value, name)`; an expanded tensor stays expanded."""
    if isinstance(value, dict):  # a mask for each kind of layer
        return type(value)({kind: _changed(mask, f"{name}[{kind!r}]", change) for kind, mask in value.items()})
    if isinstance(value, int):  # a length in a flat batch
        return value
    if not isinstance(value, torch.Tensor):
        raise type_error(
            f"only tensors can be moved, and '{name}' is not a tensor",
            got=type(value).__name__,
            fix='collate with return_tensors="pt"',
        )
    # A plain `.to` would store an expanded mask for each row, and overlapping memory cannot be pinned.
    once = value
    for dim, (size, stride) in enumerate(zip(value.shape, value.stride(), strict=True)):
        if stride == 0 and size > 1:
            once = once.narrow(dim, 0, 1)
    return change(once, name).expand(value.shape)


def _without_gaps(value: Any) -> Any:
    """Return an expanded tensor whose stored part has no gaps, as those of a mapped look-ahead mask; others as is."""
    is_expanded = isinstance(value, torch.Tensor) and value.ndim == 4 and value.stride(0) == 0
    return value[:1].contiguous().expand(value.shape) if is_expanded else value


def _pinned(tensor: torch.Tensor, name: str) -> torch.Tensor:
    if tensor.device.type != "cpu":
        raise RuntimeError(
            explain(
                "only CPU memory can be pinned, and a batch with embeddings is on the device of their table",
                got=f"'{name}' on {tensor.device}",
                fix="TrainingArguments(dataloader_pin_memory=False), or DataLoader(pin_memory=False)",
            )
        )
    return tensor.pin_memory()
