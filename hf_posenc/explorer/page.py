"""The page: controls on the left, what they make on the right, everything anew at every change.

It knows gradio and nothing of the numbers; `shown`, `tables`, `pictures` and `code` make what it displays.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._explain import explain
from ..sinusoid import CONVENTIONS
from . import words
from .code import python_of
from .pictures import PICTURES, picture
from .settings import RANGES, Settings
from .shown import Shown, show
from .sources import TRAINED_WIDTH, has_bert
from .tables import batch_table, facts_table, messages, notes, numbers_table, refusal

if TYPE_CHECKING:
    import gradio as gr


def build(*, folders: bool) -> gr.Blocks:
    r"""The page, ready to launch with `look()`.

    Args:
        folders (`bool`): whether a folder of this machine may be named; not where strangers can reach the page.

    Returns:
        `gradio.Blocks`.

    Raises:
        ImportError: if gradio is not installed, with the line that installs it.
    """
    gr = need_gradio()
    with gr.Blocks(title="hf_posenc: positions and masks", analytics_enabled=False, fill_width=True) as page:
        gr.HTML(words.HEAD, elem_id="head")
        with gr.Row(elem_id="body"):
            with gr.Column(scale=3, min_width=300, elem_id="controls"):
                controls = _controls(gr, folders)
            with gr.Column(scale=9, min_width=320, elem_id="shown"):
                outputs = _outputs(gr)
        _wire(gr, page, controls, outputs, folders)
    return page


def look() -> dict[str, Any]:
    r"""How the page looks, for `launch`: no font, script or style comes from anywhere else.

    Returns:
        `dict` with `theme`, `css` and `footer_links`.

    Raises:
        ImportError: if gradio is not installed.
    """
    gr = need_gradio()
    theme = gr.themes.Base(
        primary_hue=gr.themes.colors.blue,
        neutral_hue=gr.themes.colors.slate,
        font=("system-ui", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif"),
        font_mono=("ui-monospace", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace"),
    )
    # The theme's own grey for what is said beside is too pale to read.
    theme = theme.set(body_text_color_subdued="*neutral_500", body_text_color_subdued_dark="*neutral_400")
    css = Path(__file__).with_name("look.css").read_text(encoding="utf-8")
    return {"theme": theme, "css": css, "footer_links": []}


def need_gradio() -> Any:
    """gradio; raises, with the line that installs it, where it is missing."""
    try:
        import gradio
    except ImportError as error:
        raise ImportError(
            explain("the page needs gradio, which is not installed", fix='pip install "hf-posenc[explore]"')
        ) from error
    return gradio


def answer(folders: bool, controls: dict[str, Any]) -> dict[str, str]:
    r"""Everything on the page but the pictures.

    Args:
        folders (`bool`): as in `build`.
        controls (mapping): what the controls hold, by name.

    Returns:
        `dict` from the name of an output to its HTML or Python. It never raises: a fault of ours is printed where the
        page is served, and said on the page.
    """
    try:
        shown = show(_settings(folders, controls))
        return {**_numbers(shown), "messages": messages(shown), "code": python_of(shown)}
    except Exception as error:
        refused = messages(Shown(Settings(), problems=(_worded(error),)))
        return {**dict.fromkeys(TEXTS, ""), "messages": refused}


def draw(folders: bool, controls: dict[str, Any]) -> Iterator[dict[str, str]]:
    r"""The pictures, one after the other: none where the controls were refused.

    Args:
        folders (`bool`), controls (mapping): as in `answer`.

    Returns:
        An iterator over mappings from the name of an output to its HTML. It never raises.
    """
    try:
        shown = show(_settings(folders, controls))
    except Exception:  # answer() says it
        yield dict.fromkeys(PICTURES, "")
        return
    for name in PICTURES:
        try:
            yield {name: picture(name, shown)}
        except Exception as error:
            yield {name: refusal(_worded(error))}


def _settings(folders: bool, controls: dict[str, Any]) -> Settings:
    settings = Settings.read(controls)
    if settings.tokenizer == "folder" and not folders:
        raise ValueError(explain("folders cannot be chosen here", fix="hf-posenc explore, on your own machine"))
    return settings


def _worded(error: Exception) -> str:
    """What a visitor is told; of a fault of ours no more than its kind, while whoever serves it sees all."""
    text = str(error)
    if "\n  fix: " in text or "\n  got: " in text:
        return text
    traceback.print_exception(error, file=sys.stderr)
    first = f"{type(error).__name__}: {text.partition(chr(10))[0]}"
    return explain("this is a fault of hf_posenc, not yours", got=first, fix="please report it, with the text")


TEXTS = ("messages", "batch", "facts", "encoding_numbers", "distances_numbers", "embeddings_numbers", "code")


def _numbers(shown: Shown) -> dict[str, str]:
    embeds = shown.batch["inputs_embeds"][0].numpy() if "inputs_embeds" in shown.batch else None
    return {
        "batch": batch_table(shown),
        "facts": facts_table(shown.batch),
        "encoding_numbers": numbers_table(shown.encoding, "position", across="column"),
        "distances_numbers": numbers_table(shown.distances, "from", across="to"),
        "embeddings_numbers": notes(shown.said_of_embeddings)
        + numbers_table(embeds, "token", shown.tokens[0] if shown.tokens else None, across="column"),
    }


def _controls(gr: Any, folders: bool) -> dict[str, Any]:
    bert = {"tokenizer": "bert", "embedding": "trained", "d_model": TRAINED_WIDTH}
    start = Settings.read({"text": words.TEXT, **(bert if has_bert() else {"tokenizer": "bpe"})})
    made: dict[str, Any] = {}

    def add(name: str, kind: Any, **how: Any) -> None:
        made[name] = kind(value=getattr(start, name), label=words.LABELS[name], elem_id=name, **how)

    def ranged(name: str) -> None:
        least, most = RANGES[name]
        add(name, gr.Slider, minimum=least, maximum=most, step=1, buttons=[])

    def offered(names: list[str]) -> list[tuple[str, str]]:
        return [(words.CHOICES[name], name) for name in names]

    with gr.Group():
        add("text", gr.Textbox, lines=3, max_lines=6)
        add("tokenizer", gr.Radio, choices=offered(["bert"] * has_bert() + ["bpe"] + ["folder"] * folders))
        add("folder", gr.Textbox, visible=False, placeholder=words.INFO["folder"], submit_btn=True)
        add("padding_side", gr.Radio, choices=offered(["right", "left"]))
        with gr.Row(elem_classes=["pair"]):
            add("look_ahead", gr.Checkbox)
            add("packing", gr.Checkbox)
        ranged("max_length")
    with gr.Group():
        ranged("d_model")
        ranged("positions")
        with gr.Row(elem_classes=["pair"]):
            add("convention", gr.Dropdown, choices=[*CONVENTIONS], min_width=120)
            add("base", gr.Number, min_width=120)
    with gr.Group():
        add("embedding", gr.Radio, choices=offered(["random"] + ["trained"] * has_bert()))
        add("scale", gr.Radio, choices=offered(["none", "sqrt_d"]))
    return made


def _outputs(gr: Any) -> dict[str, Any]:
    made = {"messages": gr.HTML(elem_id="messages")}
    for name, inside in words.SECTIONS.items():
        gr.HTML(words.section(name), elem_classes=["section"])
        if name == "python":
            made["code"] = gr.Code(
                language="python",
                interactive=False,
                buttons=["copy"],
                show_label=False,
                elem_id="code",
                max_lines=36,
                wrap_lines=True,
                show_line_numbers=False,
            )
            continue
        for part in inside.parts:
            made[part] = gr.HTML(elem_id=f"shown_{part}")
    return made


def _wire(gr: Any, page: Any, controls: dict[str, Any], outputs: dict[str, Any], folders: bool) -> None:
    """Every change of a control asks anew; while an answer is on its way, only the last change waits."""
    # Settings checks what arrives, in our words: gradio's own checks would end in a toast and a traceback.
    quiet: dict[str, Any] = {
        "show_progress": "hidden",
        "api_visibility": "private",
        "preprocess": False,
        "trigger_mode": "always_last",
    }
    asked = {"inputs": list(controls.values()), **quiet}
    # A path makes sense when it is complete.
    changed = [control.submit if name == "folder" else control.change for name, control in controls.items()]

    def held(values: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(controls, values, strict=True))

    def tell(*values: Any) -> list[Any]:
        told = answer(folders, held(values))
        return [told[name] for name in TEXTS]

    def paint(*values: Any) -> Iterator[list[Any]]:
        for part in draw(folders, held(values)):
            yield [part.get(name, gr.skip()) for name in PICTURES]

    gr.on([page.load, *changed], tell, outputs=[outputs[name] for name in TEXTS], **asked)
    gr.on([page.load, *changed], paint, outputs=[outputs[name] for name in PICTURES], **asked)
    tokenizer, folder, embedding, width = (controls[name] for name in ("tokenizer", "folder", "embedding", "d_model"))
    # Whoever picks the trained table gets what goes with it; moved on from there, the page says what it uses instead.
    embedding.input(
        lambda kind: ("bert", TRAINED_WIDTH) if kind == "trained" else (gr.skip(), gr.skip()),
        embedding,
        [tokenizer, width],
        **quiet,
    )
    tokenizer.change(lambda kind: gr.update(visible=kind == "folder"), tokenizer, folder, **quiet)
