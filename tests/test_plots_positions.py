"""Position pictures: their numbers against formulas written out here, what the axes hold against those numbers.

Also what every picture must be: readable, harmless to `pyplot`, refused in clear words; and what a file gets.
"""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from hf_posenc import Convention, fixed_bases, plots
from hf_posenc.plots import canvas, numbers
from hf_posenc.sinusoid import CONVENTIONS, sinusoidal_encoding

PICTURES = [
    "curves",
    "degrees",
    "dials",
    "distances",
    "encoding",
    "frequencies",
    "offsets",
    "oscillation",
    "similarity",
    "sine_and_cosine",
]
# Every picture at its smallest, at a usual size, and where it has the most to say.
SIZES: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "encoding": [((1, 1), {}), ((128, 100), {"base": 500_000.0}), ((17, 100_000), {"transpose": True})],
    "curves": [((1, 1), {}), ((20, 100), {"columns": range(7)}), ((512, 100_000), {"columns": [0, 511]})],
    "frequencies": [
        ((1,), {}),
        ((512,), {"convention": "tensor2tensor"}),
        ((6,), {"convention": fixed_bases(4, 5, 7)}),
    ],
    "offsets": [((1, 1), {}), ((512, [10, 100, 1000]), {}), ((64, [1, 2, 3, 4, 5, 10**6]), {"convention": "marian"})],
    "sine_and_cosine": [((1, 1), {}), ((128, 100), {}), ((1024, 100_000), {"convention": "fairseq"})],
    "oscillation": [((1, 0), {}), ((128, [0, 1, 10, 100]), {}), ((9, range(12)), {"convention": "musicgen"})],
    "dials": [((), {}), ((1, 1), {}), ((32, 32), {"convention": "whisper"})],
    "degrees": [((), {}), (((4.5,),), {"length": 1}), (((2, 3, 5, 7, 11, 13, 17),), {"length": 100_000})],
    "distances": [((1, 1), {}), ((128, 100), {}), ((17, 100_000), {})],
    "similarity": [((1, 1), {}), ((129, 100), {"measure": "cosine"}), ((64, 100_000), {"starts": range(6)})],
}
CASES = [pytest.param(name, *case, id=f"{name}-{i}") for name in PICTURES for i, case in enumerate(SIZES[name])]


def draw(name: str, *args: Any, **settings: Any) -> Any:
    return getattr(plots, name)(*args, **settings)


