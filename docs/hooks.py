"""Hooks of the documentation's build: pages from outside of docs/, notebooks, links, pictures, docstrings as Markdown.

Pages link to files of the repository by relative paths, which also work where the repository itself is read. Here a
link to a page becomes a link inside the site, a picture is copied into the site, and other files are linked on GitHub.
The comment `<!-- view of the batch -->` becomes the interactive view of the `batch` that the code block above it makes,
`<!-- the lab -->` the Input Lab, and `<!-- picture: plots.dials() -->` the picture that the expression draws.
"""

from __future__ import annotations

import base64
import functools
import importlib
import inspect
import json
import logging
import os
import re
import tempfile
import textwrap
from html import escape, unescape
from pathlib import Path
from typing import Any

import griffe
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

REPO = Path(__file__).resolve().parent.parent
# Pages of the site that lie outside of docs/.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    **{str(path.relative_to(REPO)): f"lessons/{path.stem}.md" for path in REPO.glob("examples/notebooks/*.ipynb")},
}
# Functions whose options are added to their signature and docstring when they are imported.
AS_IMPORTED = {"hf_posenc.corpus.encode.encode"}
LINK = re.compile(r"(?<=\]\()(?!https?://|#|mailto:)([^)#\s]+)")
VIEW = "<!-- view of the batch -->"
LAB = "<!-- the lab -->"
FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$", re.DOTALL)
PICTURE = re.compile(r"<!-- picture: (.*) -->")
TEXTS = ["bike ride I, she said", "I ride bike", "she said: I said, she said"]  # of the pictures
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SECTION = re.compile(
    r"^(?P<title>Args|Attributes|Returns|Yields|Raises|Source|Example):\n(?P<body>(?:(?:    .*)?\n)*)", re.MULTILINE
)
log = logging.getLogger("mkdocs.hooks")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside of docs/, and the pictures of examples/."""
    for source, target in PAGES.items():
        text = (REPO / source).read_text(encoding="utf-8")
        content = page_of_notebook(json.loads(text)) if source.endswith(".ipynb") else text
        files.append(File.generated(config, target, content=content))
    for picture in sorted((REPO / "examples").glob("*.png")):
        files.append(File.generated(config, f"images/{picture.name}", abs_src_path=str(picture)))
    return files


def formula(found: re.Match[str]) -> str:
    """Return a formula in LaTeX as MathML, on a line of its own or in the text."""
    return str(convert(found[1] or found[2], display="block" if found[1] else "inline"))


def page_of_notebook(notebook: dict[str, Any]) -> str:
    """Return the cells of a notebook and their outputs as Markdown; formulas become MathML, which needs no script."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(FORMULA.sub(formula, source))
            continue
        if "%pip install" in source:
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                alt, picture = escape(cell["metadata"]["alt"]), "".join(data["image/png"]).strip()
                parts.append(f'<img alt="{alt}" src="data:image/png;base64,{picture}">')
            elif text := "".join(output.get("text") or data["text/plain"]):
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts)


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the relative links of a page, outside of its code blocks; rank the reference below guides in a search."""
    if page.file.src_uri.startswith("reference/"):
        page.meta["search"] = {"boost": 0.5}
    source_of = {target: Path(source) for source, target in PAGES.items()}
    source = source_of.get(page.file.src_uri, Path("docs", page.file.src_uri))

    def rewrite(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(source.parent / link[0]))
        if not (REPO / target).exists():
            log.warning("%s links to %s, which does not exist", source, link[0])
        if target.as_posix() in PAGES:
            inside = Path(PAGES[target.as_posix()])
        elif target.parts[0] == "docs":
            inside = target.relative_to("docs")
        elif target.suffix == ".png":
            inside = Path("images", target.name)
        else:
            return f"{config.extra['repository']}/blob/main/{target.as_posix()}"
        return Path(os.path.relpath(inside, Path(page.file.src_uri).parent)).as_posix()

    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(rewrite, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, LINK.sub(rewrite, markdown[end:])])


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace comments by pictures, and by the view of the batch that the last Python block above it makes."""
    html = PICTURE.sub(draw, html)
    above, found, _ = (page.markdown or "").partition(VIEW)
    if not found:
        return html
    names: dict[str, Any] = {}
    exec(re.findall(r"^```python\n(.*?)^```", above, re.MULTILINE | re.DOTALL)[-1], names)
    return html.replace(VIEW, names["batch"].to_html())


