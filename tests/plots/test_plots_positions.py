"""Pictures of positions: the data on their axes compared with formulas written out here.

Also the properties of every picture: readable, drawn without `pyplot`, saved whole, with errors for wrong arguments.
"""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from looping import for_each, slow
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from hf_posenc import Convention, fixed_bases, plots, sinusoidal_encoding
from hf_posenc.positions import CONVENTIONS, resolve_convention

PICTURES = ["curves", "dials", "distances", "encoding", "oscillation", "similarity"]
# Every picture at its smallest, at a usual size, and where it has the most to say.
SIZES: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "encoding": [((1, 1), {}), ((128, 100), {"base": 500_000.0}), ((1024, 100_000), {"convention": "fairseq"})],
    "curves": [((1, 1), {}), ((20, 100), {"dimensions": range(7)}), ((512, 100_000), {"dimensions": [0, 511]})],
    "oscillation": [((1, 0), {}), ((128, [0, 1, 10, 100]), {}), ((9, range(12)), {"convention": "musicgen"})],
    "dials": [((), {}), ((1, 1), {}), ((32, 32), {"convention": "whisper"})],
    "distances": [((1, 1), {}), ((128, 100), {}), ((17, 100_000), {})],
    "similarity": [((1, 1), {}), ((129, 100), {}), ((64, 100_000), {"starts": range(6)})],
}
CASES = [slow(name, *SIZES[name][0]) for name in PICTURES] + [(name, *SIZES[name][2]) for name in PICTURES]


def note(axes: Axes) -> str:
    """Return the smaller text below the title."""
    return "".join(text.get_text() for text in axes.texts if text.get_gid() == "note")


def draw(name: str, *args: Any, **settings: Any) -> Any:
    return getattr(plots, name)(*args, **settings)


