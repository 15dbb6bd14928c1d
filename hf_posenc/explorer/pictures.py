"""The pictures of the page: drawn by `hf_posenc.plots`, embedded in the HTML, and cached.

No file is written: the image and its download link contain the PNG as a data URL.
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

_KEPT = 48  # pictures of about 60 kB each


@dataclass(frozen=True)
class Picture:
    r"""One picture of the page.

    Args:
        draw (callable): from a `Shown` to a matplotlib `Figure` or `Axes`.
        about (`str`): alternative text of the image.
        of (callable): from the settings to the part that the picture depends on, the key of the cache.
        ready (callable): from a `Shown` to True if it contains the data of the picture.
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
    r"""Return a picture as HTML: the image, and a link that downloads it.

    Args:
        name (`str`): one of `PICTURES`.
        shown (`Shown`): the content of the page.

    Returns:
        `str` of HTML: empty if there is nothing to draw, and the error message if drawing raised one.
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
