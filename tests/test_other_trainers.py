"""The trainers of other libraries in docs/trainer.md: a step with the collator is compared with one without it.

tests/test_clients.py runs the trainer of sentence-transformers.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from datasets import Dataset
from installed import before
from tokenizers import SentencePieceBPETokenizer, processors
from torch.utils.data import DataLoader

from hf_posenc import Batch, train_bpe
from hf_posenc import DataCollatorWithPositionalEncoding as C

# Both libraries and their dependencies warn about themselves.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

TEXTS = ["I ride bike", "bike ride I, she said"] * 4
PROMPTS = {"prompt": ["I ", "she"], "completion": ["ride bike", " said"]}
ANSWERS = {"chosen": ["ride bike", " said"], "rejected": ["said", "I"]}
DATA: dict[str, Any] = {
    "SFT": PROMPTS,
    "KTO": PROMPTS | {"label": [True, False]},
    "DPO": ANSWERS | {"prompt": ["I ", "she"]},
    "Reward": ANSWERS,
    "GRPO": {"prompt": ["I", "she"]},
}
SETTINGS: dict[str, dict[str, Any]] = {"GRPO": {"num_generations": 2, "max_completion_length": 4}}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_bpe(TEXTS, 300, progress=False)


def _model(tokenizer: Any, kind: str = "SFT") -> Any:
    transformers.set_seed(0)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "num_labels": 1}
    config = transformers.GPT2Config(vocab_size=len(tokenizer), bos_token_id=1, eos_token_id=2, **sizes)
    return (transformers.GPT2ForSequenceClassification if kind == "Reward" else transformers.GPT2LMHeadModel)(config)


def _trained(kind: str, model: Any, folder: Path, **given: Any) -> Any:
    """Return TRL's trainer after one step."""
    trl = pytest.importorskip("trl", reason="needs TRL: pip install trl")
    if before("trl", "1.0"):
        pytest.skip("TRL 0.29 takes every processor for one of images")
    args = getattr(trl, f"{kind}Config")(
        str(folder),
        max_steps=1,
        per_device_train_batch_size=2,
        save_steps=1,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
        dataloader_pin_memory=False,
        **SETTINGS.get(kind, {}),
    )
    if kind in ("DPO", "KTO"):
        given["ref_model"] = copy.deepcopy(model)  # by default, TRL loads it from the Hub
    if kind == "GRPO":
        given["reward_funcs"] = lambda completions, **_: [float(len(text)) for text in completions]
    given = {"train_dataset": Dataset.from_dict(DATA[kind]), **given}
    trainer = getattr(trl, f"{kind}Trainer")(model, args=args, **given)
    trainer.train()
    return trainer


def _weights(trainer: Any) -> list[torch.Tensor]:
    return list(trainer.model.parameters())


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("SFT", ["data_collator", "processing_class"]),
        ("SFT", ["processing_class"]),
        ("DPO", ["processing_class"]),
        ("KTO", ["processing_class"]),
    ],
    ids=["SFT, both", "SFT, processing_class", "DPO", "KTO"],
)
def test_a_step_with_the_collator_is_that_with_the_tokenizer(
    tokenizer: Any, kind: str, names: list[str], tmp_path: Path
) -> None:
    stock = _trained(kind, _model(tokenizer), tmp_path / "stock", processing_class=tokenizer)
    model = _model(tokenizer)
    collate = C(tokenizer, model=model)
    ours = _trained(kind, model, tmp_path / "ours", **dict.fromkeys(names, collate))
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(_weights(ours), _weights(stock), strict=True))
    assert C.from_pretrained(tmp_path / "ours" / "checkpoint-1") == collate


@pytest.mark.parametrize("kind", ["Reward", "GRPO"])
def test_a_step_with_the_tokenizer_of_the_collator_runs(tokenizer: Any, kind: str, tmp_path: Path) -> None:
    stock = _trained(kind, _model(tokenizer, kind), tmp_path / "stock", processing_class=tokenizer)
    ours = _trained(kind, _model(tokenizer, kind), tmp_path / "ours", processing_class=C(tokenizer).tokenizer)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(_weights(ours), _weights(stock), strict=True))


REFUSALS = [
    ("Reward", "processing_class", AttributeError, r"RewardTrainer processing_class=collate\.tokenizer$"),
    ("Reward", "data_collator", ValueError, "leave out data_collator="),
    ("DPO", "data_collator", ValueError, "leave out data_collator="),
    ("KTO", "data_collator", ValueError, "leave out data_collator="),
]


