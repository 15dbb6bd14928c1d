"""Text in, position-aware model inputs out: a Hugging Face data collator with masks, position ids and encodings.

The public names are listed in `__init__.pyi`. Each is imported on first use, and torch only with a name that needs it.
"""

from importlib.metadata import version as _version

import lazy_loader as _lazy_loader

from ._common import errors as _errors

__version__ = _version("hf-posenc")
_attribute, __dir__, __all__ = _lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]
__all__.sort()
_POLARITY = "  # True means may be attended to; docs/lessons.md has the line for each tutorial"
# Names that people try, those of tutorials too, and the public names that they mean.
_MEANT = {
    "create_padding_mask": f"padding_mask_from_ids{_POLARITY}",
    **dict.fromkeys(("create_look_ahead_mask", "subsequent_mask"), f"look_ahead_mask{_POLARITY}"),
    "generate_square_subsequent_mask": f"look_ahead_mask{_POLARITY}",
    "plot": "plots",
    "PositionalEncoding": "SinusoidalPositionalEncoding",
    "SinusoidalPositions": "use_sinusoidal_positions",
    "SinusoidalEncoding": "SinusoidalPositionalEncoding",
    "SinusoidalPositionalEmbedding": "SinusoidalPositionalEncoding",  # of diffusers: it adds positions only
    "PositionalEncodingCollator": "DataCollatorWithPositionalEncoding",
    "DataCollator": "DataCollatorWithPositionalEncoding",
    "Collator": "DataCollatorWithPositionalEncoding as Collator",
}
# Names that are public in their room only.
_ROOMS = {
    **dict.fromkeys(("LearnedPositionalEncoding", "reorder_columns"), "positions"),
    **dict.fromkeys(("position_ids_from_documents", "position_ids_from_lengths"), "positions"),
    **dict.fromkeys(("additive_mask", "padding_mask_from_ids"), "masks"),
    **dict.fromkeys(("BatchPlan", "PackingPlan"), "packing"),
}


def __getattr__(name: str) -> object:
    try:
        return _attribute(name)
    except AttributeError:
        if name not in {**_MEANT, **_ROOMS}:
            raise
    meant = _MEANT.get(name, name)
    room = _ROOMS.get(meant.split()[0])
    # An `AttributeError` would lose its message in `from hf_posenc import ...`.
    fix = f"from hf_posenc{f'.{room}' if room else ''} import {meant}"
    raise ImportError(_errors.explain(f"hf_posenc has no name '{name}'", fix=fix))
