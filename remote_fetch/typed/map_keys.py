"""Maps that have a key twice. Decoders that read columns keep both entries, and all others keep the last one.

Rules of the file: a batch is only looked at, for writers of maps write no key twice.
"""

from __future__ import annotations

from remote_fetch.typed.arrays import Column, DataType, holds, pa
from remote_fetch.typed.compute import pc

__all__ = ["as_lists", "has_maps", "has_twins", "maps_with_twins"]


def as_lists(maps: Column, items: Column) -> Column:
    """`items` in lists as the maps have their entries: list_parent_indices takes no map."""
    return pa.ListArray.from_arrays(maps.offsets, items)


def maps_with_twins(maps: Column) -> set[int]:
    """The numbers of the maps that have a key twice."""
    coded = maps.keys.dictionary_encode()
    parents = pc.list_parent_indices(as_lists(maps, coded.indices))
    places = pc.add(pc.multiply(parents, len(coded.dictionary)), coded.indices)
    if pc.all(pc.less(*_neighbours(places))).as_py():
        return set()  # all rows have their keys in the same order, and this is the cheapest proof
    before, after = _neighbours(places.take(pc.sort_indices(places)))  # a sixth of the time of value_counts
    return set(pc.divide(after.filter(pc.equal(before, after)), len(coded.dictionary)).to_pylist())


def _neighbours(values: Column) -> tuple[Column, Column]:
    return values.slice(0, max(len(values) - 1, 0)), values.slice(1)


def has_maps(kind: DataType) -> bool:
    """Whether a type is or has a map."""
    return holds(kind, pa.types.is_map)


def has_twins(column: Column) -> bool:
    """Whether a map in a column, at any depth, has a key twice."""
    kind = column.type
    if not has_maps(kind):
        return False
    if pa.types.is_map(kind):
        return bool(maps_with_twins(column)) or has_twins(column.items)
    if pa.types.is_list(kind):
        return has_twins(column.values)
    return any(has_twins(column.field(number)) for number in range(kind.num_fields))
