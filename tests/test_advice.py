"""Mistakes of a first hour: each error names the thing that is meant, and what it says works when it is pasted."""

from __future__ import annotations

import ast
import builtins
import contextlib
import dataclasses
import functools
import importlib
import inspect
import pickle
import re
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import pytest
import torch
import transformers
from looping import for_each
from small_models import tiny
from test_lessons import interleaved, sines_first
from torch import nn
from torch.utils.data import DataLoader

import hf_posenc
from hf_posenc import DataCollatorWithPositionalEncoding as C
from hf_posenc import PositionalEmbedding, SinusoidalPositionalEncoding, TokenBudgetBatchSampler, train_bpe

IDS = torch.tensor([[1, 2]])
PACKAGE = Path(hf_posenc.__file__).parent
IN_ROOMS = {
    name: getattr(importlib.import_module(f"hf_posenc.{room}"), name) for name, room in hf_posenc._ROOMS.items()
}


@pytest.fixture(scope="module")
def bpe() -> Any:
    return train_bpe(["I ride my bike", "the bike rides me"] * 3, 300, progress=False)


MISTAKES: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda bpe: C(tiny("gpt2"), bpe), TypeError, "DataCollatorWithPositionalEncoding(tokenizer, model=model)"),
    (lambda bpe: C(bpe, packing="rows"), ValueError, "fix: packing=True"),
    (lambda bpe: C(bpe, labels="next"), ValueError, "fix: labels='causal_lm'"),
    (lambda bpe: C(bpe)(["I"])["labels"], KeyError, 'labels="causal_lm" or "masked_lm"'),
    (lambda bpe: C(bpe)(["I"])["completion_mask"], KeyError, "DPOTrainer, RewardTrainer and KTOTrainer have"),
    (lambda bpe: C(bpe)(["I"]).labels, AttributeError, 'labels="causal_lm" or "masked_lm"'),
    (lambda bpe: C(bpe)(["I"]).look_ahead, AttributeError, 'fix: batch["look_ahead_mask"]'),
    (lambda bpe: C(bpe)(["I"])["inputs_embeds"], KeyError, "embedding=512"),
    (lambda bpe: next(iter(DataLoader(["I"], collate_fn=C))), TypeError, "(tokenizer), then collate(rows)"),
    (lambda bpe: C(bpe)([["I", "Ġride"]]), TypeError, "convert_tokens_to_ids(row) for lists of tokens"),
    (lambda bpe: C(bpe, is_split_into_words=True)([["I"], ["I", "Ġride"]]), ValueError, "row 1 has the token 'Ġride'"),
    (lambda bpe: hf_posenc.PositionalEncoding, ImportError, "from hf_posenc import SinusoidalPositionalEncoding"),
    (lambda bpe: hf_posenc.SinusoidalPositions, ImportError, "from hf_posenc import use_sinusoidal_positions"),
    (lambda bpe: hf_posenc.Collator, ImportError, "import DataCollatorWithPositionalEncoding as Collator"),
    (lambda bpe: hf_posenc.SinusoidalPositionalEmbedding, ImportError, "import SinusoidalPositionalEncoding"),
    (
        lambda bpe: hf_posenc.create_padding_mask,
        ImportError,
        "from hf_posenc.masks import padding_mask_from_ids  # True",
    ),
    (lambda bpe: hf_posenc.subsequent_mask, ImportError, "from hf_posenc import look_ahead_mask  # True means"),
    (lambda bpe: C(bpe)(["I"]).plot(), AttributeError, "fix: hf_posenc.plots.batch(batch)"),
    (lambda bpe: hf_posenc.padding_mask(IDS), TypeError, "of ids, padding_mask_from_ids"),
    (lambda bpe: hf_posenc.PackingPlan, ImportError, "from hf_posenc.packing import PackingPlan"),
    (lambda bpe: PositionalEmbedding(nn.Embedding(3, 4))(IDS, IDS, IDS), TypeError, "positional arguments but 4"),
    (lambda bpe: SinusoidalPositionalEncoding(4)(torch.zeros(1, 2, 4), IDS), TypeError, "takes 2 positional arguments"),
]


