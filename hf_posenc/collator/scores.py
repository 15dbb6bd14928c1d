"""Scores of branches: what a preference loss, an advantage within a group, and multiple choice are computed from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from .._common.constants import IGNORED
from .._common.errors import value_error


class BranchScores(NamedTuple):
    """Result of `branch_log_probs`, with one value for each branch, in the order of rows and of branches in a row.

    Args:
        log_probs (`torch.Tensor` `(N,)`): sum of the log probabilities of the tokens of the answer.
        rows, documents, branches (`torch.Tensor` `(N,)` int64): its row, its document in the row, counted from 0, and
            its number in the document, counted from 1.
    """

    log_probs: torch.Tensor
    rows: torch.Tensor
    documents: torch.Tensor
    branches: torch.Tensor


def branch_log_probs(logits: torch.Tensor, batch: Mapping[str, Any]) -> BranchScores:
    r"""Return the log probability of each branch in a batch, given its prompt.

    The first token of a branch repeats the last one of the prompt, and is not counted. If the batch has `labels`, the
    tokens with -100 are not counted either.

    Args:
        logits (`torch.Tensor` `(B, T, V)`): outputs of a causal language model; those of a token predict the next one.
        batch (mapping): tensors `(B, T)`: `input_ids`, `branch_ids`, and, if the batch has them, `document_ids` and
            `labels`. A collator with `model=` keeps `branch_ids` if the spec accepts them: `model=dataclasses.replace(
            spec := ModelSpec.of(model), accepts=(*spec.accepts, "branch_ids"))`.

    Returns:
        `BranchScores` on the device of the logits; `log_probs` is float32 (float64 for float64 logits), and has the
        gradient of the logits.

    Raises:
        ValueError: if the batch has no `branch_ids` or `input_ids`, or if their shape is not that of the logits.

    Example:
        >>> batch = {"input_ids": torch.tensor([[5, 6, 7, 6, 8]]), "branch_ids": torch.tensor([[0, 1, 1, 2, 2]])}
        >>> scores = branch_log_probs(torch.zeros(1, 5, 10), batch)      # each token has the probability 1/10
        >>> scores.log_probs, scores.branches
        (tensor([-2.3026, -2.3026]), tensor([1, 2]))
    """
    for name in ("input_ids", "branch_ids"):
        if name not in batch:
            raise value_error(
                f"the scores of branches need the batch's {name}",
                got=f"keys {list(batch)}",
                fix='model=dataclasses.replace(spec := ModelSpec.of(model), accepts=(*spec.accepts, "branch_ids")), '
                'then batch.pop("branch_ids") before the model is called',
            )
    ids, branches = (torch.as_tensor(batch[name], device=logits.device) for name in ("input_ids", "branch_ids"))
    if logits.shape[:-1] != ids.shape or branches.shape != ids.shape:
        raise value_error(
            "logits (B, T, V), input_ids and branch_ids (B, T) must have the same B and T",
            got=f"{tuple(logits.shape)}, {tuple(ids.shape)} and {tuple(branches.shape)}",
            fix="the logits of all tokens of this batch",
        )
    documents = torch.as_tensor(batch.get("document_ids", torch.zeros_like(ids)), device=logits.device)
    is_start = branches > 0
    is_target = torch.zeros_like(is_start)
    is_target[:, 1:] = is_start[:, 1:] & (branches[:, 1:] == branches[:, :-1]) & (documents[:, 1:] == documents[:, :-1])
    is_start = is_start & ~is_target
    number = is_start.flatten().cumsum(0).view_as(ids) - 1  # of the branch that a token belongs to
    if "labels" in batch:
        is_target &= torch.as_tensor(batch["labels"], device=logits.device) != IGNORED
    row, column = is_target.nonzero(as_tuple=True)
    dtype = torch.promote_types(logits.dtype, torch.float32)
    log_probs = -torch.nn.functional.cross_entropy(
        logits[row, column - 1].to(dtype), ids[row, column], reduction="none"
    )
    sums = log_probs.new_zeros(int(is_start.sum())).index_add(0, number[row, column], log_probs)
    rows, columns = is_start.nonzero(as_tuple=True)
    return BranchScores(sums, rows, documents[rows, columns].long(), branches[rows, columns].long())
