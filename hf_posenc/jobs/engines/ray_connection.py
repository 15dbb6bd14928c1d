r"""Ray as the caller has it, or one of our own for a while; and this process afterwards as it was before.

Which work is done on it is for `on_ray`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from ..._explain import explain


@contextlib.contextmanager
def connected(address: str | None, workers: int | None) -> Iterator[Any]:
    r"""Ray, connected and quiet.

    Args:
        address (`str`, *optional*): of a cluster, as `run_on_ray` has it.
        workers (`int`, *optional*): the cores of a Ray that has to be started.

    Yields:
        the module `ray`. What was connected before stays so; anything else is gone afterwards.

    Raises:
        ImportError: if Ray is missing.
        ConnectionError: if no cluster answers at `address`.
        ValueError: if another cluster is connected to already.
    """
    with _left_as_found():
        ray = _import_ray()
        with _quiet(), _connected(ray, address, workers):
            yield ray


def _import_ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as missing:
        raise ImportError(
            explain('engine="ray" needs Ray', got=str(missing), fix='pip install "hf-posenc[ray]"')
        ) from missing
    return ray


@contextlib.contextmanager
def _connected(ray: Any, address: str | None, workers: int | None) -> Iterator[None]:
    """Ray as the caller has it; or one of our own, gone afterwards."""
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address not in {None, "auto", here}:
            got, fix = f"{here}, and now {address}", "ray.shutdown(), or no address"
            raise ValueError(explain("Ray is connected to one cluster at a time", got=got, fix=fix))
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    how: dict[str, Any] = {"include_dashboard": False, "num_cpus": workers} if address == "local" else {}
    try:
        _check_answers(address)
        # The statistics that Ray sends home are not ours to send.
        with environment(RAY_USAGE_STATS_ENABLED="0"), unwarned():
            ray.init(address, log_to_driver=False, configure_logging=False, **how)
    except OSError as problem:
        fix = "ray start --head, and then what it says or 'auto'"
        raise ConnectionError(explain("a Ray cluster must answer", got=f"{address}: {problem}", fix=fix)) from problem
    try:
        yield
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Whether somebody listens there, which Ray itself would take minutes to find out."""
    place = re.fullmatch(r"(?:ray://)?\[?([^/]+?)\]?:(\d+)", address)
    if place:
        socket.create_connection((place[1], int(place[2])), timeout=10).close()


@contextlib.contextmanager
def _left_as_found() -> Iterator[None]:
    """Puts back what importing and starting Ray changes in a process: the caller's variables, and who hears SIGTERM.

    Variables that Ray adds for itself stay: it reads them again, and without them its next start would be refused.
    """
    kept = {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
    breakpoints = os.environ.get("PYTHONBREAKPOINT")
    in_main = threading.current_thread() is threading.main_thread()
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        os.environ.update(kept)
        set_variable("PYTHONBREAKPOINT", breakpoints)
        if in_main:
            signal.signal(signal.SIGTERM, on_sigterm)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Ray's loggers say nothing: what matters is raised. Only after the import, which sets them up."""
    # Said of a corpus with fewer shards than workers. A filter by itself: others may come and go between two records.
    warnings.filterwarnings("ignore", message="The maximum number of concurrent tasks")
    unheard = warnings.filters[0]
    loggers = [logging.getLogger(name) for name in ("ray", "ray.data")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        with contextlib.suppress(ValueError):
            warnings.filters.remove(unheard)  # type: ignore[attr-defined]


@contextlib.contextmanager
def unwarned() -> Iterator[None]:
    """Ray warns of what later versions of it will do, in lines of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    """Environment variables set for a while, and put back as they were."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            set_variable(name, value)


def set_variable(name: str, value: str | None) -> None:
    """An environment variable as it was, which may be not at all."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
