# The names of this room, each loaded on first use: a worker, which imports this package, needs none of them.

from .encode import Verification as Verification
from .encode import encode as encode
from .encode import verify as verify
from .manifest import Manifest as Manifest
from .options import Options as Options
from .options import Progress as Progress

__all__: list[str]
