"""Run other people's training scripts with this package's lines, and compare them with the scripts as they are.

    python -m tests.programs.clients --transformers CHECKOUT --accelerate CHECKOUT

runs run_glue, run_mlm, run_clm, run_translation, run_ner and run_qa of `examples/pytorch` in a checkout of
transformers, and nlp_example and gradient_accumulation in one of accelerate. The client sentence_transformers needs the
package alone. A client without its checkout or package is skipped. No script is copied; its source changes in memory.
Models and texts are tiny and made here, and nothing is downloaded; a stand-in replaces the library evaluate. In a
folder without the package's source an installed wheel is tested.

Each client runs as it is ("stock"), with the collator alone ("collator"), and with sinusoidal positions too ("both"):

- "collator" changes at most two lines of the script. Every step has the loss of stock, and the predictions are the
  same, because the batches are the same (random masks differ: there the mean loss is compared).
- "both" learns, and writes the files that stock writes and the collator's own.
- Resumed from the middle, "both" ends with the weights of its uninterrupted run.
- The stock script starts from the folder that "both" saved, with the evaluation that "both" had.

A script that saves no model is only compared with "collator".
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
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from .patching import with_our_lines

IMPORT = "from hf_posenc import DataCollatorWithPositionalEncoding"
COLLATOR = "DataCollatorWithPositionalEncoding(tokenizer, model=model)"
STEPS = 12
TRAIN = f"--max_steps {STEPS} --save_steps {STEPS // 2} --eval_steps {STEPS // 2} --learning_rate 0.003"
TRAINER = (
    f"{TRAIN} --eval_strategy steps --logging_steps 1 --per_device_train_batch_size 8 --report_to none --use_cpu "
    "--disable_tqdm True --seed 0"
)
ROWS = "--train_file train.json --validation_file validation.json"
TEXTS = f"{TRAINER} --train_file train.txt --validation_file validation.txt --do_train --do_eval"
GLUE = f"{TRAINER} {ROWS} --test_file test.json --max_seq_length 32 --do_train --do_eval --do_predict"
WORDS = GLUE.replace("_file ", "_file words/")
ANSWERS = f"{TRAINER} {ROWS} --max_seq_length 32 --doc_stride 8 --do_train --do_eval".replace(
    "_file ", "_file answers/"
)
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
        collator (`str`): expression that makes the collator.
        line (`str`): line that uses the collator `{}`; by default it becomes the argument `data_collator`.
        sinusoids (tuple of `str`): name of a call, and the line before it that writes sinusoidal positions.
        reason (`str`): reason why the losses differ; empty if they are equal.
        random_masks (`bool`): True if losses depend on masks drawn anew.
    """

    script: str
    model: str
    arguments: str
    call: str = "Trainer"
    collator: str = COLLATOR
    line: str = ""
    sinusoids: tuple[str, str] = ("", "use_sinusoidal_positions(model)")
    reason: str = ""
    random_masks: bool = False

    def patch(self, source: str, *, sinusoids: bool) -> str:
        """Return the source of the script with the lines of this client."""
        lines = [self.line.format(self.collator)] if self.line else []
        if not sinusoids:
            return with_our_lines(
                source, self.call, [IMPORT, *lines], {} if lines else {"data_collator": self.collator}
            )
        call, line = self.sinusoids
        source = with_our_lines(source, self.call, [IMPORT], {})
        source = with_our_lines(source, call or self.call, ["from hf_posenc import use_sinusoidal_positions", line], {})
        given = {} if lines else {"data_collator": "collate"}
        return with_our_lines(source, self.call, lines or [f"collate = {self.collator}"], given)


