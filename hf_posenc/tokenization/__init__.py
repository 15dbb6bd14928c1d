"""One face over every tokenizer: texts in, ragged ids out; and training a BPE.

Nothing here pads, and nothing makes tensors: that is the collator's work.
"""
