"""Serves the page on this machine, for this machine: bound to 127.0.0.1, telling nobody.

A public place has its own way to serve: see `examples/space`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .._explain import explain
from . import sources
from .page import build, look, need_gradio

HOST = "127.0.0.1"
_TEMPORARY = "GRADIO_TEMP_DIR"
_PORTS = range(7860, 7960)  # where gradio's pages are looked for


def serve(port: int | None = None, *, browser: bool = True, say: Callable[[str], None] = print) -> None:
    r"""Serves the page until Ctrl-C or a termination signal, then closes it.

    Args:
        port (`int`, *optional*): by default the first free one from 7860 on.
        browser (`bool`, *optional*, defaults to `True`): open the page in the browser.
        say (callable, *optional*): told where the page is, once it answers.

    Raises:
        ImportError: if gradio is not installed.
        ValueError: if the port is not free.
    """
    with _temporary_folder():
        need_gradio()
        _serve(_free(port), browser, say)


def _serve(port: int, browser: bool, say: Callable[[str], None]) -> None:
    page = build(folders=True)
    ended = threading.Event()
    _, address, _ = page.launch(
        server_name=HOST,
        server_port=port,
        share=False,
        quiet=True,
        prevent_thread_lock=True,
        enable_monitoring=False,
        ssr_mode=False,
        max_file_size=1,  # nothing is uploaded here
        **look(),
    )
    sources.warm_up()
    before = _on_signals(lambda *_: ended.set())
    try:
        say(f"{address.rstrip('/')}  (Ctrl-C ends it)")
        if browser:
            webbrowser.open(address)
        ended.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        page.close(verbose=False)


@contextmanager
def _temporary_folder() -> Iterator[None]:
    """gradio makes a folder for what passes through it as soon as it is imported: one that goes when the page does."""
    if _TEMPORARY in os.environ or "gradio" in sys.modules:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="hf_posenc-") as folder:
        os.environ[_TEMPORARY] = folder
        try:
            yield
        finally:
            del os.environ[_TEMPORARY]


def _free(port: int | None) -> int:
    """A port that nobody listens on, the given one if there is one."""
    for candidate in _PORTS if port is None else (port,):
        with socket.socket() as door:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                door.bind((HOST, candidate))
            except (OSError, OverflowError):
                continue
            return candidate
    wanted = f"ports {_PORTS.start} to {_PORTS.stop - 1}" if port is None else f"port {port}"
    raise ValueError(explain(f"{wanted} cannot be listened on", got="in use, or not allowed", fix="--port 8123"))


def _on_signals(handler: Callable[..., None]) -> dict[int, Any]:
    """Takes over Ctrl-C and termination where this is the main thread; returns what was there."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
