"""Run other people's training scripts with this package's lines, and compare them with the scripts as they are.

    python -m tests.clients --transformers CHECKOUT --accelerate CHECKOUT

runs run_glue, run_mlm, run_clm and run_translation of `examples/pytorch` in a checkout of transformers,
`examples/nlp_example.py` in one of accelerate, and the trainers of the packages sentence-transformers and TRL. A client
without its checkout or package is skipped. No script is copied: its source is changed in memory. Models and texts are
tiny and made here, and nothing is downloaded; a stand-in replaces the library evaluate.

Each client runs as it is ("stock"), with the collator alone ("collator"), and with sinusoidal positions too ("both"):

- "collator" has the losses and predictions of stock, because the batches are the same (random masks differ).
- "both" learns, and writes the files that stock writes and the collator's own.
- Resumed from the middle, "both" ends with the weights of its uninterrupted run.
- The stock script starts from the folder that "both" saved, with the evaluation loss that "both" had.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .patching import with_our_lines

IMPORT = "from hf_posenc import DataCollatorWithPositionalEncoding, use_sinusoidal_positions"
COLLATE = "collate = DataCollatorWithPositionalEncoding(tokenizer, model=model)"
OWN_FILES = {"hf_posenc.json", "processor_config.json"}
STEPS = 12
TRAIN = f"--max_steps {STEPS} --save_steps {STEPS // 2} --eval_steps {STEPS // 2} --learning_rate 0.003"
TRAINER = (
    f"{TRAIN} --eval_strategy steps --logging_steps 1 --per_device_train_batch_size 8 --report_to none --use_cpu "
    "--disable_tqdm True --seed 0"
)
ROWS = "--train_file train.json --validation_file validation.json"
TEXTS = f"{TRAINER} --train_file train.txt --validation_file validation.txt --do_train --do_eval"
GLUE = f"{TRAINER} {ROWS} --test_file test.json --max_seq_length 32 --do_train --do_eval --do_predict"
PAIRS = (
    f"{TRAINER} --train_file train.jsonl --validation_file validation.jsonl --test_file test.jsonl --source_lang en "
    "--target_lang de --max_source_length 32 --max_target_length 32 --do_train --do_eval --do_predict "
    "--predict_with_generate --label_smoothing_factor 0.1"
)


@dataclass(frozen=True)
class Client:
    """Script of someone else, the lines that it gets, and its arguments.

    Attributes:
        script (`str`): its checkout or package, and its path in there or beside this module.
        model (`str`): folder of the model.
        arguments (`str`): arguments of the script, without the model and the output folder.
        call (`str`): the lines go before the statement that calls this.
        collator (`str`): line that makes `collate`; empty if the client has no place for a collator.
        keywords (`str`): names of the arguments of `call` that become `collate`.
        setup (tuple of `str`): lines before all others.
        sinusoids (tuple of `str`): name of a call, and the line before it that writes sinusoidal positions.
        random_masks (`bool`): True if losses depend on masks drawn anew.
    """

    script: str
    model: str
    arguments: str
    call: str = "Trainer"
    collator: str = COLLATE
    keywords: str = "data_collator processing_class"
    setup: tuple[str, ...] = ()
    sinusoids: tuple[str, str] = ("", "use_sinusoidal_positions(model)")
    random_masks: bool = False

    def patch(self, source: str, *, sinusoids: bool) -> str:
        """Return the source of the script with the lines of this client."""
        source = with_our_lines(source, self.call, [IMPORT, *self.setup], {"model": "model"} if self.setup else {})
        if sinusoids:
            source = with_our_lines(source, self.sinusoids[0] or self.call, [IMPORT, self.sinusoids[1]], {})
        if self.collator:
            source = with_our_lines(source, self.call, [self.collator], dict.fromkeys(self.keywords.split(), "collate"))
        return source


EXAMPLES = "transformers:examples/pytorch"
CLIENTS = {
    "run_glue": Client(f"{EXAMPLES}/text-classification/run_glue.py", "bert", GLUE),
    "run_glue_gpt2": Client(f"{EXAMPLES}/text-classification/run_glue.py", "gpt2", f"{GLUE} --pad_to_max_length False"),
    "run_mlm": Client(
        f"{EXAMPLES}/language-modeling/run_mlm.py",
        "bert",
        f"{TEXTS} --line_by_line --max_seq_length 32",
        collator=f'{COLLATE[:-1]}, labels="masked_lm", mlm_probability=data_args.mlm_probability)',
        random_masks=True,
    ),
    "run_clm": Client(
        f"{EXAMPLES}/language-modeling/run_clm.py",
        "gpt2-without-padding",
        f"{TEXTS} --block_size 16",
        collator=f"{COLLATE[:-1]}, padding=False)",
    ),
    "run_translation": Client(f"{EXAMPLES}/translation/run_translation.py", "bart", PAIRS, "Seq2SeqTrainer"),
    "nlp_example": Client(
        "accelerate:examples/nlp_example.py",
        "",
        "--cpu",
        "DataLoader",
        "collate = DataCollatorWithPositionalEncoding(tokenizer, look_ahead=False)",
        "collate_fn",
        sinusoids=("AdamW", "use_sinusoidal_positions(model)"),
    ),
    "sentence_transformers": Client(
        "sentence_transformers:sentences.py",
        "bert",
        f"{TRAIN} {ROWS}",
        "SentenceTransformerTrainer",
        collator="",
        sinusoids=("", "use_sinusoidal_positions(model.transformers_model)"),
    ),
    "trl": Client(
        "trl:scripts/sft.py",
        "gpt2",
        f"{TRAINER} --dataset_name texts --max_length 32",
        "SFTTrainer",
        setup=(
            "from transformers import AutoModelForCausalLM, AutoTokenizer",
            "tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)",
            "model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path)",
            "training_args.model_init_kwargs = None",
        ),
    ),
}


class Metric:
    """Share of predictions that equal their references, under the names that the scripts read."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Any, Any]] = []

    def add_batch(self, predictions: Sequence[Any], references: Sequence[Any]) -> None:
        self._pairs += zip(predictions, references, strict=True)

    def compute(self, predictions: Sequence[Any] = (), references: Sequence[Any] = ()) -> dict[str, float]:
        self.add_batch(predictions, references)
        pairs, self._pairs = self._pairs, []
        share = sum(bool(wanted in (made, [made])) for made, wanted in pairs) / len(pairs)
        return {"accuracy": share, "score": share}