@for_each(("mistake", "error", "words"), MISTAKES)
def test_a_mistake_names_what_is_meant(
    bpe, mistake: Callable[[Any], object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=re.escape(words)):
        mistake(bpe)


def test_other_names_are_missing_as_in_any_module() -> None:
    assert not hasattr(hf_posenc, "nothing")
    with pytest.raises(ImportError, match="use_sinusoidal_positions"):
        importlib.import_module("hf_posenc").__getattr__("SinusoidalPositions")


def test_token_strings_become_ids_as_the_message_says(bpe) -> None:
    text = "I ride my bike"
    tokens = bpe.tokenize(text)
    collate = C(bpe, is_split_into_words=True, add_special_tokens=False)
    rows = [{"input_ids": bpe.convert_tokens_to_ids(row)} for row in [tokens]]
    assert collate(rows)["input_ids"].tolist() == [bpe(text, add_special_tokens=False)["input_ids"]]
    assert collate([text.split()])["input_ids"].shape[0] == 1  # words are no tokens
    assert collate([["##", "▁", "Ġ", "Ġorġ", "##Title"]])["input_ids"].shape[0] == 1  # nor are these


def test_another_budget_names_the_saved_one() -> None:
    state = TokenBudgetBatchSampler([5, 3, 8], 64).state_dict()
    with pytest.raises(ValueError, match=r"fix: token_budget=64, the same rows"):
        TokenBudgetBatchSampler([5, 3, 8], 32).load_state_dict(state)


def keywords_of(text: str) -> list[ast.keyword]:
    """Return the arguments if a text is nothing but keyword arguments, as in `max_length=3, stride=1`."""
    try:
        compile(f"_({text})", "", "eval")
        call: Any = ast.parse(f"_({text})", mode="eval").body
    except SyntaxError:
        return []
    is_prose = any(isinstance(each.value, ast.BoolOp | ast.Compare) for each in call.keywords)
    return [] if call.args or is_prose or "= " in text.replace(":= ", "") else call.keywords


def is_code(text: str) -> bool:
    """Return True for keyword arguments, an assignment, a class, or an expression that is more than a name.

    `...` is for the reader to fill in.
    """
    if text.startswith("e.g.") or text.endswith((",", ";")) or "..." in text.removesuffix(": ..."):
        return False
    if keywords_of(text):
        return True
    try:
        (statement,) = ast.parse(text).body
    except (SyntaxError, ValueError):
        return False
    value = getattr(statement, "value", None)
    if isinstance(statement, ast.Assign):
        return " = " in text and not isinstance(statement.targets[0], ast.Tuple) and not isinstance(value, ast.Tuple)
    is_sum = isinstance(value, ast.BinOp | ast.Compare) and re.search(r" (-|==) ", text) is not None
    is_part = isinstance(value, ast.Attribute) and not isinstance(value.value, ast.Name)
    is_more = isinstance(value, ast.Call | ast.Subscript | ast.Dict | ast.ListComp | ast.GeneratorExp)
    is_prose = re.match(r"\w+ \(", text) is not None
    return isinstance(statement, ast.ClassDef) or (
        isinstance(statement, ast.Expr) and (is_sum or is_part or is_more) and not is_prose
    )


def code_of(advice: str) -> list[str]:
    """Return the parts of an advice that are code: from left to right, as many words as are."""
    found, at = [], 0
    for begin in [match.start() for match in re.finditer(r"(?<!\S)\S", advice)]:
        ends = [match.start() for match in re.finditer(r"[ ,;:]|$", advice) if match.start() > begin]
        end = next((end for end in reversed(ends) if is_code(advice[begin:end])), begin)
        if begin >= at and end > begin and not advice.startswith(" = ...", end):
            found.append(advice[begin:end])
            at = end
    return found


def test_the_code_in_an_advice_is_found() -> None:
    assert code_of('labels="causal_lm" or "masked_lm", or C(x, y=[1, 2]), then dataset.f(1) if it is 1') == [
        'labels="causal_lm"',
        "C(x, y=[1, 2])",
        "dataset.f(1)",
    ]
    assert code_of("a=1, b=(2, 3); a = f(x), or f(...); b= out; x[None] for one; 1 - mask; class A(B, c=1): ...") == [
        "a=1, b=(2, 3)",
        "a = f(x)",
        "x[None]",
        "1 - mask",
        "class A(B, c=1): ...",
    ]
    assert code_of('per-token labels in tokenizer.json, a larger max_length, batch["a"] = ..., (a text)') == []


def world(folder: Path) -> dict[str, Any]:
    """Return the names that a case may use: the library's, those of other libraries, and a few small objects."""
    folder.mkdir()
    special = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "mask_token": "<mask>"}
    tokenizer = train_bpe(["I ride my bike", "the bike rides me"] * 3, 300, special_tokens=special, progress=False)
    texts = ["I ride my bike", "the bike"]  # 6 and 4 tokens
    settings = {"output_dir": str(folder), "report_to": "none", "use_cpu": True, "max_steps": 1}
    return {
        **{name: getattr(hf_posenc, name) for name in hf_posenc.__all__},
        **IN_ROOMS,
        **{"C": C, "tokenizer": tokenizer, "collate": C(tokenizer, embedding=None), "texts": texts, "folder": folder},
        **{"datasets": datasets, "Dataset": datasets.Dataset, "Value": datasets.Value},
        **{"torch": torch, "nn": nn, "np": np, "pandas": pandas, "pickle": pickle, "dataclasses": dataclasses},
        **{"transformers": transformers, "AutoModel": transformers.AutoModel},
        **{"identify": hf_posenc.audit.identify, "labels": hf_posenc.audit.labels},
        "dataset": datasets.Dataset.from_dict({"text": texts}),
        "interleaved": lambda *args: torch.from_numpy(interleaved(*args)),
        "sines_first": lambda *args: torch.from_numpy(sines_first(*args)),
        "rows": [{"input_ids": [5, 6, 7]} for _ in range(4)],
        "tiny": functools.partial(tiny, vocab_size=len(tokenizer)),
        "arguments": functools.partial(transformers.TrainingArguments, **settings),
    }


