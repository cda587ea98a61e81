"""Protobuf values as columns: ptars decodes them by the reader's message, protoc reads the text of schemas.

    Protobuf                                          Arrow
    double, float, int32, uint32, ... bool            float64, float32, int32, uint32, ... bool
    string, bytes                                     string, binary
    an enum                                           string; the number as text if the schema lacks it
    a message                                         struct
    repeated, map                                     list, map
    google.protobuf.Timestamp, Duration               timestamp[us, UTC], duration[us]
    google.protobuf.Int64Value and the other wrappers the wrapped type
    a message inside itself                           binary: the inner message

Rules of the file:

- A field that tells whether it is set (optional, oneof, messages) is null if it is not; another one is its default.
- ptars panics at a schema of an edition (`edition = "2023"`), so such a reader's schema is refused.
- ptars passes over groups, also over those of the schema. A message that may hold one is refused.
- ptars follows unknown groups as deep as the bytes say, and the process dies of it (protobuf_depth.py).
- Where ptars differs from Google's library (protobuf_exact.py), Google's writes the values once more, in the one form
  that both read alike.
- Fields go by their numbers, so values of every version are read by the reader's message. The writer's schema tells
  only which message was written.
"""

from __future__ import annotations

import base64
import errno
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from remote_fetch.errors import ConfigError, MissingExtra
from remote_fetch.typed.arrays import Column, DataType, pa
from remote_fetch.typed.compute import pc
from remote_fetch.typed.outcome import Decoder, Undecodable
from remote_fetch.typed.protobuf_depth import depth_check
from remote_fetch.typed.protobuf_exact import check_times, has_times, oddity
from remote_fetch.typed.protobuf_files import files_of, known_files, proto_of, without_dates
from remote_fetch.typed.schema_text import SchemaText

__all__ = ["ProtobufReader"]

_ROOT = "remote_fetch_schema.proto"
_MOST_MESSAGES = 50_000
"""A message stands in a column wherever a field names it, so a short schema can have any number of them."""

_FAULTS_OF_NAMES = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)


class ProtobufReader:
    """Decodes Protobuf values into columns of a message of `schema`."""

    def __init__(self, schema: SchemaText, message: str | None = None) -> None:
        """`message` is a full name; None: the first message. Raises ConfigError and MissingExtra."""
        try:
            import ptars  # noqa: PLC0415 - an extra
        except ImportError:
            raise MissingExtra("Protobuf needs ptars", extra="protobuf") from None
        self._text = schema
        self._file = _compiled(schema)
        _check_edition(self._file)
        self._message = _first(self._file) if message is None else _named(self._file, message)
        _check_groups(self._message)
        self.kept_as_bytes: tuple[str, ...] = tuple(sorted(_recursive(self._message, (), iter(range(_MOST_MESSAGES)))))
        self._check_depth = depth_check(self._message)
        self._odd_rows = oddity(self._message)
        config = ptars.PtarsConfig(
            timestamp_unit="us", time_unit="us", duration_unit="us", enum_repr="string",
            list_nullable=True, map_nullable=True, list_value_nullable=True, map_value_nullable=True,
        )  # fmt: skip
        given = without_dates(self._message)
        self._handler = ptars.HandlerPool([given.file], config=config).get_for_message(given)
        self._given: DataType = pa.struct(list(self._handler.schema()))
        self.arrow_type: DataType = _nullable(self._given)
        self._has_times = has_times(self.arrow_type)

    def decoder(self, writer: SchemaText | None = None, path: tuple[int, ...] = ()) -> Decoder:
        """A decoder of the message at `path` in the file of `writer`.

        Raises Undecodable for another message, and ConfigError for a `writer` that is no schema.
        """
        if writer is not None:
            self._check(writer, path)
        return self._decode

    def _check(self, writer: SchemaText, path: tuple[int, ...]) -> None:
        if writer.kind != "PROTOBUF":
            raise Undecodable(f"the writer's schema is one of {writer.kind}")
        written = _at(self._file if writer == self._text else _compiled(writer), path)
        if written.full_name != self._message.full_name:
            raise Undecodable(f"a message {written.full_name}, and the reader's is {self._message.full_name}")

    def _decode(self, payloads: Column) -> Column:
        self._check_depth(payloads)
        rows = self._rows(payloads)
        for discards in (False, True):
            odd = sorted(self._odd_rows(rows)) if self._odd_rows is not None else []
            if not odd:
                break
            again = self._rows(_written_again(self._message, payloads.take(pa.array(odd)), discards))
            places = list(range(len(rows)))
            for number, row in enumerate(odd, len(rows)):
                places[row] = number
            rows = pa.concat_arrays([rows, again]).take(pa.array(places))
        if self._has_times:
            check_times(rows)
        return rows

    def _rows(self, payloads: Column) -> Column:
        try:
            batch = self._handler.array_to_record_batch(payloads)
        except (ValueError, OverflowError) as error:
            raise Undecodable(str(error).removeprefix("failed to decode Protobuf message: ")) from error
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of a length near 2^64: no subclass of Exception
                raise
            raise Undecodable("the decoder broke off") from None
        if not len(batch.schema):
            return pa.array([{}] * len(payloads), self.arrow_type)
        rows = pa.StructArray.from_arrays(batch.columns, fields=list(self._given))
        return pc.cast(rows, self.arrow_type)  # without a copy: fields lose "not null"


