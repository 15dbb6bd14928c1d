"""Documents: rows of tokens without padding and gaps, between their source and their arrangement in a batch.

`Documents` is the type, `pack_rows` puts several into a row, and `Limits` truncates them. `read_documents` makes them
of given rows. NumPy only.
"""

from .documents import Documents as Documents
from .documents import Limits as Limits
from .documents import Parts as Parts
from .documents import Truncation as Truncation
from .documents import kept_parts as kept_parts
from .documents import pack_rows as pack_rows
from .foreign import FOREIGN as FOREIGN
from .foreign import is_foreign_ids as is_foreign_ids
from .foreign import refuse_foreign_names as refuse_foreign_names
from .names import BOUNDARIES as BOUNDARIES
from .names import LABEL_COLUMNS as LABEL_COLUMNS
from .names import LENGTHS as LENGTHS
from .names import MASK_NUMBERS as MASK_NUMBERS
from .names import NUMBERS as NUMBERS
from .names import OFFSETS as OFFSETS
from .names import PER_TOKEN as PER_TOKEN
from .names import SUPERVISION as SUPERVISION
from .names import TOKEN_INDICES as TOKEN_INDICES
from .reading import columns_of_batch as columns_of_batch
from .reading import documents_by_positions as documents_by_positions
from .reading import is_no_mask as is_no_mask
from .reading import mask_of_texts as mask_of_texts
from .reading import no_mask as no_mask
from .reading import number_tokens as number_tokens
from .reading import read_documents as read_documents
from .reading import read_mask as read_mask
from .reading import without_padding_at_end as without_padding_at_end