def run(code: str, names: dict[str, Any]) -> Any:
    """Run statements; return the value of the last one if it is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<case>", "exec", dont_inherit=True), names)
    return eval(compile(ast.unparse(last), "<case>", "eval", dont_inherit=True), names) if last else None


def message_of(mistake: str, names: dict[str, Any]) -> str:
    """Run a mistake; return the message of its error, or of its last warning with an advice."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        try:
            run(mistake, names)
        except Exception as error:
            return str(error)
    return [text for text in (str(each.message) for each in given) if "fix: " in text][-1]


def with_arguments(mistake: str, arguments: list[ast.keyword], message: str, names: dict[str, Any]) -> str:
    """Return a mistake with other arguments: in the call that has them, or else in the last one that may have them.

    An argument that does not exist according to the message is removed.
    """
    tree = ast.parse(mistake)
    calls: list[Any] = [node for node in ast.walk(tree) if isinstance(node, ast.Call | ast.ClassDef)]
    for call in calls:
        call.keywords = [each for each in call.keywords if f"no argument '{each.arg}'" not in message]
    for argument in arguments:
        places = []
        for call in calls:
            given = [each.arg for each in call.keywords]
            parameters, takes_more = list(given), False
            with contextlib.suppress(AttributeError, NameError, TypeError, ValueError):  # of a class, a call of a call
                of_call = inspect.signature(run(ast.unparse(call.func), dict(names))).parameters
                parameters, takes_more = [*of_call], any(each.kind is each.VAR_KEYWORD for each in of_call.values())
            is_known = argument.arg in {*parameters, *given}
            if is_known or takes_more:
                places.append((argument.arg in given, is_known, call.lineno, call, parameters))
        call, parameters = max(places, key=lambda place: place[:3])[3:]
        at = parameters.index(argument.arg) if argument.arg in parameters else len(parameters)
        if isinstance(call, ast.Call) and at < len(call.args):
            call.args[at] = argument.value
        else:
            call.keywords = [*(each for each in call.keywords if each.arg != argument.arg), argument]
    return ast.unparse(tree)


CASES = [
    case
    for case in (Path(__file__).parent / "data" / "advice.txt").read_text(encoding="utf-8").split("\n\n")
    if ast.parse(case.partition("\n-> ")[0]).body
]


