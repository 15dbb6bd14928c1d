# The names of this room, each loaded on first use: a worker, which imports this package, needs none of them.

from .documents import read_documents as read_documents
from .encoding import encode as encode
from .manifest import Manifest as Manifest
from .on_ray import run_on_ray as run_on_ray
from .options import Options as Options
from .options import Progress as Progress
from .processes import run_in_processes as run_in_processes
from .sources import open_sources as open_sources
from .verification import Verification as Verification
from .verification import verify as verify

__all__: list[str]
