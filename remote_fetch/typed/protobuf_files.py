"""Files that Protobuf schemas import without bringing them, and the messages of them that ptars reads otherwise.

Rules of the file:

- Confluent's serializers register no references to files that all of them have (`google/type/`, `confluent/`). Those
  come from Python's libraries of these files.
- ptars makes dates and times of day of `google.type.Date` and `TimeOfDay`. These may have no year, no day or 24 hours:
  ptars gives another date then, and cuts nanoseconds. Under another name they are messages as all others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

__all__ = ["files_of", "known_files", "proto_of", "without_dates"]

_KNOWN_FILE = re.compile(rb"(?:google/type|confluent|confluent/types?)/\w+(?=\.proto)")
_DATES = ("google.type.Date", "google.type.TimeOfDay")


def known_files(texts: Iterable[bytes]) -> Iterator[Any]:
    """The known files that schemas name, with those that they import themselves.

    A file that no library has is left out, and protoc says that it is missing. Of two files of a name it takes the
    first, which is the schema's own reference if there is one.
    """
    seen: set[str] = set()
    todo = [name.decode() for text in texts for name in _KNOWN_FILE.findall(text)]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        library = "confluent_kafka.schema_registry." if name.startswith("confluent/") else ""
        try:
            file = import_module(f"{library}{name.replace('/', '.')}_pb2").DESCRIPTOR
        except (ImportError, TypeError):  # a TypeError if the process has another file of this name
            continue
        yield file
        todo += [each.decode() for each in _KNOWN_FILE.findall(file.serialized_pb)]


def without_dates(message: Any) -> Any:
    """The message, in which dates and times of day have another name."""
    from google.protobuf.descriptor_pool import DescriptorPool  # noqa: PLC0415 - an extra

    files = files_of(message.file)
    if not any(each.full_name in _DATES for file in files for each in file.message_types_by_name.values()):
        return message
    pool = DescriptorPool()
    for file in files:
        proto = proto_of(file)
        for each in proto.message_type:
            _rename_fields(each)
        for each in proto.message_type:
            if f"{proto.package}.{each.name}" in _DATES:
                each.name += "_"
        _rename(proto.extension)
        pool.Add(proto)
    return pool.FindMessageTypeByName(message.full_name + "_" * (message.full_name in _DATES))


def _rename_fields(message: Any) -> None:
    _rename(message.field)
    _rename(message.extension)
    for inner in message.nested_type:
        _rename_fields(inner)


def _rename(fields: Iterable[Any]) -> None:
    for field in fields:
        if field.type_name.removeprefix(".") in _DATES:
            field.type_name += "_"


def proto_of(file: Any) -> Any:
    """The descriptor of a file as a message of Protobuf."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # noqa: PLC0415 - an extra

    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    return proto


def files_of(file: Any) -> list[Any]:
    """The file and all that it imports, each behind its imports."""
    found: dict[str, Any] = {}
    todo = [file]
    while todo:
        now = todo[-1]
        missing = [each for each in now.dependencies if each.name not in found]
        todo += missing
        if not missing:
            found.setdefault(todo.pop().name, now)
    return list(found.values())