def check_case(case: str, folder: Path) -> None:
    """Run a mistake, paste each part of its advice that is code, and check the condition that holds then."""
    mistake, *conditions = case.strip("\n").split("\n-> ")
    message = message_of(mistake, world(folder / "0"))
    parts = code_of(message.partition("fix: ")[2].partition("\n")[0])
    assert len(parts) == len(conditions), f"{parts} in {message}"
    before = ""  # an assignment, which the next part reads
    for number, (part, condition) in enumerate(zip(parts, conditions, strict=True)):
        names = world(folder / f"{number} before")
        message_of(mistake, names)
        exec(before, names)
        arguments = keywords_of(part)
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            names["warned"] = given
            if arguments and "CODE" not in condition:
                code = with_arguments(mistake, arguments, message, names)
                names = {**world(folder / f"{number} after"), "warned": given}
                names["got"] = run(code, names)
            elif "CODE" not in condition:
                names["got"] = run(part, names)
            assert eval(condition.replace("CODE", part), names), f"{part} in {message}"
        given = [each for each in given if "packed documents attend to each other" not in str(each.message)]
        assert not given or "warned" in condition, [str(each.message) for each in given]
        before = part if " = " in part else before


@for_each(("number", "case"), enumerate(CASES))
def test_the_code_of_an_advice_runs_and_gives_what_was_wanted(
    number: int, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / str(number)
    folder.mkdir()
    monkeypatch.chdir(folder)
    check_case(case, folder)


@pytest.mark.parametrize(
    ("advice", "condition", "error"),
    [
        ("f(1)", "got == 2", NameError),
        ("len(texts)", "got == 3", AssertionError),
        ("collate(texts, max_length=2)", "got", TypeError),
        ("a text", "True", AssertionError),
        ("text_pair_column='b'", "got", ValueError),
        ("C(tokenizer)([{'text': 'a', 'b': 'b'}])", "got", AssertionError),  # it warns
    ],
)
def test_meta_a_wrong_advice_is_found(advice: str, condition: str, error: type[Exception], tmp_path: Path) -> None:
    mistake = (
        f"C(tokenizer, text_column='a')([{{'a': 'I'}}])\nraise ValueError({advice!r}.join(['a rule\\n  fix: ', '']))"
    )
    with pytest.raises(error):
        check_case(f"{mistake}\n-> {condition}", tmp_path)


_CALL = re.compile(r"(?<![\w.'\"/\\])[A-Za-z_][\w.]*\(")

# The classes of the objects that messages name.
OBJECTS: dict[str, type] = {
    **{"collate": C, "batch": hf_posenc.Batch, "batches": hf_posenc.collator.Batches},
    **dict.fromkeys(("sampler", "loader"), TokenBudgetBatchSampler),
    **dict.fromkeys(("mask", "target", "queries", "keys", "cross"), hf_posenc.AttentionMask),
    **dict.fromkeys(("dataset", "ds", "data"), datasets.Dataset),
    **dict.fromkeys(("table", "tensor", "x", "position_ids"), torch.Tensor),
    **{
        "stream": datasets.IterableDataset,
        "tokenizer": transformers.PreTrainedTokenizerFast,
        "text": str,
        "names": list,
    },
    **{
        "model": transformers.GPT2LMHeadModel,
        "df": pandas.DataFrame,
        "df.columns": pandas.Index,
        "series": pandas.Series,
    },
}
_OF_TRANSFORMERS = ("AutoConfig", "AutoModel", "AutoProcessor", "AutoTokenizer", "TrainingArguments")
KNOWN: dict[str, Any] = {
    **vars(builtins),
    **{name: getattr(hf_posenc, name) for name in hf_posenc.__all__},
    **IN_ROOMS,
    **{name: getattr(transformers, name) for name in _OF_TRANSFORMERS},
    **{"hf_posenc": hf_posenc, "labels": hf_posenc.audit.labels, "identify": hf_posenc.audit.identify},
    **{"torch": torch, "nn": nn, "np": np, "pandas": pandas, "dataclasses": dataclasses, "DataLoader": DataLoader},
    **{"datasets": datasets, "Dataset": datasets.Dataset, "IterableDataset": datasets.IterableDataset},
    **{"collate": C.__call__, "tokenizer": transformers.PreTrainedTokenizerFast.__call__},
    **{"Value": datasets.Value, "Features": datasets.Features, "load_dataset": datasets.load_dataset},
}
# Calls that are not checked: functions of the user, methods without their object, other libraries, and no calls at all.
OTHERS = {
    *("VALUE", "forward", "model", "table", "length", "rows", "self.positions", "main", "rgba", "weight"),
    *("block_mask", "dense", "varlen", "from_pretrained", "mask.bool", "text.decode", "table.rename_columns"),
    *("frame.to_dict", "frame.to_dicts", "accelerator.prepare", "trainer.get_train_dataloader", "ray.shutdown"),
    *(
        "_",
        "frame.drop_nulls",
        "frame.cast",
        "frame.collect",
        "series.drop_nulls",
        "series.cast",
        "table.filter",
        "hf_posenc.plots.batch",
        "collate.tokenizer",
    ),
    *("figure.add_subplot", "glob.escape", "document.querySelectorAll", "AutoModel.from_config", "AddedToken"),
    *("ParallelismConfig", "TemplateProcessing"),
}


def literals(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each string of a module except docstrings, with VALUE for values in f-strings."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped.update(map(id, node.values))
            texts = [str(each.value) if isinstance(each, ast.Constant) else "VALUE" for each in node.values]
            yield node.lineno, "".join(texts)
        elif isinstance(node, ast.Expr):
            skipped.add(id(node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def calls_in(text: str) -> Iterator[ast.Call]:
    """Yield the calls in a text, those inside other calls too."""
    for begin in [match.start() for match in _CALL.finditer(text)]:
        for end in [match.end() for match in re.finditer(r"\)", text) if match.start() > begin]:
            with contextlib.suppress(SyntaxError):
                if isinstance(call := ast.parse(text[begin:end], mode="eval").body, ast.Call):
                    yield call
                    break


def check_call(call: ast.Call) -> None:
    """Raise if the function of a call does not exist, or does not take these arguments."""
    name = ast.unparse(call.func)
    if name in OTHERS or name.startswith("VALUE."):
        return
    owner, _, method = name.rpartition(".")
    function = getattr(OBJECTS[owner], method) if owner in OBJECTS else eval(name, KNOWN)
    if name == "collate.replace":
        function = C  # its settings
    elif owner in OBJECTS and isinstance(inspect.getattr_static(OBJECTS[owner], method), types.FunctionType):
        function = functools.partial(function, None)  # without `self`
    try:
        signature = inspect.signature(function)
    except ValueError:  # a function in C
        return
    values = [each for each in call.args if ast.unparse(each) not in ("VALUE", "...")]
    signature.bind_partial(*values, **{each.arg: None for each in call.keywords if each.arg not in (None, "VALUE")})


def wrong_calls(source: str) -> list[str]:
    """Return the calls in the strings of a module whose function does not exist or does not take these arguments."""
    wrong = []
    for line, text in literals(ast.parse(source)):
        for call in calls_in(text):
            try:
                check_call(call)
            except (AttributeError, NameError, TypeError) as problem:
                wrong.append(f"line {line}: {ast.unparse(call)}: {problem}")
    return wrong


def test_calls_in_messages_exist_and_take_their_arguments() -> None:
    wrong = {path.relative_to(PACKAGE): wrong_calls(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}
    assert {path: calls for path, calls in wrong.items() if calls} == {}


@for_each(
    ("right", "wrong"),
    [
        ("collate.replace(packing=False)", "collate.replace(pack=False)"),
        ("collate.embed(batch)", "collate.embedd(batch)"),
        ("DataCollatorWithPositionalEncoding(tokenizer, model=model)", "DataCollatorWithPositionEncoding(tokenizer)"),
        ("AttentionMask.from_batch(batch, prefix=3)", "AttentionMask.from_batch(batch, prefixes=3)"),
        ("plan_batches(..., world_size=2).steps", "plan_batches(..., worldsize=2).steps"),
        ("TrainingArguments(max_steps=9)", "TrainingArguments(max_step=9)"),
        ("dataset.map(collate, batched=True)", "dataset.map(collate, batch=True)"),
        ("batches.in_order(len(batch) for batch in batches)", "batches.in_order(1, 2)"),
    ],
)
def test_meta_a_wrong_call_in_a_message_is_found(right: str, wrong: str) -> None:
    message = "raise value_error('a rule', fix=f'%s, or {value}')"
    assert wrong_calls(message % right) == []
    assert len(wrong_calls(message % wrong)) == 1