EXAMPLES = "transformers:examples/pytorch"
NLP_EXAMPLE = Client(
    "accelerate:examples/nlp_example.py",
    "",
    "--cpu",
    "DataLoader",
    "DataCollatorWithPositionalEncoding(tokenizer, look_ahead=False)",
    "collate_fn = {}",
    sinusoids=("AdamW", "use_sinusoidal_positions(model)"),
)
SENTENCES = Client(
    "sentence_transformers:sentences.py",
    "bert",
    f"{TRAIN} {ROWS}",
    "train",
    "DataCollatorWithPositionalEncoding(model.tokenizer, model=model.transformers_model)",
    "trainer.data_collator.preprocess_fn = lambda texts, collate={}, **_: collate(texts)",
    sinusoids=("SentenceTransformerTrainer", "use_sinusoidal_positions(model.transformers_model)"),
)
CLIENTS = {
    "run_glue": Client(f"{EXAMPLES}/text-classification/run_glue.py", "bert", GLUE),
    "run_mlm": Client(
        f"{EXAMPLES}/language-modeling/run_mlm.py",
        "bert",
        f"{TEXTS} --line_by_line --max_seq_length 32",
        collator=f'{COLLATOR[:-1]}, labels="masked_lm", mlm_probability=data_args.mlm_probability)',
        reason="other random masks",
        random_masks=True,
    ),
    "run_clm": Client(
        f"{EXAMPLES}/language-modeling/run_clm.py",
        "gpt2",
        f"{TEXTS} --block_size 16",
        collator=f"{COLLATOR[:-1]}, padding=False)",
    ),
    "run_translation": Client(f"{EXAMPLES}/translation/run_translation.py", "bart", PAIRS, "Seq2SeqTrainer"),
    "run_ner": Client(f"{EXAMPLES}/token-classification/run_ner.py", "bert", WORDS),
    "run_qa": Client(
        f"{EXAMPLES}/question-answering/run_qa.py",
        "bert",
        f"{ANSWERS} --pad_to_max_length False",
        "QuestionAnsweringTrainer",
        reason="its softmax counts padding, which the collator gives position 0",
    ),
    "nlp_example": NLP_EXAMPLE,
    "gradient_accumulation": replace(
        NLP_EXAMPLE,
        script="accelerate:examples/by_feature/gradient_accumulation.py",
        arguments="--cpu --gradient_accumulation_steps 2",
    ),
    "sentence_transformers": SENTENCES,
}


LIBRARIES = ("torch", "transformers", "datasets", "accelerate")
SCORES = ("precision", "recall", "f1", "accuracy")


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
        return dict.fromkeys(("accuracy", "score", *(f"overall_{name}" for name in SCORES)), share)


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
    recorded = log.with_suffix(".losses").open("w")
    backward = torch.Tensor.backward

    def record(loss: Any, *args: Any, **settings: Any) -> None:
        print(loss.item(), file=recorded, flush=True)
        backward(loss, *args, **settings)

    torch.Tensor.backward = record  # type: ignore[method-assign]
    evaluate: Any = types.ModuleType("evaluate")
    evaluate.load = lambda *_, **__: Metric()
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    sys.modules.update(evaluate=evaluate, __main__=module)
    sys.path.insert(0, str(path.parent))
    sys.argv = [str(path), *arguments.split()]
    try:
        exec(compile(source, str(path), "exec"), vars(module))
    except BaseException:
        traceback.print_exc()
        sys.exit(1)


def evaluation(output: Path) -> dict[str, float]:
    """Return the loss and metrics of the last evaluation that a trainer logged."""
    state = max(output.glob("checkpoint-*/trainer_state.json"), key=lambda path: int(path.parent.name.split("-")[1]))
    log = json.loads(state.read_text("utf-8"))["log_history"]
    entry = [entry for entry in log if any(key.startswith("eval_") for key in entry)][-1]
    return {key: entry[key] for key in entry if key in ("eval_loss", *(f"eval_{name}" for name in SCORES))}


def files(output: Path) -> set[Path]:
    """Return the paths of all files below a folder, without logs for TensorBoard."""
    found = (path.relative_to(output) for path in output.rglob("*") if path.is_file())
    return {path for path in found if "runs" not in path.parts}


def weights(output: Path) -> list[bytes]:
    """Return the bytes of a saved model."""
    return [path.read_bytes() for path in sorted(output.glob("*.safetensors"))]


