"""Local HTTP server of the page: `GET /` returns the HTML document, `POST /answer` the content for given settings.

It uses Python's `http.server`, binds to 127.0.0.1, and refuses requests for another host or from another web site.
"""

from __future__ import annotations

import json
import signal
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

from .._common.errors import value_error
from .._common.sample_texts import bert_folder
from ..positions import CONVENTIONS
from .content import answer
from .settings import Settings

HOST = "127.0.0.1"
_PORTS = range(7860, 7960)
_LARGEST_REQUEST = 1 << 20
_TEXT = "a queen is a woman, a king is a man\nI ride bike\nbike ride I, unsurprisingly"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; img-src data:; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def serve(port: int | None = None, *, browser: bool = True, say: Callable[[str], object] = print) -> None:
    r"""Serve the page of `hf-posenc explore` on this computer until Ctrl-C or a termination signal."""
    server = _bound(port)
    address = f"http://{HOST}:{server.server_port}"
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            # shutdown() waits for the loop, which runs in this thread
            stop = threading.Thread(target=server.shutdown, daemon=True)
            before[number] = signal.signal(number, lambda *_, stop=stop: None if stop.ident else stop.start())
    try:
        say(f"{address}  (Ctrl-C ends it)")
        if browser:
            webbrowser.open(address)
        server.serve_forever(poll_interval=0.1)
    finally:
        server.server_close()
        for number, handler in before.items():
            signal.signal(number, handler)


def document() -> str:
    """Return the HTML document that `GET /` sends: the page with its style, its script and the initial settings."""
    here = files(__package__)
    has_bert = bert_folder() is not None
    settings = asdict(Settings(text=_TEXT, tokenizer="bert" if has_bert else "bpe"))
    start = {"settings": settings, "conventions": list(CONVENTIONS), "has_bert": has_bert}
    page = here.joinpath("page.html").read_text(encoding="utf-8")
    for mark, text in (
        ("/*STYLE*/", here.joinpath("page.css").read_text(encoding="utf-8")),
        ("/*SCRIPT*/", here.joinpath("page.js").read_text(encoding="utf-8")),
        ('"START"', json.dumps(start).replace("<", "\\u003c")),
    ):
        page = page.replace(mark, text)
    return page


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = False  # else a port that another server uses could be bound on some systems


class _Handler(BaseHTTPRequestHandler):
    """Request handler: it responds to `GET /` with the page, and to `POST /answer` with JSON for the posted settings.

    The JSON is the result of the function `answer`. Requests for another host or from another web site are refused.
    """

    server: _Server
    timeout = 30

    def do_GET(self) -> None:
        if not self._is_ours():
            self._send(HTTPStatus.FORBIDDEN, "this page answers its own host only", "text/plain")
        elif self.path != "/":
            self._send(HTTPStatus.NOT_FOUND, "the page is at /", "text/plain")
        else:
            self._send(HTTPStatus.OK, document(), "text/html")

    def do_POST(self) -> None:
        given = self.headers.get("Content-Length", "")
        length = int(given) if given.isdecimal() else 0
        # The body is read before any answer: closing a connection with unread bytes can lose the answer.
        body = self.rfile.read(min(length, 16 * _LARGEST_REQUEST))
        if not self._is_ours():
            self._send(HTTPStatus.FORBIDDEN, "this page answers its own host only", "text/plain")
        elif self.path != "/answer" or self.headers.get_content_type() != "application/json":
            self._send(HTTPStatus.NOT_FOUND, "POST JSON to /answer", "text/plain")
        elif length > _LARGEST_REQUEST:
            self._send(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {_LARGEST_REQUEST:,} bytes", "text/plain")
        else:
            try:
                values: Any = json.loads(body)
            except (ValueError, RecursionError):
                self._send(HTTPStatus.BAD_REQUEST, "the settings are not JSON", "text/plain")
                return
            self._send(HTTPStatus.OK, json.dumps(answer(values)), "application/json")

    def _is_ours(self) -> bool:
        """Return True if the request is for this server and does not come from another web site."""
        hosts = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        origin = self.headers.get("Origin")
        return self.headers.get("Host") in hosts and (origin is None or origin in {f"http://{host}" for host in hosts})

    def _send(self, status: HTTPStatus, text: str, kind: str) -> None:
        content = text.encode("utf-8", "replace")
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": f"{kind}; charset=utf-8"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Print nothing; the base class would log every request."""


def _bound(port: int | None) -> _Server:
    """Return a server that listens on `port`, or on the first free port from 7860 to 7959 if `port` is `None`."""
    for candidate in _PORTS if port is None else (port,):
        try:
            return _Server((HOST, candidate), _Handler)
        except (OSError, OverflowError):
            continue
    wanted = f"ports {_PORTS.start} to {_PORTS.stop - 1}" if port is None else f"port {port}"
    raise value_error(f"{wanted} cannot be listened on", got="in use, or not allowed", fix="--port 8123")
