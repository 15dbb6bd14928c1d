"""Which kinds of columns a shard can hold: those that Parquet stores and `datasets` reads back.

Only types are looked at; which columns are carried is for `columns`.
"""

from __future__ import annotations

import pyarrow as pa


def can_hold(kind: pa.DataType) -> bool:
    r"""Whether Parquet stores columns of a type, and `datasets` reads them.

    Example:
        >>> can_hold(pa.list_(pa.int64())), can_hold(pa.month_day_nano_interval()), can_hold(pa.struct([]))
        (True, False, False)
    """
    if isinstance(kind, pa.BaseExtensionType):  # those of datasets, which knows them again, and Arrow's own
        return not kind.extension_name.startswith("arrow.") or kind.extension_name == "arrow.json"
    if pa.types.is_dictionary(kind):
        return not pa.types.is_nested(kind.value_type) and can_hold(kind.value_type)
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(can_hold(field.type) for field in kind)
    if pa.types.is_fixed_size_list(kind):
        return kind.list_size > 0 and can_hold(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return can_hold(kind.value_type)
    return not (
        pa.types.is_nested(kind)  # maps, unions, views of lists
        or pa.types.is_run_end_encoded(kind)
        or pa.types.is_interval(kind)
        or pa.types.is_decimal32(kind)
        or pa.types.is_decimal64(kind)
    )
