"""Hugging Face models: their inputs and positions, found by running them, and sinusoids written into their tables."""

from .mask_support import LayerMasks as LayerMasks
from .once import MEASURED as MEASURED
from .once import UNSEEN as UNSEEN
from .once import ComputedOnce as ComputedOnce
from .once import Tokens as Tokens
from .once import at_tokens as at_tokens
from .once import compute_once as compute_once
from .once import largest_difference as largest_difference
from .position_tables import PositionTable as PositionTable
from .position_tables import find_positions as find_positions
from .position_tables import unread_tables as unread_tables
from .probe import Probe as Probe
from .probe import unchanged as unchanged
from .properties import forward_names as forward_names
from .properties import is_hugging_face as is_hugging_face
from .properties import loaded_model as loaded_model
from .properties import not_a_model as not_a_model
from .properties import opened as opened
from .report import SinusoidalPositions as SinusoidalPositions
from .spec import ModelSpec as ModelSpec
from .table_contents import looks_trained as looks_trained
from .use import recorded_formula as recorded_formula
from .use import use_sinusoidal_positions as use_sinusoidal_positions
