"""Columns of given rows by name: boundaries of documents, masks of supervision, values and indices of tokens.

The tables stand here once. The collator, `pack_dataset`, the audit and `AttentionMask` read them.
"""

from __future__ import annotations

from typing import NamedTuple

LABEL_COLUMNS = ("label", "label_ids", "labels")

# Columns that say where documents begin, beside position ids that restart: a number for each token, or lengths of
# documents (TRL), or their offsets (the keys of transformers' DataCollatorWithFlattening).
NUMBERS, LENGTHS, OFFSETS = ("document_ids", "seq_idx"), ("seq_lengths",), ("cu_seq_lens_q", "cu_seq_lens_k")
# Document numbers from an attention mask that isolates documents, see `reading.read_mask`.
MASK_NUMBERS = "attention_mask (B, 1, T, T)"
# Columns that `read_documents` replaces: closed rows have no padding, and `Documents.sizes` instead of boundaries.
BOUNDARIES = ("attention_mask", *NUMBERS, MASK_NUMBERS, *LENGTHS, *OFFSETS)
# Masks with 1 at the tokens to train on: of TRL, of `apply_chat_template`, and of other libraries.
# They apply to labels too, as in TRL. verl before 0.5 and NeMo put 1 at the token before the one to train on.
SUPERVISION = ("completion_mask", "assistant_masks", "assistant_tokens_mask", "loss_mask")


class PerToken(NamedTuple):
    """Column with one value per token, beside `input_ids` and labels.

    `fill` is its value at padding. `in_batch` is False for columns that only label makers read. Packed rows keep the
    columns with `packed`. Columns with `if_named` are read only if the forward of the model names them, or without one.
    `is_vector` is True for a vector per token; other columns have an integer.
    """

    fill: int = 0
    in_batch: bool = True
    packed: bool = False
    if_named: bool = False
    is_vector: bool = False


PER_TOKEN = {
    "token_type_ids": PerToken(packed=True),
    "position_ids": PerToken(packed=True),
    "special_tokens_mask": PerToken(1, in_batch=False),
    "word_ids": PerToken(-1, in_batch=False),
    "offset_mapping": PerToken(in_batch=False, is_vector=True),
    **dict.fromkeys(SUPERVISION, PerToken()),
    # Inputs of Longformer, ERNIE, multimodal models, XLM and XLNet.
    **dict.fromkeys(
        ("global_attention_mask", "task_type_ids", "mm_token_type_ids", "langs"), PerToken(packed=True, if_named=True)
    ),
    "p_mask": PerToken(1, packed=True, if_named=True),
    "bbox": PerToken(packed=True, if_named=True, is_vector=True),  # of LayoutLM
    "inputs_embeds": PerToken(if_named=True, is_vector=True),
}

# Columns of indices of tokens in their row: answers to questions, and inputs of XLM, XLNet, GPT-2, Splinter and LUKE.
TOKEN_INDICES = (
    *("start_positions", "end_positions", "cls_index", "mc_token_ids", "question_positions"),
    *("entity_start_positions", "entity_end_positions"),
)