def paper(position: int, column: int, d_model: int, base: float = 10000.0) -> float:
    """Vaswani et al. 2017, section 3.5."""
    angle = position / base ** (2 * (column // 2) / d_model)
    return math.cos(angle) if column % 2 else math.sin(angle)


def table(length: int, d_model: int) -> np.ndarray:
    return np.array([[paper(position, column, d_model) for column in range(d_model)] for position in range(length)])


def image(ax: Axes, number: int = 0) -> np.ndarray:
    return np.asarray(ax.images[number].get_array())


def line(ax: Axes, number: int = 0) -> np.ndarray:
    return np.asarray(ax.lines[number].get_ydata())


@pytest.mark.parametrize(
    "convention",
    ["vaswani", *map(slow, list(CONVENTIONS)[1:]), fixed_bases(4, 5, 7, 9), Convention("s", wavelengths=(1, 60))],
)
def test_every_convention_is_drawn_as_the_package_encodes_it(convention: str | Convention) -> None:
    for d_model in (8,) if getattr(convention, "bases", None) else (1, 2, 5, 8):
        rows = sinusoidal_encoding(range(40), d_model, convention=convention).numpy()
        settings: dict[str, Any] = {"convention": convention}
        for begin in range(0, d_model, 7):
            columns = range(begin, min(begin + 7, d_model))
            ax = plots.curves(d_model, 40, dimensions=columns, **settings).axes[0]
            for one, column in zip(ax.lines, columns, strict=True):
                np.testing.assert_allclose(one.get_ydata(), rows[:, column], atol=1e-6)
        kinds = resolve_convention(convention).columns(d_model)  # of sines and of cosines
        halves = [rows[:, kind] for kind in kinds if rows[:, kind].size] or [rows]  # of width 1, zeros alone
        drawn = plots.encoding(d_model, 40, **settings).axes[0].images
        for one, half in zip(drawn, halves, strict=True):
            np.testing.assert_allclose(one.get_array(), half, atol=1e-6)


def test_a_base_changes_the_picture_and_is_in_the_note() -> None:
    ax = plots.encoding(8, 20, base=500.0).axes[0]
    assert note(ax) == "20 positions, d_model=8, vaswani, base 500"
    assert image(ax, 1)[7, 2] == pytest.approx(paper(7, 5, 8, 500.0))


def test_sines_are_beside_cosines() -> None:
    ax = plots.encoding(7, 20).axes[0]
    left, right = ax.images
    assert left.get_extent()[1] < right.get_extent()[0]
    assert left.get_clim() == right.get_clim() == (-1, 1)
    assert ax.get_xlabel() == "dimension: sines, cosines"


def test_the_colors_of_many_curves_follow_the_dimension() -> None:
    axes = plots.curves(512, 100, dimensions=range(0, 512, 64)).axes[0]
    shades = [sum(to_rgb(line.get_color())) for line in axes.lines]
    assert shades == sorted(set(shades))
    assert len(shades) == 8
    assert axes.get_legend() is None
    (bar,) = (other for other in axes.figure.axes if other is not axes)
    assert bar.get_ylim() == (0, 511)


def test_an_encoding_in_order_is_the_table_as_it_is() -> None:
    axes = plots.encoding(8, 20, convention="marian", in_order=True).axes[0]
    (image,) = axes.images
    table = sinusoidal_encoding(torch.arange(20), 8, convention="marian", dtype=torch.float64)
    assert np.allclose(image.get_array(), table, atol=1e-12)


def test_the_distances_of_few_positions_are_written_in_their_cells() -> None:
    axes = plots.distances(16, 10).axes[0]
    values = np.asarray(axes.images[0].get_array())
    words = {text.get_position(): text.get_text() for text in axes.texts if "," not in text.get_text()}
    assert words == {(column, row): f"{values[row, column]:.2f}" for row in range(10) for column in range(10)}
    assert len(plots.distances(16, 11).axes[0].texts) == 1  # the note


def test_curves_by_default_make_eight_four_two_and_one_turns() -> None:
    labels = [str(one.get_label()) for one in plots.curves(512, 100).axes[0].lines]
    turns = [100 / float(label.split(", ")[2].split()[0]) for label in labels]
    np.testing.assert_allclose(turns, [8, 4, 2, 1], rtol=0.05)


def test_each_position_oscillates_in_its_own_band() -> None:
    rows = table(101, 16)[[0, 1, 100]]
    lines = plots.oscillation(16, [0, 1, 100]).axes[0].lines
    for i in range(3):
        sine, cosine = lines[2 * i : 2 * i + 2]
        assert np.asarray(sine.get_xdata()).tolist() == list(range(0, 16, 2))
        np.testing.assert_allclose(np.asarray(sine.get_ydata()) + 3 * i, rows[i, 0::2], atol=1e-12)
        np.testing.assert_allclose(np.asarray(cosine.get_ydata()) + 3 * i, rows[i, 1::2], atol=1e-12)
    zeros = plots.oscillation(9, 4, convention="tensor2tensor").axes[0].lines
    assert np.concatenate([one.get_xdata() for one in zeros]).tolist() == list(range(8))


def test_clock_hands_point_at_cosine_and_sine() -> None:
    ax = plots.dials().axes[0]
    hands = np.array(ax.collections[-1].get_segments()).reshape(4, 10, 2, 2)  # pair, position, ends
    for pair in range(4):
        for position in range(10):
            center, tip = hands[pair, position]
            assert center.tolist() == [position, -pair]
            assert (tip - center) / 0.4 == pytest.approx(
                [paper(position, 2 * pair + 1, 8), paper(position, 2 * pair, 8)]
            )
    labels = [text.get_text().split("\n")[0] for text in ax.get_yticklabels()]
    assert labels == ["dimensions 0, 1", "dimensions 2, 3", "dimensions 4, 5", "dimensions 6, 7"]
    assert plots.dials(7, 4).axes[0].get_yticklabels()[-1].get_text().startswith("dimension 6\n")


def test_distances_are_euclidean_and_depend_on_the_offset_alone() -> None:
    ax = plots.distances(8, 30).axes[0]
    expected = [[math.dist(one, other) for other in table(30, 8)] for one in table(30, 8)]
    np.testing.assert_allclose(image(ax), expected, atol=1e-12)
    for k in range(30):
        np.testing.assert_allclose(np.diag(image(ax), k), image(ax)[0, k], atol=1e-9)
    assert ax.images[0].get_clim() == (0, image(ax).max())


def test_the_dot_product_is_a_sum_of_cosines_of_the_distance_from_any_start() -> None:
    rates = [1 / 10000 ** (2 * i / 64) for i in range(32)]
    expected = [sum(math.cos(k * rate) for rate in rates) for k in range(200)]
    ax = plots.similarity(64, 200, starts=(0, 10, 12345)).axes[0]
    for number in range(3):
        np.testing.assert_allclose(line(ax, number), expected, atol=1e-9)
    odd = plots.similarity(1, 50, starts=(1, 2)).axes[0]
    assert np.abs(line(odd, 0) - line(odd, 1)).max() > 0.1  # a sine without its cosine


def test_a_long_encoding_is_averaged() -> None:
    length, d_model = 4_321, 6
    ax = plots.encoding(d_model, length).axes[0]
    rows = table(length, d_model)
    for i, start in enumerate(range(0, length, 3)):
        np.testing.assert_allclose(image(ax)[i], rows[start : start + 3, ::2].mean(axis=0), atol=1e-9)
    assert note(ax).endswith("; each row is the mean of 3 positions")
    assert ax.images[0].get_extent() == [0, d_model / 2, length - 0.5, -0.5]
    assert np.abs(image(plots.encoding(2, 100_000).axes[0])).max() < 0.05  # every 50th position would show slow waves
    assert image(plots.encoding(4096, 1000).axes[0]).size <= 2**20  # a wide one takes no longer to draw


def test_of_many_distances_some_are_drawn() -> None:
    ax = plots.distances(8, 100_000).axes[0]
    assert image(ax).shape == (500, 500)
    ends = [[paper(position, column, 8) for column in range(8)] for position in (0, 1400)]
    assert image(ax)[0, 7] == pytest.approx(math.dist(*ends))
    assert "one of every 200 positions drawn" in note(ax).replace("\n", " ")
    ax = plots.similarity(8, 100_000).axes[0]
    assert len(line(ax)) == 2000
    assert "one of every 50 distances drawn" in note(ax)


def test_a_title_set_later_replaces_the_title_and_covers_nothing() -> None:
    ax = plots.encoding(8, 20).axes[0]
    ax.set_title("mine")
    figure = ax.figure
    figure.canvas.draw()
    below = next(text for text in ax.texts if text.get_gid() == "note")
    title, below, down = (text.get_window_extent() for text in (ax.title, below, ax.yaxis.label))
    assert ax.get_title() == "mine"
    assert below.y1 <= title.y0
    assert down.y1 <= title.y0
    assert title.x0 == pytest.approx(below.x0, abs=2)


@pytest.mark.parametrize(("name", "args", "settings"), CASES)
def test_words_are_inside_the_figure_do_not_overlap_and_are_large_enough(
    name: str, args: tuple[Any, ...], settings: dict[str, Any]
) -> None:
    figure = draw(name, *args, **settings)
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    words = [text for text in _words(figure) if text.get_visible() and text.get_text().strip()]
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in words]
    assert figure.axes[0].get_title() in [text for text, _ in boxes]
    assert all(text.get_fontsize() >= 7 for text in words)
    for text, box in boxes:
        assert figure.bbox.x0 - 1 <= box.x0, text
        assert box.x1 <= figure.bbox.x1 + 1, text
        assert figure.bbox.y0 - 1 <= box.y0, text
        assert box.y1 <= figure.bbox.y1 + 1, text
    assert _upon_each_other(boxes) == []
    assert max(figure.get_size_inches()) <= 10


def test_in_small_panels_words_do_not_overlap_and_legends_cover_no_line() -> None:
    figure = Figure(figsize=(9, 9), dpi=120, layout="constrained")
    panels = figure.subplots(3, 2).flatten()
    plots.dials(ax=panels[0])
    plots.encoding(32, 40, ax=panels[1])
    plots.oscillation(32, 5, ax=panels[2])
    plots.similarity(32, 40, ax=panels[3])
    plots.similarity(32, 40, starts=range(6), ax=panels[4])
    plots.curves(32, 40, ax=panels[5])
    figure.draw_without_rendering()
    words = [text for text in _words(figure) if text.get_visible() and text.get_text().strip()]
    assert _upon_each_other([(text.get_text(), text.get_window_extent()) for text in words]) == []
    for ax in panels[3:5]:
        assert ax.get_legend().get_window_extent().y1 < ax.get_window_extent().y0


def _upon_each_other(boxes: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    pairs = combinations(boxes, 2)
    return [(text, other) for (text, box), (other, its) in pairs if box.padded(-0.01, -0.5).overlaps(its)]


def _words(figure: Figure) -> Iterator[Any]:
    """Yield every text that is drawn; of the ticks, those inside the axes."""
    for ax in figure.axes:
        yield from (ax.title, *ax.texts)
        yield from ax.get_legend().get_texts() if ax.get_legend() else ()
        for one in (ax, *ax.child_axes):
            for axis in (one.xaxis, one.yaxis):
                yield axis.label
                low, high = sorted(axis.get_view_interval())
                yield from (tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high)
                yield from (tick.label2 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_drawn_into_given_axes_and_returns_their_figure(name: str) -> None:
    figure = Figure(figsize=(8, 4))
    left, right = figure.subfigures(1, 2)[0].subplots(2, 1)
    args, settings = SIZES[name][1]
    assert draw(name, *args, **settings, ax=right) is figure
    assert not left.has_data()
    assert right.has_data()
    assert right.get_title()


def test_pyplot_is_never_loaded_and_without_matplotlib_the_error_has_the_install_line(tmp_path: Path) -> None:
    calls = {"encoding": (2, 3), "curves": (4, 9), "dials": (4, 3)}
    script = f"""
import sys
from hf_posenc import plots
assert "matplotlib" not in sys.modules
for name, args in {calls}.items():
    plots.save(getattr(plots, name)(*args), sys.argv[1])
assert "matplotlib.pyplot" not in sys.modules
sys.modules["matplotlib"] = None
for name in sorted({{*plots.__all__}} - {{"attention_weights", "save"}}):
    try:
        getattr(plots, name)(*[{{}}] * 2)
    except ImportError as error:
        print(error)
"""
    arguments = [sys.executable, "-c", script, str(tmp_path / "picture.png")]
    run = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count('fix: pip install "matplotlib>=') == len(plots.__all__) - 2


def test_notebooks_show_a_figure_even_after_pickling() -> None:
    figure: Any = plots.dials(8)
    for shown in (figure, pickle.loads(pickle.dumps(figure))):
        assert shown._repr_png_().startswith(b"\x89PNG")


def test_pictures_are_saved_as_png_or_svg_and_equal_pictures_give_equal_svg_files(tmp_path: Path) -> None:
    assert plots.save(plots.curves(8, 20), tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    first = plots.save(plots.curves(8, 20), tmp_path / "one.svg").read_bytes()
    second = plots.save(plots.curves(8, 20).axes[0], str(tmp_path / "two.SVG"))
    assert first.startswith(b"<?xml")
    assert first == Path(second).read_bytes()
    assert b"<dc:date>" not in first
    assert len(list(tmp_path.iterdir())) == 3


def test_other_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.png or \.svg\n  got: 'picture.jpg'\n  fix: .*\.png'"):
        plots.save(plots.dials(8), tmp_path / "picture.jpg")


@for_each(
    ("call", "words"),
    [
        (
            lambda: plots.curves(512, 10, dimensions=[3, 900]),
            "dimensions must be integers from 0 to 511 with d_model=512\n  got: dimension 900",
        ),
        (lambda: plots.curves(512, 10**10), "a picture shows length up to 16,777,216\n  got: 10000000000"),
        (lambda: plots.encoding(10**11, 10), "a picture shows d_model up to 131,072\n  got: 100000000000"),
        (lambda: plots.curves(512, 10, dimensions=[]), "dimensions must not be empty\n  got: []"),
        (lambda: plots.curves(512, 10, dimensions=range(65)), "a picture can label at most 64 dimensions"),
        (lambda: plots.encoding(8, 0), "length must be positive\n  got: 0"),
        (lambda: plots.oscillation(8, range(13)), "a picture can label at most 12 positions"),
        (lambda: plots.dials(34), "a picture can label at most 16 pairs of dimensions"),
        (lambda: plots.dials(8, 33), "a picture shows positions up to 32"),
        (lambda: plots.similarity(8, 10, starts=range(7)), "a picture can label at most 6 starts"),
        *(
            (lambda name=name: draw(name, 1, convention="fairseq"), "no sine or cosine to draw\n  got: ")
            for name in ("oscillation", "dials")
        ),
    ],
)
def test_wrong_arguments_are_refused(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=r"\n  fix: ") as refused:
        call()
    assert words in str(refused.value)