def compare(client: Client, script: Path, folder: Path) -> str:
    """Run a client in all variants below `folder`. Return a row of the table; raise AssertionError for a difference."""
    stock_source = script.read_text("utf-8").replace("fp16=True", "fp16=False")  # needs a GPU
    alone_source = client.patch(stock_source, sinusoids=False)
    both_source = client.patch(stock_source, sinusoids=True)
    changed = (Counter(alone_source.splitlines()) - Counter(stock_source.splitlines())).total()
    assert changed <= 2, f"{changed} lines changed"

    def run(name: str, source: str, more: str = "", model: str = client.model) -> list[float]:
        where = f"--model_name_or_path {model} --output_dir {folder / name}" if model else ""
        run_script(source, script, f"{client.arguments} {where} {more}", folder / f"{name}.log")
        return [float(line) for line in (folder / f"{name}.losses").read_text().split()]

    losses, alone, both = run("stock", stock_source), run("collator", alone_source), run("both", both_source)
    most = max(abs(a - b) for a, b in zip(losses, alone, strict=True))
    row = f"{changed} | {len(losses)} | {most:.1g} | {mean(losses):.4f} | {mean(alone):.4f} | {mean(both):.4f}"
    assert abs(mean(losses) - mean(alone)) < 0.5 if client.reason else most < 1e-4, (
        f"the collator changes the loss: {row}"
    )
    printed = [(folder / f"{name}.log").read_text("utf-8").splitlines() for name in ("stock", "collator")]
    shown = [[line for line in lines if line.startswith(("=====", "epoch"))] for lines in printed]
    assert shown[0] == shown[1], f"the collator changes the evaluation: {shown}"
    if not client.model:  # the script saves nothing in a folder that we know
        return row
    for made in [] if client.reason else folder.glob("stock/*.txt"):
        assert made.read_bytes() == (folder / "collator" / made.name).read_bytes(), f"the collator changes {made.name}"
    assert sum(both[-4:]) < sum(both[:4]), f"the loss does not fall: {both}"
    stocks, ours = files(folder / "stock"), files(folder / "both")
    assert stocks == ours, f"files missing: {stocks - ours}, added: {ours - stocks}"
    run("resumed", both_source, f"--resume_from_checkpoint {folder}/both/checkpoint-{STEPS // 2}")
    # transformers 5.0.0 saves the layer norms of BERT under names that its Trainer does not load.
    theirs = "There were missing keys in the checkpoint model loaded" in (folder / "resumed.log").read_text("utf-8")
    if not (client.random_masks or theirs):
        assert weights(folder / "resumed") == weights(folder / "both"), "resumed training ends with other weights"
    run("reloaded", stock_source, "--max_steps 1 --eval_steps 1 --learning_rate 0", model=f"{folder}/both")
    saved, loaded = evaluation(folder / "both"), evaluation(folder / "reloaded")
    for name, value in saved.items():
        limit = 0.5 if client.random_masks else 1e-4
        assert abs(value - loaded[name]) <= limit, f"{name} {value}, reloaded {loaded[name]}"
    return row


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
    paths: dict[str, Path | None] = {"transformers": given.transformers, "accelerate": given.accelerate}
    checkouts = {name: None if path is None else path.resolve() for name, path in paths.items()}
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_CACHE=str(folder / "cache"), TOKENIZERS_PARALLELISM="false")
    for name in ("datasets", "transformers.trainer"):  # once for all child processes; hf_posenc only by our lines
        importlib.import_module(name)
    package = importlib.util.find_spec("hf_posenc")
    assert package is not None
    print(f"{package.origin} with {', '.join(f'{name} {version(name)}' for name in LIBRARIES)}")
    print("script | lines changed | steps | largest difference | mean loss | collator | and sinusoids | seconds")
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
        print(f"{name} | {result} | {time.time() - begin:.0f} {CLIENTS[name].reason}", flush=True)
    print(f"{passed} passed, {failed} failed; outputs and logs in {folder}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
