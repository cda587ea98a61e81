"""The check of names that a layout gives for signing: each has to show that the object belongs to the segment."""

from __future__ import annotations

from collections.abc import Mapping

from remote_fetch.errors import UnsupportedFormat
from remote_fetch.formats.object_names import belongs_to
from remote_fetch.model import RemoteLogSegmentMetadata

__all__ = ["checked_names"]


def checked_names(names: Mapping[str, str], metadata: RemoteLogSegmentMetadata) -> Mapping[str, str]:
    """The names, by kind. Raises UnsupportedFormat if one does not show that its object belongs to the segment."""
    passed: set[str] = set()  # several kinds may share an object
    for kind, name in names.items():
        if name not in passed and not belongs_to(name, metadata):
            raise UnsupportedFormat(
                f"the name of the segment's {kind!r} object does not show that the object belongs to the segment, "
                "so no URL of it is signed or believed",
                object_name=name[:300],
                hint="A name needs the segment's id, and the topic's id or its name with the partition, and none of "
                "'..', '%', '?', '#' and '\\'",
            )
        passed.add(name)
    return names