def _nullable(kind: DataType) -> DataType:
    """The type with fields that may be null: if a value is null, or does not decode, its fields are null too."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _nullable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _nullable(kind.item_type))
    return pa.list_(_nullable(kind.value_type)) if pa.types.is_list(kind) else kind


def _written_again(message: Any, payloads: Column, discards: bool) -> Column:
    """The same values as Google's library reads them: one member of each oneof, each key of a map once.

    `discards`: without fields that are unknown, at any depth. A number that an enum of proto2 lacks is one for Google's
    library, and a member of a oneof for ptars.
    """
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - an extra
    from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415

    parse, values = GetMessageClass(message).FromString, []
    try:
        for payload in payloads.to_pylist():
            value = parse(payload)
            if discards:
                value.DiscardUnknownFields()
            values.append(value.SerializePartialToString(deterministic=True))
    except DecodeError as error:
        raise Undecodable(f"broken, or nested too deeply: {error}") from error
    return pa.array(values, payloads.type)


def _compiled(schema: SchemaText) -> Any:
    """The descriptor of a schema's file. Raises ConfigError for a schema that protoc refuses, and MissingExtra."""
    try:
        import grpc_tools  # noqa: PLC0415 - an extra
        from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: PLC0415
        from google.protobuf.descriptor_pool import DescriptorPool  # noqa: PLC0415
        from grpc_tools import protoc  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("Protobuf needs grpcio-tools", extra="protobuf") from None
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory(prefix="remote-fetch-") as folder:
        root, given, made = Path(folder) / "schemas", Path(folder) / "given", Path(folder) / "made"
        root.mkdir()
        described = _put_all(root, schema)
        texts = [schema.text.encode(), *(each.text.encode() for _, each in schema.named())]
        texts += [file.SerializeToString() for file in described.file]
        for known in known_files(texts):
            known.CopyToProto(described.file.add())
        given.write_bytes(described.SerializeToString())
        arguments = [f"-I{root}", f"-I{well_known}", "--include_imports", f"--descriptor_set_out={made}", _ROOT]
        if described.file:
            arguments.insert(0, f"--descriptor_set_in={given}")
        if protoc.main(["protoc", *arguments]):
            raise ConfigError("protoc refuses the Protobuf schema; it has written the reason to stderr")
        files = FileDescriptorSet.FromString(made.read_bytes())
    pool = DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool.FindFileByName(_ROOT)


