r"""Position ids, sinusoidal and other positional encodings, and the modules that add them to embeddings.

Other rooms import from `hf_posenc.positions` only, not from its modules.
"""

from .alternatives import KINDS as KINDS
from .alternatives import ExponentialPositionalEncoding as ExponentialPositionalEncoding
from .alternatives import Kind as Kind
from .alternatives import NoPositionalEncoding as NoPositionalEncoding
from .alternatives import ScaledSinusoidalPositionalEncoding as ScaledSinusoidalPositionalEncoding
from .alternatives import positional_encoding as positional_encoding
from .alternatives import resolve_encoding as resolve_encoding
from .arguments import USUAL_BASE as USUAL_BASE
from .arguments import Scale as Scale
from .arguments import check_length as check_length
from .arguments import without_values as without_values
from .cache import clear_cache as clear_cache
from .conventions import CONVENTIONS as CONVENTIONS
from .conventions import Convention as Convention
from .conventions import fixed_bases as fixed_bases
from .conventions import resolve_convention as resolve_convention
from .embedding import MAX_SPREAD as MAX_SPREAD
from .embedding import PositionalEmbedding as PositionalEmbedding
from .exact import round_once as round_once
from .functional import frequencies as frequencies
from .functional import reorder_columns as reorder_columns
from .functional import sinusoidal_encoding as sinusoidal_encoding
from .learned import LearnedPositionalEncoding as LearnedPositionalEncoding
from .module import PositionalEncoding as PositionalEncoding
from .module import SinusoidalPositionalEncoding as SinusoidalPositionalEncoding
from .position_ids import position_ids_from_documents as position_ids_from_documents
from .position_ids import position_ids_from_lengths as position_ids_from_lengths
from .position_ids import position_ids_from_mask as position_ids_from_mask
from .position_ids import row_length as row_length
from .recognition import Identified as Identified
from .recognition import identify as identify
