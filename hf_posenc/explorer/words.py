"""The texts of the page: labels of the controls, and titles and explanations of the sections.

Constant text and HTML, without input from visitors.
"""

from __future__ import annotations

from dataclasses import dataclass

TEXT = "a queen is a woman, a king is a man\nI ride bike\nbike ride I, unsurprisingly"

HEAD = (
    "<h1>Positions and masks, at a glance</h1>"
    "<p>What <code>hf_posenc</code> makes of your texts, step by step. Move any control: everything follows, "
    "and the Python at the end gives exactly what you see.</p>"
)

LABELS = {
    "text": "Texts, one a line",
    "tokenizer": "Tokenizer",
    "folder": "Folder of the tokenizer",
    "d_model": "Width (d_model)",
    "convention": "Convention",
    "base": "Base",
    "positions": "Positions drawn",
    "padding_side": "Padding side",
    "look_ahead": "Look-ahead",
    "packing": "Packing",
    "max_length": "Tokens a row, at most",
    "embedding": "Token embeddings",
    "scale": "Token embeddings times",
}

INFO = {
    "folder": "/path/to/tokenizer, then Enter",
}

CHOICES = {
    "bert": "BERT",
    "bpe": "BPE",
    "folder": "folder",
    "right": "right",
    "left": "left",
    "random": "random",
    "trained": "BERT's, trained",
    "none": "1",
    "sqrt_d": "√d",
}


@dataclass(frozen=True)
class Section:
    r"""A section of the page.

    Args:
        title (`str`): its heading.
        text (`str`): its explanation, as HTML.
        parts (`tuple` of `str`): names of its outputs, from top to bottom.
    """

    title: str
    text: str
    parts: tuple[str, ...] = ()


SECTIONS = {
    "tokens": Section(
        "1 · Tokens, ids, masks, positions",
        "The texts as a batch: every row is as long as the longest, and gray columns are padding. "
        "<code>attention_mask</code> is 1 where a token may be attended to. <code>position_ids</code> count real "
        "tokens only, so that padding, on either side, moves nothing. <code>##</code> goes on inside a word (BERT); "
        "<code>Ġ</code> is a space (BPE: byte pairs, where a letter of another script is several bytes).",
        ("batch", "facts"),
    ),
    "masks": Section(
        "2 · Who may look at whom",
        "A line is a token that looks, a column a token that is looked at. The look-ahead mask lets each token see "
        "itself and what came before; padding is seen by nobody; packed texts, which share "
        "a row, do not see each other.",
        ("masks",),
    ),
    "encoding": Section(
        "3 · The encoding",
        "In the paper's convention, <code>vaswani</code>, column 2i holds sin(p / base<sup>2i/d</sup>) at position p, "
        "column 2i+1 the cosine: hands of clocks, each turning slower than the one before. The others lay the columns "
        "out in other ways. Change the base, and see where the columns stop moving.",
        ("encoding", "encoding_numbers"),
    ),
    "distances": Section(
        "4 · Distances between positions",
        "How far apart the encodings of every two positions are. The same number along every diagonal: it depends on "
        "how many steps lie between two positions, and not on where they are.",
        ("distances", "distances_numbers"),
    ),
    "embeddings": Section(
        "5 · Embeddings, before and after positions",
        "The tokens of the first text in the plane (principal components): as looked up, where the same token is "
        "always the same point, and with the encoding added, where it is not. The numbers are "
        "<code>inputs_embeds</code>, what a model is given.",
        ("embeddings", "embeddings_numbers"),
    ),
    "python": Section(
        "6 · The Python", "Run it where hf_posenc is installed: the same numbers, and pictures to save.", ("code",)
    ),
}


def section(name: str) -> str:
    """Return the title and explanation of a section as HTML."""
    return f'<h2 id="{name}">{SECTIONS[name].title}</h2><p>{SECTIONS[name].text}</p>'