def find_script(client: Client, checkouts: Mapping[str, Path | None]) -> Path | None:
    """Return the path of a client's script, or None if its checkout or package is missing."""
    name, _, path = client.script.partition(":")
    if name in checkouts:
        checkout = checkouts[name]
        return None if checkout is None else checkout / path
    package = importlib.util.find_spec(name)
    if package is None:
        return None
    own = Path(__file__).parent / path  # of a package without scripts
    return own if own.exists() else Path(str(package.origin)).parent / path


def run_script(source: str, path: Path, arguments: str, log: Path) -> None:
    """Run the source of a script in a child process, with its output in `log`; raise if it fails."""
    process = multiprocessing.get_context("fork").Process(target=_run_here, args=(source, path, arguments, log))
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{log}: {log.read_text('utf-8').strip().splitlines()[-1]}")


def _run_here(source: str, path: Path, arguments: str, log: Path) -> None:
    with log.open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    evaluate: Any = types.ModuleType("evaluate")
    evaluate.load = lambda *_, **__: Metric()
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    sys.modules.update(evaluate=evaluate, __main__=module)
    sys.argv = [str(path), *arguments.split()]
    try:
        exec(compile(source, str(path), "exec"), vars(module))
    except BaseException:
        traceback.print_exc()
        sys.exit(1)


def losses(output: Path, key: str = "loss") -> list[float]:
    """Return the values of "loss" or "eval_loss" that a trainer logged, in the order of the steps."""
    state = max(output.glob("checkpoint-*/trainer_state.json"), key=lambda path: int(path.parent.name.split("-")[1]))
    return [entry[key] for entry in json.loads(state.read_text("utf-8"))["log_history"] if key in entry]


def files(output: Path) -> set[Path]:
    """Return the paths of all files below a folder, without logs for TensorBoard."""
    found = (path.relative_to(output) for path in output.rglob("*") if path.is_file())
    return {path for path in found if "runs" not in path.parts}


def weights(output: Path) -> list[bytes]:
    """Return the bytes of a saved model."""
    return [path.read_bytes() for path in sorted(output.glob("*.safetensors"))]


