"""The notebooks of examples/: run them, tidy them, and say what they print, picture or not.

`python -m tests.programs.notebooks` runs all of them, or those named, and writes them back with what they print and
draw; the tests run them in a folder of their own and compare.
"""

from __future__ import annotations

import base64
import io
import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image, ImageChops, ImageStat
from traitlets import default
from traitlets.config import Config

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "notebooks"
# A cell with this tag shows what training, or the speed of a machine, gave: its words are compared, not its numbers and
# pictures.
MEASURED = "measured"
CELL_SECONDS = 150
# tqdm says so on its import wherever ipywidgets are missing; no notebook draws a bar.
_NO_WIDGETS = "ignore:IProgress not found"
TIDY = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
TIDY_LANGUAGE = {"language_info": {"name": "python"}}


class _SamePython(AsyncKernelManager):
    """Starts the Python that runs this, whatever kernels the user has; to look for theirs makes a folder at home."""

    @default("kernel_spec_manager")
    def _native(self) -> KernelSpecManager:
        return KernelSpecManager(kernel_dirs=[])


def notebooks() -> list[Path]:
    """All of them, in the order of their numbers."""
    return sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> NotebookNode:
    """The notebook as it lies in the folder."""
    return nbformat.read(path, as_version=4)


def executed(path: Path, folder: Path) -> NotebookNode:
    """The notebook after a run from top to bottom, in a new kernel that works in `folder` and reaches no network."""
    notebook = read(path)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    aside = {name: str(folder / name.lower()) for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "HF_HOME")}
    quiet = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": _NO_WIDGETS}
    unset = {"HF_DATASETS_CACHE", "JPY_PARENT_PID"}
    environment = {name: value for name, value in os.environ.items() if name not in unset} | aside | quiet
    environment["PYTHONPATH"] = os.pathsep.join([str(FOLDER.parents[1]), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as sockets:  # in a short path, and no ports: the kernel warns where there are
        settings = {"transport": "ipc", "connection_file": str(Path(sockets) / "kernel.json")}
        NotebookClient(
            notebook,
            timeout=CELL_SECONDS,
            startup_timeout=CELL_SECONDS,
            kernel_name="python3",
            coalesce_streams=True,  # what is printed in pieces is one output, whatever the pieces
            resources={"metadata": {"path": str(folder)}},
            kernel_manager_class=_SamePython,
            config=Config({"KernelManager": settings}),
        ).execute(env=environment)  # its kernel has ended when this returns, however it returns
    return tidied(notebook)


def tidied(notebook: NotebookNode) -> NotebookNode:
    """Without what changes from run to run or from editor to editor."""
    notebook.metadata = nbformat.from_dict(TIDY | TIDY_LANGUAGE)
    notebook.nbformat_minor = 5
    for cell in notebook.cells:
        kept = {name: cell.metadata[name] for name in ("alt", "tags") if cell.metadata.get(name)}
        cell.metadata = nbformat.from_dict(kept)
        for output in cell.get("outputs", []):
            output.pop("execution_count", None)
            if output.output_type == "execute_result":
                output.execution_count = cell.execution_count
            if "metadata" in output:
                output.metadata = nbformat.from_dict({})
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = base64.b64encode(_small(base64.b64decode(output.data["image/png"]))).decode()
    return notebook


def _small(png: bytes) -> bytes:
    """The same picture in 256 colors: a third of the bytes, and no difference to be seen."""
    file = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(file, "png", optimize=True)
    return file.getvalue()


def said(cell: NotebookNode) -> list[str]:
    """What a cell prints, and what its last line shows, as text; the numbers of measured cells left out."""
    texts = []
    for output in cell.get("outputs", []):
        if output.output_type == "stream" and output.name == "stdout":
            texts.append(output.text)
        elif output.output_type in ("execute_result", "display_data"):
            texts.append("a picture" if "image/png" in output.data else output.data.get("text/plain", ""))
    if MEASURED in cell.metadata.get("tags", []):
        texts = [re.sub(r"-?\d[\d,.]*(e[+-]?\d+)?", "#", text) for text in texts]
    return [re.sub(r"[ \t]+", " ", text).strip() for text in texts]


def differences(fresh: NotebookNode, committed: NotebookNode) -> list[str]:
    """Where a run says or draws something else than the file, cell by cell."""
    found = []
    for i, (now, then) in enumerate(zip(fresh.cells, committed.cells, strict=True)):
        if said(now) != said(then):
            found.append(f"cell {i}: {said(now)} where the file has {said(then)}")
        elif MEASURED not in now.metadata.get("tags", []) and any(map(unlike, pictures(now), pictures(then))):
            found.append(f"cell {i}: another picture")
    return found


def pictures(*cells: NotebookNode) -> list[bytes]:
    """The PNG files in the outputs of cells."""
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return [base64.b64decode(output.data["image/png"]) for output in outputs if "image/png" in output.get("data", {})]


def unlike(one: bytes, other: bytes) -> bool:
    """Whether two pictures differ from far away: another title or another font is not enough."""
    gray = [Image.open(io.BytesIO(png)).convert("L").resize((32, 32), Image.Resampling.BOX) for png in (one, other)]
    return float(ImageStat.Stat(ImageChops.difference(*gray)).mean[0]) > 3  # of 255


def write(notebook: NotebookNode, path: Path) -> None:
    """Write it aside and rename it, keys sorted: nothing half-written, and small differences from run to run."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, suffix=".tmp", delete=False) as file:
        file.write(nbformat.writes(notebook).rstrip("\n") + "\n")
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)


def main(names: list[str]) -> None:
    """Run the notebooks whose names contain one of these, or all, and write them back."""
    for path in notebooks():
        if not names or any(name in path.name for name in names):
            with tempfile.TemporaryDirectory() as folder:
                notebook = executed(path, Path(folder))
            write(notebook, path)
            print(
                path.name,
                f"{path.stat().st_size / 1000:.0f} kB,",
                len(pictures(*notebook.cells)),
                "pictures",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
