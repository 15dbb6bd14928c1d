"""The pictures of the page: drawn by `hf_posenc.plots`, handed over inside the page, kept while they are wanted.

No file is written: a picture is part of the HTML, and so is the link that downloads it.
"""

from __future__ import annotations

import base64
import html
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from .. import plots
from .settings import Settings
from .shown import Shown, masks_span, tried
from .tables import refusal
from .turns import one_at_a_time

if TYPE_CHECKING:
    from torch import nn

_KEPT = 48  # pictures of some 60 kB


@dataclass(frozen=True)
class Picture:
    r"""One picture of the page.

    Args:
        draw (callable): from what is shown to a matplotlib `Figure` or `Axes`.
        about (`str`): what is to be seen, for those who cannot.
        of (callable): the part of the settings that it depends on.
        ready (callable): whether what it shows is there.
    """

    draw: Callable[[Shown], Any]
    about: str
    of: Callable[[Settings], Hashable]
    ready: Callable[[Shown], bool]


def _positions(settings: Settings) -> Hashable:
    return settings.d_model, settings.positions, settings.convention, settings.base


PICTURES = {
    "masks": Picture(
        lambda shown: plots.masks(shown.batch, shown.tokens, span=masks_span(shown)),
        "For each row of the batch, which token may attend to which",
        lambda settings: replace(settings, positions=2),
        ready=lambda shown: bool(shown.batch),
    ),
    "encoding": Picture(
        lambda shown: plots.encoding(shown.settings.d_model, shown.settings.positions, **shown.settings.formula),
        "Heat map of the encoding: positions against columns",
        _positions,
        ready=lambda shown: shown.encoding is not None,
    ),
    "distances": Picture(
        lambda shown: plots.distances(shown.settings.d_model, shown.settings.positions, **shown.settings.formula),
        "Heat map of the distances between the encodings of every two positions",
        _positions,
        ready=lambda shown: shown.distances is not None,
    ),
    "embeddings": Picture(
        lambda shown: plots.embeddings(
            shown.tokenizer,
            cast("nn.Embedding", shown.table),
            shown.sentence,
            scale=shown.settings.factor,
            **shown.settings.formula,
        ),
        "The tokens of the first text as points in the plane, before and after positions are added",
        lambda settings: replace(settings, positions=2),
        ready=lambda shown: bool(shown.sentence),
    ),
}

_kept: OrderedDict[Hashable, str] = OrderedDict()
_keeping = threading.Lock()


def picture(name: str, shown: Shown) -> str:
    r"""One picture as HTML: the image, and a link that downloads it.

    Args:
        name (`str`): one of `PICTURES`.
        shown (`Shown`): what is on the page.

    Returns:
        `str` of HTML; empty where there is nothing to draw, the three lines of the refusal where it was refused.
    """
    known = PICTURES[name]
    if not known.ready(shown):
        return ""
    key = name, known.of(shown.settings)
    with _keeping:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    problems: list[str] = []
    with one_at_a_time():
        drawn = tried(lambda: plots.canvas.png(known.draw(shown)), problems)
    if drawn is None:
        return refusal(problems[0])
    made = _html(name, known.about, drawn)
    with _keeping:
        _kept[key] = made
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    return made


def _html(name: str, about: str, png: bytes) -> str:
    data = f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
    return (
        f'<figure tabindex="0"><img src="{data}" alt="{html.escape(about)}">'
        f'<figcaption><a download="{name}.png" href="{data}">Download the picture</a></figcaption></figure>'
    )