@functools.cache
def names_of_pictures() -> dict[str, Any]:
    """Return what the expressions of pictures use: a collator with a table, and a layer of attention."""
    import torch

    from hf_posenc import DataCollatorWithPositionalEncoding, PositionalEmbedding, plots, train_bpe

    torch.manual_seed(0)
    embedding = PositionalEmbedding(torch.nn.Embedding(400, 64).requires_grad_(False), scale="sqrt_d")
    collate = DataCollatorWithPositionalEncoding(train_bpe(TEXTS, vocab_size=400), embedding=embedding)
    layer = torch.nn.TransformerEncoderLayer(64, nhead=2, batch_first=True)
    return {"plots": plots, "TEXTS": TEXTS, "collate": collate, "layer": layer}


def draw(comment: re.Match[str]) -> str:
    """Return the picture of a comment as an element that contains it."""
    names = names_of_pictures()
    picture = eval(unescape(comment[1]), dict(names))
    with tempfile.TemporaryDirectory() as folder:
        data = names["plots"].save(picture, Path(folder, "picture.png")).read_bytes()
    return f'<img src="data:image/png;base64,{base64.b64encode(data).decode()}" alt="{escape(comment[1])}">'


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """Replace the comment in a page by the Input Lab: after the search index, which would take in its scripts."""
    if LAB not in output:
        return output
    from hf_posenc import train_bpe
    from hf_posenc._common.sample_texts import bert_folder
    from hf_posenc.testing import standard_library_docstrings
    from hf_posenc.tokenization import private_copy
    from hf_posenc.view import lab_html

    folder = bert_folder()
    tokenizer = private_copy(folder) if folder else train_bpe(standard_library_docstrings(), 8_000)
    return output.replace(LAB, lab_html(tokenizer))


class MarkdownSections(griffe.Extension):
    """Turn the sections of a docstring into Markdown, in which their texts are written.

    mkdocstrings' own parsers show the types of arguments as code, with the marks of Markdown in them.
    """

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of every module, class, function and attribute."""
        if obj.path in AS_IMPORTED and isinstance(obj, griffe.Function) and obj.docstring:
            function = getattr(importlib.import_module(obj.module.path), obj.name)
            obj.docstring.value = inspect.getdoc(function) or ""
            obj.parameters = griffe.Parameters(*map(parameter, inspect.signature(function).parameters.values()))
        if obj.docstring:
            obj.docstring.value = markdown_of(obj.docstring.value)


def parameter(imported: inspect.Parameter) -> griffe.Parameter:
    """Return the parameter of an imported function in the form that mkdocstrings prints."""
    default = None if imported.default is imported.empty else repr(imported.default)
    return griffe.Parameter(imported.name, kind=griffe.ParameterKind(imported.kind.description), default=default)


def markdown_of(docstring: str) -> str:
    """Return a docstring with its sections as headings and lists, and its examples as code.

    Args:
        docstring (`str`): without common indentation.

    Returns:
        `str`: the same in Markdown.
    """

    def rewrite(section: re.Match[str]) -> str:
        title, text = section["title"], textwrap.dedent(section["body"]).strip("\n")
        if title == "Example":
            text = f"```pycon\n{text}\n```"
        elif title in {"Args", "Attributes", "Raises"}:
            text = re.sub(r"^([\w*][^:(]*)(?=:| \()", r"- **\1**", text, flags=re.MULTILINE)
            text = re.sub(r"^> (.*)$", r"\n*\1*\n", text, flags=re.MULTILINE)  # a group of arguments
        return f"**{title}**\n\n{text}\n\n"

    return SECTION.sub(rewrite, docstring + "\n")
