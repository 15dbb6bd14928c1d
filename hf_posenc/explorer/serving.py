"""Local server of the page: bound to 127.0.0.1, without telemetry.

For a public server see `examples/space`.
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
_PORTS = range(7860, 7960)  # gradio's usual ports


def serve(port: int | None = None, *, browser: bool = True, say: Callable[[str], None] = print) -> None:
    r"""Serve the page until Ctrl-C or a termination signal, then close it.

    Args:
        port (`int`, *optional*): by default the first free port from 7860.
        browser (`bool`, *optional*, defaults to `True`): open the page in the browser.
        say (callable, *optional*): called with the address once the page is served; by default `print`.

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
        max_file_size=1,  # the page has no uploads
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
    """Set a temporary folder for gradio, which creates its folder when it is imported, and delete it at the end."""
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
    """Return the given port, or else the first free one; raise if it cannot be bound."""
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
    """Set the handler of SIGINT and SIGTERM, and return the previous ones; outside the main thread do nothing."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
