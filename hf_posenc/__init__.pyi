# The public names, each written here and nowhere else: `__init__.py` reads this file and loads a name on first use.

from . import audit as audit
from . import corpus as corpus
from . import plots as plots
from . import testing as testing
from .collator import Batch as Batch
from .collator import DataCollatorWithPositionalEncoding as DataCollatorWithPositionalEncoding
from .collator import MaskedLM as MaskedLM
from .masks import AttentionMask as AttentionMask
from .masks import look_ahead_mask as look_ahead_mask
from .masks import padding_mask as padding_mask
from .models import ModelSpec as ModelSpec
from .models import compute_once as compute_once
from .models import use_sinusoidal_positions as use_sinusoidal_positions
from .packing import pack as pack
from .packing import plan_batches as plan_batches
from .positions import Convention as Convention
from .positions import PositionalEmbedding as PositionalEmbedding
from .positions import SinusoidalPositionalEncoding as SinusoidalPositionalEncoding
from .positions import fixed_bases as fixed_bases
from .positions import frequencies as frequencies
from .positions import position_ids_from_mask as position_ids_from_mask
from .positions import positional_encoding as positional_encoding
from .positions import sinusoidal_encoding as sinusoidal_encoding
from .sampling import TokenBudgetBatchSampler as TokenBudgetBatchSampler
from .sampling import TokenBudgetMixin as TokenBudgetMixin
from .sampling import TokenLogMixin as TokenLogMixin
from .sampling import mix_datasets as mix_datasets
from .sampling import pack_dataset as pack_dataset
from .sampling import stream_batches as stream_batches
from .sampling import with_arrow_batches as with_arrow_batches
from .tokenization import train_bpe as train_bpe

__version__: str
__all__: list[str]