@pytest.mark.parametrize(("kind", "argument", "error", "words"), REFUSALS)
def test_a_trainer_that_collates_pairs_itself_gets_what_to_pass(
    tokenizer: Any, kind: str, argument: str, error: type[Exception], words: str, tmp_path: Path
) -> None:
    given = {"processing_class": tokenizer, argument: C(tokenizer)}
    with pytest.raises(error, match=words):
        _trained(kind, _model(tokenizer, kind), tmp_path, **given)


@pytest.mark.parametrize("kind", ["DPO", "KTO"])
def test_a_trainer_that_collates_pairs_itself_refuses_a_collator_of_branches(
    tokenizer: Any, kind: str, tmp_path: Path
) -> None:
    model = _model(tokenizer, kind)
    collate = C(tokenizer, model=model, text_column="prompt", branches=("chosen", "rejected"))
    with pytest.raises((ValueError, KeyError), match=r"fix: DPOTrainer, RewardTrainer and KTOTrainer .* leave out"):
        _trained(kind, model, tmp_path, processing_class=tokenizer, data_collator=collate)


def _bert() -> Any:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "i", "ride", "##s", "bike", ",", "she", "said"]
    tokenizer = transformers.BertTokenizer(vocab={word: number for number, word in enumerate(words)})
    tokenizer.eos_token = "[SEP]"
    return tokenizer


def _sentencepiece() -> Any:
    """A tokenizer that puts `▁` before each text, as Llama's does."""
    raw = SentencePieceBPETokenizer()
    raw.train_from_iterator(TEXTS, vocab_size=60, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False)
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=raw._tokenizer, **special)


def _byte_level() -> Any:
    tokenizer = train_bpe(TEXTS, 300, progress=False)
    tokenizer.backend_tokenizer.post_processor = processors.ByteLevel()  # without <s> and </s>, as GPT-2's
    return tokenizer


CHAT = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)
PAIRS = {"prompt": ["I ride", "bike ride I, "], "chosen": [" bike", "she said"], "rejected": [" ride bike", "she"]}


@pytest.mark.parametrize("is_chat", [False, True], ids=["texts", "conversations"])
@pytest.mark.parametrize("made", [_byte_level, _bert, _sentencepiece, lambda: train_bpe(TEXTS, 300, progress=False)])
def test_branches_have_the_ids_of_trl(made: Any, is_chat: bool, tmp_path: Path) -> None:
    tokenizer = made()
    tokenizer.chat_template = CHAT
    roles = {"prompt": "user", "chosen": "assistant", "rejected": "assistant"}
    data: dict[str, Any] = PAIRS
    if is_chat:
        data = {name: [[{"role": roles[name], "content": text}] for text in texts] for name, texts in PAIRS.items()}
    dataset = Dataset.from_dict(data)
    trainer = _trained("DPO", _model(tokenizer), tmp_path, processing_class=tokenizer, train_dataset=dataset)
    theirs = trainer.train_dataset.select_columns(["prompt_ids", "chosen_ids", "rejected_ids"])[:]
    for ids in [*theirs["chosen_ids"], *theirs["rejected_ids"]]:
        if ids[-2:] == [tokenizer.eos_token_id] * 2:  # of the text, and of the tokenizer; one is enough
            del ids[-1]
    collate = C(tokenizer, branches=("chosen", "rejected"), text_column="prompt", labels="causal_lm", look_ahead=False)
    ours = collate.columns(data)
    for row, (ids, branches) in enumerate(zip(ours["input_ids"], ours["branch_ids"], strict=True)):
        chosen, rejected = (ids[branches == branch] for branch in (1, 2))
        assert [*ids[branches == 0], chosen[0]] == theirs["prompt_ids"][row]
        assert chosen[0] == rejected[0]
        assert [chosen[1:].tolist(), rejected[1:].tolist()] == [theirs["chosen_ids"][row], theirs["rejected_ids"][row]]
    batches = [collate.batch(rows) for rows in (data, theirs)]
    assert batches[0].keys() == batches[1].keys()
    assert all(torch.equal(batches[0][name], batches[1][name]) for name in batches[0])


def test_lightning_trains_on_batches_of_a_loader_with_the_collator(tokenizer: Any) -> None:
    lightning = pytest.importorskip("lightning", reason="needs Lightning: pip install lightning")
    model = _model(tokenizer)
    kinds = []

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, number: int) -> Any:
            kinds.append(type(batch))
            return self.model(**batch).loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    before_ = model.lm_head.weight.clone()
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = lightning.Trainer(max_steps=1, accelerator="cpu", **quiet)
    trainer.fit(Module(), DataLoader(TEXTS, batch_size=4, collate_fn=C(tokenizer, model=model, labels="causal_lm")))
    assert kinds == [Batch]
    assert not torch.equal(model.lm_head.weight, before_)
