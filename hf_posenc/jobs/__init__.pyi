# The names of this room, each loaded on first use: a worker, which imports this package, needs none of them.

from .encoding import encode as encode
from .manifest import Manifest as Manifest
from .progress import Progress as Progress
from .verification import Verification as Verification
from .verification import verify as verify

__all__: list[str]