def _put_all(root: Path, schema: SchemaText) -> Any:
    """Put a schema and its references where protoc looks for them. Returns those that are descriptors."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: PLC0415 - an extra
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    described = FileDescriptorSet()
    try:
        for name, each in dict((*schema.named(), (_ROOT, schema))).items():
            _put(root, described, name, each.text)
    except DecodeError as error:
        raise ConfigError("the Protobuf schema is neither text nor a descriptor") from error
    except UnicodeEncodeError as error:
        raise ConfigError("the Protobuf schema, or a name of its references, is not in UTF-8") from error
    except OSError as error:
        if error.errno not in _FAULTS_OF_NAMES:
            raise
        reason = error.strerror
        raise ConfigError(f"the Protobuf schema refers to names that no files can have: {reason}") from error
    return described


def _put(root: Path, described: Any, name: str, text: str) -> None:
    """Put a schema where protoc looks for it: text into a file, and a descriptor among the described ones.

    Confluent's Python serializer registers descriptors in base64, and some registries give them back as they are.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or not path.name:
        raise ConfigError(f"the Protobuf schema refers to {name!r}, which is not the name of a file")
    try:
        descriptor = base64.b64decode(text, validate=True)  # no .proto is base64: it has quotes or braces
    except ValueError:
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        return
    file = described.file.add()
    file.ParseFromString(descriptor)
    file.name = name


def _first(file: Any) -> Any:
    """The first message of a file. Raises ConfigError if there is none."""
    return _at_or_none(file, (0,)) or _refuse("the Protobuf schema has no message")


def _named(file: Any, name: str) -> Any:
    try:
        return file.pool.FindMessageTypeByName(name)
    except KeyError:
        return _refuse(f"the Protobuf schema has no message {name!r}", key="protobuf.message")


def _at(file: Any, path: tuple[int, ...]) -> Any:
    """The message at a path. Raises Undecodable if there is none."""
    found = _at_or_none(file, path)
    if found is None:
        raise Undecodable(f"the writer's schema has no message at {list(path)}")
    return found


def _at_or_none(file: Any, path: tuple[int, ...]) -> Any:
    # The messages of a file stand by their names in the descriptor, and in the order of the file in its proto.
    messages, found = proto_of(file).message_type, None
    for number in path:
        if number >= len(messages):
            return None
        name = messages[number].name
        found = file.message_types_by_name[name] if found is None else found.nested_types_by_name[name]
        messages = messages[number].nested_type
    return found


def _check_edition(file: Any) -> None:
    """Raise ConfigError if the file, or one that it imports, is written in an edition, and not as proto2 or proto3."""
    for each in reversed(files_of(file)):
        if proto_of(each).syntax == "editions":
            _refuse(f"the Protobuf schema has an edition in {each.name}; only proto2 and proto3 can be decoded")


def _check_groups(message: Any) -> None:
    """Raise ConfigError if a field of the message, or of a message in it, is a group."""
    seen, todo = {message.full_name}, [message]
    while todo:
        for field in todo.pop().fields:
            if field.type == field.TYPE_GROUP:
                _refuse(f"the field {field.full_name} is a group (delimited encoding), which cannot be decoded")
            if field.message_type is not None and field.message_type.full_name not in seen:
                seen.add(field.message_type.full_name)
                todo.append(field.message_type)


def _recursive(message: Any, inside: tuple[str, ...], left: Iterator[int]) -> set[str]:
    """The names of the messages that contain themselves. Raises ConfigError if `left` ends before the messages do."""
    if message.full_name in inside:
        return {message.full_name}
    if next(left, None) is None:
        _refuse(f"the Protobuf schema has more than {_MOST_MESSAGES} messages inside messages")
    below = (field.message_type for field in message.fields if field.message_type is not None)
    return set().union(*(_recursive(each, (*inside, message.full_name), left) for each in below))


def _refuse(message: str, key: str | None = None) -> Any:
    raise ConfigError(message, key=key)
