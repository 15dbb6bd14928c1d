"""The page in gradio: controls on the left and outputs on the right, updated at every change of a control.

Nothing is computed here: `shown`, `tables`, `pictures` and `code` make the outputs.
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
    r"""Return the page; launch it with `page.launch(**look())`.

    Args:
        folders (`bool`): True to let visitors load a tokenizer from a local folder; False for a public page.

    Returns:
        `gradio.Blocks`.

    Raises:
        ImportError: if gradio is not installed.
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
    r"""Return the theme and style sheet for `launch`, without fonts or scripts from other servers.

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
    # The theme's own gray for secondary text is too pale to read.
    theme = theme.set(body_text_color_subdued="*neutral_500", body_text_color_subdued_dark="*neutral_400")
    css = Path(__file__).with_name("look.css").read_text(encoding="utf-8")
    return {"theme": theme, "css": css, "footer_links": []}


def need_gradio() -> Any:
    """Return the gradio module; raise `ImportError` with the install command if it is missing."""
    try:
        import gradio
    except ImportError as error:
        raise ImportError(
            explain("the page needs gradio, which is not installed", fix='pip install "hf-posenc[explore]"')
        ) from error
    return gradio


def answer(folders: bool, controls: dict[str, Any]) -> dict[str, str]:
    r"""Return every output of the page except the pictures.

    Args:
        folders (`bool`): as in `build`.
        controls (mapping): values of the controls, by name.

    Returns:
        `dict` from the name of an output to its HTML or Python code. It never raises: an error becomes a message on the
        page, and the traceback of a bug is printed to the server's stderr.
    """
    try:
        shown = show(_settings(folders, controls))
        return {**_numbers(shown), "messages": messages(shown), "code": python_of(shown)}
    except Exception as error:
        refused = messages(Shown(Settings(), problems=(_worded(error),)))
        return {**dict.fromkeys(TEXTS, ""), "messages": refused}


def draw(folders: bool, controls: dict[str, Any]) -> Iterator[dict[str, str]]:
    r"""Yield the pictures one by one; empty ones if the values of the controls raise an error.

    Args:
        folders (`bool`), controls (mapping): as in `answer`.

    Returns:
        Iterator over dicts from the name of an output to its HTML. It never raises.
    """
    try:
        shown = show(_settings(folders, controls))
    except Exception:  # answer() shows the message
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
    """Return the message for the page; for a bug only its type and first line, with the traceback on stderr."""
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
    """Update the outputs at every change of a control; during an update only the last change is queued."""
    # `Settings` checks the values and gives our messages; gradio's own checks would show a toast and a traceback.
    quiet: dict[str, Any] = {
        "show_progress": "hidden",
        "api_visibility": "private",
        "preprocess": False,
        "trigger_mode": "always_last",
    }
    asked = {"inputs": list(controls.values()), **quiet}
    # The folder updates on Enter only, when the path is complete.
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
    # Choosing the trained table also sets its tokenizer and width. If those change later, a note names the table used.
    embedding.input(
        lambda kind: ("bert", TRAINED_WIDTH) if kind == "trained" else (gr.skip(), gr.skip()),
        embedding,
        [tokenizer, width],
        **quiet,
    )
    tokenizer.change(lambda kind: gr.update(visible=kind == "folder"), tokenizer, folder, **quiet)
