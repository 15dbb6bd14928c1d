"""Audits of a position table (`identify`), of a model's positions (`check`), and of a data set's labels (`labels`).

They change neither the model, its training mode, the random state nor the data.
"""

from .labels import LabelCheck, labels
from .positions import CheckedTable, Identified, PositionCheck, check, identify

__all__ = ["CheckedTable", "Identified", "LabelCheck", "PositionCheck", "check", "identify", "labels"]
