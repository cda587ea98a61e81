"""Finds Protobuf values that are nested so deeply that ptars, which has no limit, would end the process.

Rules of the file:

- For each group inside a group ptars takes 80 bytes of the stack, and the value has one byte at least. So only long
  values can do harm, and only these are parsed by Google's parser, which ends at a depth of 100.
- Groups can stand in any message that ptars enters. So the parser has a copy of the schema with the messages alone, and
  passes over all other fields. That costs less than half for many fields, and the same for a long one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remote_fetch.typed.arrays import Column
from remote_fetch.typed.compute import pc
from remote_fetch.typed.outcome import Undecodable
from remote_fetch.typed.protobuf_files import files_of, proto_of

__all__ = ["depth_check"]

_LONG_BYTES = 8192
"""Shorter values need 700 KB of stack at most. A thread may have 1 MB, as with musl (Alpine)."""


def depth_check(message: Any) -> Callable[[Column], None]:
    """A function that raises Undecodable if one of the long values is none of the message's, or nested too deeply."""
    from google.protobuf.descriptor_pool import DescriptorPool  # noqa: PLC0415 - an extra
    from google.protobuf.message import DecodeError  # noqa: PLC0415
    from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415

    pool = DescriptorPool()
    for file in files_of(message.file):
        pool.Add(_bare_file(file))
    parse = GetMessageClass(pool.FindMessageTypeByName(message.full_name)).FromString

    def check(payloads: Column) -> None:
        try:
            for payload in payloads.filter(pc.greater(pc.binary_length(payloads), _LONG_BYTES)).to_pylist():
                parse(payload)
        except DecodeError as error:
            raise Undecodable(f"broken, or nested too deeply: {error}") from error

    return check


def _bare_file(file: Any) -> Any:
    """A file with fields that are messages alone."""
    proto = proto_of(file)
    del proto.extension[:], proto.service[:]
    proto.ClearField("options")
    for each in proto.message_type:
        _bare(each)
    return proto


def _bare(message: Any) -> None:
    fields = [field for field in message.field if field.type == field.TYPE_MESSAGE]
    for field in fields:
        field.ClearField("oneof_index")
        field.ClearField("proto3_optional")
        field.ClearField("options")
        if field.label == field.LABEL_REQUIRED:
            field.label = field.LABEL_OPTIONAL
    del message.field[:], message.oneof_decl[:], message.extension[:]
    del message.extension_range[:]  # without its options a MessageSet must not have as many
    message.field.extend(fields)
    message.ClearField("options")  # an entry of a map is a message like others
    for each in message.nested_type:
        _bare(each)