def paper(position: int, column: int, d_model: int, base: float = 10000.0) -> float:
    """Vaswani et al. 2017, section 3.5."""
    angle = position / base ** (2 * (column // 2) / d_model)
    return math.cos(angle) if column % 2 else math.sin(angle)


def table(length: int, d_model: int) -> np.ndarray:
    return np.array([[paper(position, column, d_model) for column in range(d_model)] for position in range(length)])


# ------------------------------------------------------------------------------------- the numbers, and what axes hold


@pytest.mark.parametrize("d_model", [1, 2, 7, 16])
def test_the_encoding_is_the_paper_s_formula_and_the_image_holds_it(d_model: int) -> None:
    found = numbers.encoding(d_model, 30)
    np.testing.assert_allclose(found.values, table(30, d_model), atol=1e-12)
    assert found.positions.tolist() == list(range(30))
    assert found.columns.tolist() == list(range(d_model))
    image = plots.encoding(d_model, 30).images[0]
    assert np.array_equal(image.get_array(), found.values)
    assert image.get_clim() == (-1, 1)
    assert np.array_equal(plots.encoding(d_model, 30, transpose=True).images[0].get_array(), found.values.T)


@pytest.mark.parametrize("convention", [*CONVENTIONS, fixed_bases(4, 5, 7, 9), Convention("s", wavelengths=(1, 60))])
def test_every_convention_is_drawn_as_the_package_encodes_it(convention: str | Convention) -> None:
    for d_model in (8,) if getattr(convention, "bases", None) else (1, 2, 5, 8):
        rows = sinusoidal_encoding(range(40), d_model, convention=convention).numpy()
        settings: dict[str, Any] = {"convention": convention}
        np.testing.assert_allclose(numbers.encoding(d_model, 40, **settings).values, rows, atol=1e-6)
        waves = numbers.curves(d_model, 40, columns=range(d_model), **settings)
        np.testing.assert_allclose(waves.values, rows, atol=1e-6)
        apart = numbers.sine_and_cosine(d_model, 40, **settings)
        for one in apart:
            np.testing.assert_allclose(one.values, rows[:, one.columns], atol=1e-6)
        used = np.concatenate([one.columns for one in apart])
        assert not rows[:, np.setdiff1d(range(d_model), used)].any()  # what is neither is a column of zeros
        assert waves.cosine.tolist() == [column in apart.cosines.columns for column in range(d_model)]
        dials = numbers.dials(d_model, 40, **settings)
        for angles, (sine, *cosine) in zip(dials.angles, dials.pairs, strict=True):
            if sine in apart.sines.columns:
                np.testing.assert_allclose(np.sin(angles), rows[:, sine], atol=1e-6)
            if cosine:
                np.testing.assert_allclose(np.cos(angles), rows[:, cosine[0]], atol=1e-6)


def test_a_base_changes_the_picture_and_stands_in_its_title() -> None:
    usual, other = plots.encoding(8, 20), plots.encoding(8, 20, base=500.0)
    assert other.get_title(loc="left") == "20 positions × 8 columns, vaswani, base 500"
    assert not np.array_equal(usual.images[0].get_array(), other.images[0].get_array())
    assert other.images[0].get_array()[7, 5] == pytest.approx(paper(7, 5, 8, 500.0))


def test_sines_and_cosines_stand_apart() -> None:
    rows = table(20, 7)
    sines, cosines = numbers.sine_and_cosine(7, 20)
    np.testing.assert_allclose(sines.values, rows[:, 0::2], atol=1e-12)
    np.testing.assert_allclose(cosines.values, rows[:, 1::2], atol=1e-12)
    ax = plots.sine_and_cosine(7, 20)
    left, right = ax.images
    assert np.array_equal(left.get_array(), sines.values)
    assert np.array_equal(right.get_array(), cosines.values)
    assert left.get_extent()[1] < right.get_extent()[0]
    assert [text.get_text() for text in ax.texts] == ["sines (even columns)", "cosines (odd columns)"]


def test_curves_are_the_columns_asked_for() -> None:
    lines = plots.curves(20, 50, columns=[4, 5, 6]).lines
    for line, column in zip(lines, (4, 5, 6), strict=True):
        assert line.get_xdata().tolist() == list(range(50))
        np.testing.assert_allclose(line.get_ydata(), table(50, 20)[:, column], atol=1e-12)
    assert lines[0].get_label() == f"column 4, sine, {2 * math.pi * 10000 ** (4 / 20):.1f} positions a turn"
    assert len(plots.curves(20, 50, columns=3).lines) == 1


def test_curves_that_nobody_chose_turn_eight_four_two_times_and_once() -> None:
    waves = numbers.curves(512, 100)
    np.testing.assert_allclose(100 / waves.wavelengths, [8, 4, 2, 1], rtol=0.05)


def test_frequencies_decay_as_the_formula_says_and_wavelengths_stand_on_the_right() -> None:
    expected = [1 / 10000 ** (2 * i / 64) for i in range(32)]
    found = numbers.frequencies(64)
    np.testing.assert_allclose(found.frequencies, expected)
    np.testing.assert_allclose(found.wavelengths, [2 * math.pi / each for each in expected])
    ax = plots.frequencies(64)
    assert np.array_equal(ax.lines[0].get_ydata(), found.frequencies)
    assert ax.get_yscale() == "log"
    (right,) = ax.child_axes
    ax.figure.canvas.draw()
    np.testing.assert_allclose(sorted(right.get_ylim()), sorted(2 * np.pi / np.array(ax.get_ylim())))


def test_an_offset_is_the_decay_times_the_position() -> None:
    decay = [1 / 10000 ** (2 * (column // 2) / 16) for column in range(16)]
    found = numbers.offsets(16, [3, 50])
    np.testing.assert_allclose(found.decay, decay)
    np.testing.assert_allclose(found.angles, [[3 * each for each in decay], [50 * each for each in decay]])
    lines = plots.offsets(16, [3, 50]).lines
    assert np.array_equal(lines[0].get_ydata(), found.decay)
    assert np.array_equal([line.get_ydata() for line in lines[1:3]], found.angles)
    np.testing.assert_allclose(lines[3].get_ydata(), 2 * math.pi)  # the line of one turn
    halves = plots.offsets(16, 3, convention="marian").lines[1].get_ydata()
    assert np.flatnonzero(np.isnan(halves)).tolist() == [8]  # a gap where the sines end
    assert np.array_equal(halves[~np.isnan(halves)], numbers.offsets(16, 3, convention="marian").angles[0])


def test_a_position_oscillates_over_the_columns_in_its_own_lane() -> None:
    rows = table(101, 16)[[0, 1, 100]]
    found = numbers.oscillation(16, [0, 1, 100])
    np.testing.assert_allclose(found.values, rows, atol=1e-12)
    lines = plots.oscillation(16, [0, 1, 100]).lines
    for i in range(3):
        sine, cosine = lines[2 * i : 2 * i + 2]
        assert sine.get_xdata().tolist() == list(range(0, 16, 2))
        np.testing.assert_allclose(sine.get_ydata() + 3 * i, rows[i, 0::2], atol=1e-12)
        np.testing.assert_allclose(cosine.get_ydata() + 3 * i, rows[i, 1::2], atol=1e-12)
    zeros = plots.oscillation(9, 4, convention="tensor2tensor").lines
    assert np.concatenate([line.get_xdata() for line in zeros]).tolist() == list(range(8))


def test_hands_point_at_cosine_and_sine() -> None:
    ax = plots.dials()
    hands = np.array(ax.collections[-1].get_segments()).reshape(4, 10, 2, 2)  # pair, position, centre and tip, x and y
    for pair in range(4):
        for position in range(10):
            centre, tip = hands[pair, position]
            assert centre.tolist() == [position, -pair]
            across, up = (tip - centre) / 0.4
            assert across == pytest.approx(paper(position, 2 * pair + 1, 8))
            assert up == pytest.approx(paper(position, 2 * pair, 8))
    turned = numbers.dials().angles[:, -1]
    assert (np.diff(turned) < 0).all()  # each turns more slowly than the one above
    assert [text.get_text().split("\n")[0] for text in ax.get_yticklabels()] == [
        "columns 0, 1",
        "columns 2, 3",
        "columns 4, 5",
        "columns 6, 7",
    ]
    assert plots.dials(7, 4).get_yticklabels()[-1].get_text().startswith("column 6\n")


def test_degrees_of_fixed_bases_come_again_after_their_least_common_multiple() -> None:
    found = numbers.degrees((4, 5, 7), 281)
    for i, base in enumerate((4, 5, 7)):
        np.testing.assert_allclose(found.degrees[:, i], [360 * (position % base) / base for position in range(281)])
    assert found.period == 140
    assert np.array_equal(found.degrees[:141], found.degrees[140:])
    rows = sinusoidal_encoding(range(281), 6, convention=fixed_bases(4, 5, 7)).numpy()
    np.testing.assert_allclose(np.sin(np.radians(found.degrees)), rows[:, 0::2], atol=1e-6)
    assert numbers.degrees((4, 4.5), 3).period is None
    lines = plots.degrees().lines
    for line, expected in zip(lines, numbers.degrees().degrees.T, strict=True):
        drawn = line.get_ydata()
        assert np.array_equal(drawn[~np.isnan(drawn)], expected)  # with a gap at every start from zero


def test_distances_are_euclidean_and_depend_on_how_far_apart_positions_are() -> None:
    rows = table(30, 8)
    expected = [[math.dist(one, other) for other in rows] for one in rows]
    found = numbers.distances(8, 30)
    np.testing.assert_allclose(found.distances, expected, atol=1e-12)
    for k in range(30):
        np.testing.assert_allclose(np.diag(found.distances, k), found.distances[0, k], atol=1e-9)
    image = plots.distances(8, 30).images[0]
    assert np.array_equal(image.get_array(), found.distances)
    assert image.get_clim() == (0, found.distances.max())


def test_the_dot_product_is_a_sum_of_cosines_of_the_distance_wherever_one_starts() -> None:
    frequencies = [1 / 10000 ** (2 * i / 64) for i in range(32)]
    expected = [sum(math.cos(k * each) for each in frequencies) for k in range(200)]
    found = numbers.similarity(64, 200, starts=(0, 10, 12345))
    np.testing.assert_allclose(found.values, [expected] * 3, atol=1e-9)
    lines = plots.similarity(64, 200, starts=(0, 10, 12345)).lines
    assert np.array_equal([line.get_ydata() for line in lines], found.values)
    alike = numbers.similarity(64, 200, measure="cosine").values
    np.testing.assert_allclose(alike, found.values / 32, atol=1e-9)
    alone = numbers.similarity(1, 50, starts=(1, 2)).values
    assert np.abs(alone[0] - alone[1]).max() > 0.1  # a sine without its cosine knows where it is
    assert np.isfinite(numbers.similarity(1, 3, measure="cosine").values).all()  # width 1 is zero at position 0


# ------------------------------------------------------------------------------------------------------------ long axes


def test_a_long_encoding_is_averaged_not_thinned_out() -> None:
    length, d_model = 4_321, 6
    found = numbers.encoding(d_model, length)
    assert found.step == 3
    assert found.positions.tolist() == list(range(0, length, 3))
    rows = table(length, d_model)
    for i, start in enumerate(found.positions.tolist()):
        np.testing.assert_allclose(found.values[i], rows[start : start + 3].mean(axis=0), atol=1e-9)
    ax = plots.encoding(d_model, length)
    assert ax.get_title(loc="left").endswith("\neach row is the mean of 3 positions")
    assert ax.images[0].get_extent() == [-0.5, d_model - 0.5, length - 0.5, -0.5]
    fast = numbers.encoding(2, 100_000).values
    assert np.abs(fast).max() < 0.05  # every 50th position would show waves that are not there


def test_a_wide_encoding_keeps_sines_and_cosines() -> None:
    found = numbers.encoding(2500, 3)
    assert found.columns.tolist() == list(range(0, 2500, 3))
    assert "every 3rd column drawn" in plots.encoding(2500, 3).get_title(loc="left")
    sines, cosines = numbers.sine_and_cosine(2500, 3)
    assert abs(len(sines.columns) - len(cosines.columns)) <= 1


def test_a_long_curve_keeps_points_of_the_wave_and_all_its_peaks() -> None:
    waves = numbers.curves(512, 100_000, columns=[0, 501])
    assert len(waves.values) == 2000
    for i, column in enumerate((0, 501)):
        positions = waves.positions[:, i]
        assert (np.diff(positions) >= 0).all()
        expected = [paper(position, column, 512) for position in positions.tolist()]
        np.testing.assert_allclose(waves.values[:, i], expected, atol=1e-9)
    stretches = waves.values[:, 0].reshape(-1, 2)
    assert (stretches.max(axis=1) > 0.99).all()  # a band, as from afar
    assert (stretches.min(axis=1) < -0.99).all()
    title = plots.curves(512, 100_000).get_title(loc="left")
    assert title.endswith("\nlowest and highest of every 100 positions drawn")


def test_long_matrices_and_distances_take_every_so_manyth_position() -> None:
    found = numbers.distances(8, 100_000)
    assert found.step == 200
    assert found.distances.shape == (500, 500)
    assert found.distances[0, 7] == pytest.approx(
        math.dist([paper(0, c, 8) for c in range(8)], [paper(1400, c, 8) for c in range(8)])
    )
    assert "every 200th position drawn" in plots.distances(8, 100_000).get_title(loc="left")
    assert numbers.similarity(8, 100_000).values.shape == (3, 2000)
    assert "every 50th distance drawn" in plots.similarity(8, 100_000).get_title(loc="left")


# ---------------------------------------------------------------------------------------------- as pictures should be


@pytest.mark.parametrize(("name", "args", "settings"), CASES)
def test_words_are_whole_apart_and_large_enough(name: str, args: tuple[Any, ...], settings: dict[str, Any]) -> None:
    ax = draw(name, *args, **settings)
    figure = ax.figure
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    words = [text for text in _words(figure) if text.get_visible() and text.get_text().strip()]
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in words]
    assert ax.get_title(loc="left") in [text for text, _ in boxes]
    assert all(text.get_fontsize() >= 7 for text in words)
    for text, box in boxes:
        assert figure.bbox.x0 - 1 <= box.x0, text
        assert box.x1 <= figure.bbox.x1 + 1, text
        assert figure.bbox.y0 - 1 <= box.y0, text
        assert box.y1 <= figure.bbox.y1 + 1, text
    assert _upon_each_other(boxes) == []
    assert max(figure.get_size_inches()) <= 10


def test_in_a_small_panel_no_word_lies_on_another_and_no_legend_on_a_line() -> None:
    figure = canvas.new_figure(9, 7.5)
    panels = figure.subplots(3, 2).flatten()
    plots.dials(ax=panels[0])
    plots.sine_and_cosine(32, 40, ax=panels[1])
    plots.offsets(32, 5, ax=panels[2])  # the line of one turn is the highest thing in it
    plots.similarity(32, 40, ax=panels[3])
    plots.similarity(32, 40, measure="cosine", ax=panels[4])
    plots.degrees(ax=panels[5])
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    words = [text for text in _words(figure) if text.get_visible() and text.get_text().strip()]
    assert _upon_each_other([(text.get_text(), text.get_window_extent(renderer)) for text in words]) == []
    for ax in panels[3:5]:
        assert ax.get_legend().get_window_extent(renderer).y1 < ax.get_window_extent(renderer).y0


def _upon_each_other(boxes: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    found = []
    for i, (text, box) in enumerate(boxes):
        for other, its in boxes[:i]:
            across = min(box.x1, its.x1) - max(box.x0, its.x0)
            up = min(box.y1, its.y1) - max(box.y0, its.y0)
            if across > 0 and up > 0.5:
                found.append((text, other))
    return found


def _words(figure: Figure) -> Iterator[Any]:
    """Every text that is drawn; of the ticks those inside the axes."""
    for ax in figure.axes:
        yield from (ax.title, ax._left_title, *ax.texts)  # type: ignore[attr-defined]
        yield from ax.get_legend().get_texts() if ax.get_legend() else ()
        for one in (ax, *ax.child_axes):
            for axis in (one.xaxis, one.yaxis):
                yield axis.label
                low, high = sorted(axis.get_view_interval())
                yield from (tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high)
                yield from (tick.label2 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high)


def test_colours_are_those_for_any_colour_vision() -> None:
    allowed = {to_hex(colour) for colour in (*canvas.LINES, canvas.FADED, canvas.INK)}
    for name in ("curves", "degrees", "frequencies", "offsets", "oscillation", "similarity"):
        for args, settings in SIZES[name][:2]:
            assert {to_hex(line.get_color()) for line in draw(name, *args, **settings).lines} <= allowed
    assert plots.encoding(4, 4).images[0].get_cmap().name == "PuOr"
    assert plots.distances(4, 4).images[0].get_cmap().name == "cividis"


@pytest.mark.parametrize("name", PICTURES)
def test_axes_of_yours_hold_the_picture_and_come_back(name: str) -> None:
    figure = Figure(figsize=(8, 4))
    left, right = figure.subfigures(1, 2)[0].subplots(2, 1)
    args, settings = SIZES[name][1]
    assert draw(name, *args, **settings, ax=right) is right
    assert not left.has_data()
    assert right.has_data()
    assert right.get_title(loc="left")
    with pytest.raises(TypeError, match=r"ax must be matplotlib axes\n  got: Figure"):
        draw(name, *args, **settings, ax=figure)


def test_pyplot_is_never_loaded_and_numbers_need_no_matplotlib(tmp_path: Path) -> None:
    calls = {name: SIZES[name][0][0] for name in PICTURES}
    script = f"""
import sys
from hf_posenc import plots
for name, args in {calls}.items():
    getattr(plots.numbers, name)(*args)
assert "matplotlib" not in sys.modules
for name, args in {calls}.items():
    plots.canvas.save(getattr(plots, name)(*args), sys.argv[1])
assert "matplotlib.pyplot" not in sys.modules
sys.modules["matplotlib"] = None
for name, args in {calls}.items():
    try:
        getattr(plots, name)(*args)
    except ImportError as error:
        print(error)
"""
    arguments = [sys.executable, "-c", script, str(tmp_path / "picture.png")]
    run = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count('fix: pip install "hf-posenc[plots]"') == len(PICTURES)


def test_a_notebook_is_given_the_picture_of_axes_and_figures_also_of_those_from_another_process() -> None:
    ax = plots.frequencies(8)
    for shown in (ax, pickle.loads(pickle.dumps(ax.figure))):
        assert shown._repr_png_().startswith(b"\x89PNG")


# -------------------------------------------------------------------------------------------------------------- files


def test_png_and_svg_are_saved_and_an_svg_is_the_same_every_time(tmp_path: Path) -> None:
    for name in PICTURES:
        args, settings = SIZES[name][1]
        path = canvas.save(draw(name, *args, **settings), tmp_path / f"{name}.png")
        assert path.read_bytes().startswith(b"\x89PNG")
    first = canvas.save(plots.curves(8, 20), tmp_path / "one.svg").read_bytes()
    second = canvas.save(plots.curves(8, 20).figure, str(tmp_path / "two.SVG"))
    assert first.startswith(b"<?xml")
    assert first == Path(second).read_bytes()
    assert b"<dc:date>" not in first
    assert len(list(tmp_path.iterdir())) == len(PICTURES) + 2


def test_a_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ax = plots.frequencies(8)
    old = tmp_path / "old.png"
    old.write_bytes(b"as it was")

    def fails(file: Any, **settings: Any) -> None:
        file.write(b"half a pic")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ax.figure, "savefig", fails)
    for name in ("old.png", "new.svg"):
        with pytest.raises(ValueError, match=r"cannot be written\n  got: .*: No space left on device\n  fix: "):
            canvas.save(ax, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["old.png"]
    assert old.read_bytes() == b"as it was"


@pytest.mark.parametrize("name", ["picture.jpg", "picture", "png", "picture.png.txt"])
def test_a_file_of_another_kind_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"must end in \.png or \.svg\n  got: '{name}'\n  fix: .*\.png'"):
        canvas.save(plots.frequencies(8), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot be written\n  got: .*absent.*: No such file"):
        canvas.save(plots.frequencies(8), tmp_path / "absent" / "picture.png")


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: plots.curves(512, 10, columns=[3, 900]), ValueError, "column 900; d_model=512 has columns 0 to 511"),
        (lambda: plots.curves(512, 10, columns=-1), ValueError, "column -1; d_model=512 has columns 0 to 511"),
        (lambda: plots.curves(1, 10, columns=1), ValueError, "column 1; d_model=1 has column 0"),
        (lambda: plots.curves(512, 10**10), ValueError, "room for length up to 16,777,216\n  got: 10000000000"),
        (lambda: plots.encoding(10**11, 10), ValueError, "room for d_model up to 131,072\n  got: 100000000000"),
        (lambda: plots.frequencies(10**11), ValueError, "room for d_model up to 131,072"),
        (lambda: plots.distances(10**11, 10), ValueError, "room for d_model up to 131,072"),
        (lambda: plots.curves(512, 10, columns=["4"]), TypeError, "columns must be whole numbers\n  got: ['4']"),
        (lambda: plots.curves(512, 10, columns=[0.5]), TypeError, "columns must be whole numbers"),
        (lambda: plots.curves(512, 10, columns=[]), TypeError, "columns must be whole numbers\n  got: []"),
        (lambda: plots.curves(512, 10, columns=[[1], [2, 3]]), TypeError, "columns must be whole numbers"),
        (lambda: plots.curves(512, 10, columns=range(8)), ValueError, "at most 7 columns can be labelled"),
        (lambda: plots.encoding(0, 10), ValueError, "d_model must be positive\n  got: 0"),
        (lambda: plots.encoding(8, 0), ValueError, "length must be at least 1\n  got: 0"),
        (lambda: plots.encoding(8, True), ValueError, "length must be at least 1\n  got: True"),
        (lambda: plots.encoding(8, 2.5), TypeError, "length must be a whole number\n  got: 2.5"),
        (lambda: plots.encoding(8, 4, convention="vaswany"), ValueError, "fix: convention='vaswani'"),
        (lambda: plots.encoding(8, 4, base=math.nan), ValueError, "base must be finite"),
        (lambda: plots.offsets(8, 0), ValueError, "position 0 turns no column"),
        (lambda: plots.offsets(8, -3), ValueError, "position must be 0 or more\n  got: -3"),
        (lambda: plots.offsets(8, range(1, 8)), ValueError, "at most 6 positions can be labelled"),
        (lambda: plots.oscillation(8, math.nan), TypeError, "positions must be whole numbers\n  got: nan"),
        (lambda: plots.oscillation(8, range(13)), ValueError, "at most 12 positions can be labelled"),
        (lambda: plots.dials(34), ValueError, "at most 16 pairs of columns can be labelled"),
        (lambda: plots.dials(8, 33), ValueError, "at most 32 positions can be labelled"),
        (lambda: plots.degrees((4, 1)), ValueError, "larger than 1"),
        (lambda: plots.degrees(range(2, 10)), ValueError, "at most 7 bases can be labelled"),
        (lambda: plots.similarity(8, 10, measure="dots"), ValueError, "fix: measure='dot'"),
        (lambda: plots.similarity(8, 10, starts=range(7)), ValueError, "at most 6 starts can be labelled"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as refused:
        call()
    assert words in str(refused.value)
    assert "\n  fix: " in str(refused.value)


def test_nothing_is_drawn_into_axes_of_a_call_that_is_refused() -> None:
    ax = Figure().subplots()
    with pytest.raises(ValueError, match="column 900"):
        plots.curves(512, 10, columns=[3, 900], ax=ax)
    with pytest.raises(ValueError, match="at most 7"):
        plots.curves(512, 10, columns=range(8), ax=ax)
    assert not ax.has_data()
    assert not ax.get_title(loc="left")


def test_numbers_that_are_none_are_refused_with_their_place() -> None:
    values = np.zeros((3, 4))
    values[1, 2], values[2, 0] = math.nan, math.inf
    with pytest.raises(
        ValueError, match=r"NaN or infinity in the data: 'losses'.*\n  got: nan at losses\[1, 2\]; 2 of 12"
    ):
        canvas.check_finite("losses", values)
