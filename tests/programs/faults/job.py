"""A job as a Python call, which starts sooner: `python -m tests.programs.faults.job FOLDER SETTINGS INPUT...`.

The settings are a JSON object, `tokenizer` a file that the tokenizers library reads.
"""

from __future__ import annotations

import json
import sys

from tokenizers import Tokenizer

from hf_posenc.corpus import encode


def main() -> None:
    sys.tracebacklimit = 1  # a test limits the size of every file, and the log is one of them
    folder, settings, *inputs = sys.argv[1:]
    given = json.loads(settings)
    tokenizer = Tokenizer.from_file(given.pop("tokenizer"))
    encode(inputs, tokenizer, folder, **given)


if __name__ == "__main__":
    main()