def compare(client: Client, script: Path, folder: Path) -> str:
    """Run a client in all variants below `folder`. Return a summary; raise AssertionError for the first difference."""
    stock_source = script.read_text("utf-8")
    both_source = client.patch(stock_source, sinusoids=True)

    def run(name: str, source: str, more: str = "", model: str = client.model) -> Path:
        where = f"--model_name_or_path {model} --output_dir {folder / name}" if model else ""
        run_script(source, script, f"{client.arguments} {where} {more}", folder / f"{name}.log")
        return folder / name

    stock, both = run("stock", stock_source), run("both", both_source)
    alone = run("collator", client.patch(stock_source, sinusoids=False)) if client.collator else stock
    if not client.model:  # the script prints, and saves nothing
        printed = [(folder / f"{name}.log").read_text("utf-8") for name in ("stock", "collator")]
        shown = [[line for line in text.splitlines() if line.startswith(("=====", "epoch"))] for text in printed]
        assert shown[0], "the script prints no predictions"
        assert shown[0] == shown[1], "the collator changes the predictions"
        return f"predictions of {len(shown[0])} batches and epochs equal"
    difference = max(abs(a - b) for a, b in zip(losses(stock), losses(alone), strict=True))
    assert difference <= (0.5 if client.random_masks else 1e-4), f"the collator moves the loss by {difference}"
    for made in stock.glob("*.txt"):
        assert made.read_bytes() == (alone / made.name).read_bytes(), f"the collator changes {made.name}"
    learned = losses(both)
    assert sum(learned[-4:]) < sum(learned[:4]), f"the loss does not fall: {learned}"
    lost, added = files(stock) - files(both), {path.name for path in files(both) - files(stock)}
    assert not lost, f"files missing: {lost}"
    assert added <= OWN_FILES, f"files added: {added}"
    resumed = run("resumed", both_source, f"--resume_from_checkpoint {both}/checkpoint-{STEPS // 2}")
    assert client.random_masks or weights(resumed) == weights(both), "resumed training ends with other weights"
    reloaded = run("reloaded", stock_source, "--max_steps 1 --eval_steps 1 --learning_rate 0", model=str(both))
    saved, loaded = losses(both, "eval_loss")[-1], losses(reloaded, "eval_loss")[-1]
    assert abs(saved - loaded) <= (0.5 if client.random_masks else 1e-4), f"eval_loss {saved}, reloaded {loaded}"
    return (
        f"loss stock {losses(stock)[-1]:.3f}, collator {losses(alone)[-1]:.3f}, both {learned[-1]:.3f}; "
        f"eval_loss {saved:.4f}, reloaded {loaded:.4f}; files added: {', '.join(sorted(added)) or 'none'}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transformers", type=Path, help="checkout of huggingface/transformers")
    parser.add_argument("--accelerate", type=Path, help="checkout of huggingface/accelerate")
    parser.add_argument("--only", nargs="+", choices=list(CLIENTS), default=list(CLIENTS), metavar="CLIENT")
    parser.add_argument(
        "--folder", type=Path, help="new folder for inputs, outputs and logs (default: a temporary one)"
    )
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp()) if given.folder is None else given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    paths = {"transformers": given.transformers, "accelerate": given.accelerate}
    checkouts = {name: None if path is None else path.resolve() for name, path in paths.items()}
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_CACHE=str(folder / "cache"), TOKENIZERS_PARALLELISM="false")
    for name in (
        "torch",
        "datasets",
        "transformers.trainer",
    ):  # once for all child processes; hf_posenc only by our lines
        importlib.import_module(name)
    os.chdir(folder)
    inputs = Path(__file__).with_name("inputs.py")
    run_script(f"{inputs.read_text('utf-8')}\nwrite_inputs(Path('.'))", inputs, "", folder / "inputs.log")
    passed, failed = 0, 0
    for name in given.only:
        script = find_script(CLIENTS[name], checkouts)
        if script is None:
            print(f"{name}: skipped, its checkout or package is missing")
            continue
        (folder / name).mkdir()
        begin = time.time()
        try:
            result = compare(CLIENTS[name], script, folder / name)
            passed += 1
        except (AssertionError, RuntimeError) as error:
            result = f"FAILED: {error}"
            failed += 1
        print(f"{name} ({time.time() - begin:.0f} s): {result}", flush=True)
    print(f"{passed} passed, {failed} failed; outputs and logs in {folder}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
