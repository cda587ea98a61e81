"""JSON values as columns of a JSON Schema: by pyarrow's reader if it can, else by Python's.

Rules of the file:

- pyarrow reads values that are joined by line feeds. Each has to begin with { and end with }: then none of them can run
  over into the next, and as many rows as values prove that none held two.
- What pyarrow refuses, Python's reader has the last word on: 1.0 is an integer, and of two equal names the last counts.
- A number is none of a text's, and no text becomes a number.
- JSON that is kept as text keeps the digits of its numbers, which a float may not have.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow.json
from pyarrow import Schema

from remote_fetch.typed.arrays import Column, DataType, pa
from remote_fetch.typed.compute import pc
from remote_fetch.typed.json_types import JsonNode, List, MapOf, Plain, Struct, Text, json_node
from remote_fetch.typed.outcome import Decoder, Undecodable
from remote_fetch.typed.schema_text import SchemaText

__all__ = ["JsonReader"]

pa_json: Any = pyarrow.json
_OBJECT = r"(?s)\A[ \t\r\n]*\{.*\}[ \t\r\n]*\z"
_INF = re.compile(rb"Inf[\], \t\r\n}]")
_FEW = 16
"""For fewer values pyarrow's reader takes longer than Python's. A broken value is found by calls for few values."""
_MOST_DIGITS = 4300
"""Python refuses to convert a whole number of more digits, unless `sys.set_int_max_str_digits` says another limit."""
_Convert = Callable[[Any, str], Any]


class JsonReader:
    """Decodes JSON into columns of `schema`."""

    kept_as_bytes: tuple[str, ...] = ()

    def __init__(self, schema: SchemaText) -> None:
        """Raises ConfigError for a schema that is none."""
        self._node = json_node(schema)
        self.arrow_type: DataType = self._node.arrow
        self._convert = _converter(self._node, _dumped)
        self._convert_exactly = _converter(self._node, _written)
        self._has_text = _has_text(self._node)
        self._is_odd = False
        self._quick = pa.schema(list(self.arrow_type)) if _is_quick(self._node, root=True) else None

    def decoder(self, writer: SchemaText | None = None, path: tuple[int, ...] = ()) -> Decoder:
        """A decoder of JSON. The writer's schema does not change what is read; Undecodable if it is none of JSON's."""
        if writer is not None and writer.kind != "JSON":
            raise Undecodable(f"the writer's schema is one of {writer.kind}")
        return self._decode

    def _decode(self, payloads: Column) -> Column:
        if self._quick is not None and len(payloads) >= _FEW:
            found = _by_arrow(payloads, self._quick)
            if found is not None:
                return found
        values = [self._value(payload) for payload in payloads.to_pylist()]
        try:
            return pa.array(values, self.arrow_type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise Undecodable(str(error)) from error

    def _value(self, payload: bytes) -> Any:
        try:
            is_special = b"-0" in payload or len(payload) > _MOST_DIGITS
            self._is_odd = False
            parsed = json.loads(
                payload,
                parse_int=self._whole if is_special else None,
                parse_float=self._fraction if self._has_text else None,
            )
            return (self._convert_exactly if self._is_odd else self._convert)(parsed, "$")
        except RecursionError:
            raise Undecodable("nested too deeply") from None
        except ValueError as error:
            raise Undecodable(f"not JSON: {error}") from error

    def _whole(self, digits: str) -> int | float:
        # No int is -0, which pyarrow's reader gives if the schema has a number.
        return self._fraction(digits) if digits == "-0" else _whole(digits)

    def _fraction(self, digits: str) -> float:
        number = float(digits)
        if repr(number) == digits:
            return number
        self._is_odd = True
        return _Written(digits)


def _by_arrow(payloads: Column, schema: Schema) -> Column | None:
    """The values, if pyarrow's reader takes them all."""
    if not len(payloads):
        return pa.array([], pa.struct(list(schema)))
    try:
        texts = pc.cast(payloads, pa.string())  # pyarrow's reader takes bytes that are not UTF-8
        if not pc.all(pc.match_substring_regex(texts, _OBJECT)).as_py():
            return None
        joined = pc.binary_join(pa.ListArray.from_arrays([0, len(payloads)], payloads), b"\n")[0].as_buffer()
        if _may_have_odd_number(joined.to_pybytes()):
            return None
        table = pa_json.read_json(
            pa.BufferReader(joined),
            read_options=pa_json.ReadOptions(use_threads=False, block_size=joined.size + 1),
            parse_options=pa_json.ParseOptions(
                explicit_schema=schema, newlines_in_values=True, unexpected_field_behavior="ignore"
            ),
        )
    except (pa.ArrowException, ValueError, OverflowError):
        return None
    if table.num_rows != len(payloads) or table.schema != schema:
        return None
    batch = table.combine_chunks().to_batches()[0]
    return pa.StructArray.from_arrays(batch.columns, fields=list(schema))


def _may_have_odd_number(values: bytes) -> bool:
    """Whether the values may have Inf or -NaN, which pyarrow's reader takes for numbers. A text may look like one.

    Python's reader knows NaN, Infinity and -Infinity alone.
    """
    return b"-NaN" in values or _INF.search(values) is not None


def _is_quick(node: JsonNode, *, root: bool = False) -> bool:
    if isinstance(node, Struct):
        return all(_is_quick(each) for _, each in node.fields)
    if root:
        return False
    return isinstance(node, Plain) or (isinstance(node, List) and _is_quick(node.items))


def _has_text(node: JsonNode) -> bool:
    if isinstance(node, Struct):
        return any(_has_text(each) for _, each in node.fields)
    if isinstance(node, (List, MapOf)):
        return _has_text(node.items if isinstance(node, List) else node.values)
    return isinstance(node, Text)


def _converter(node: JsonNode, text: Callable[[Any], str]) -> _Convert:
    """A function from a value of Python's reader to what Arrow takes. It raises Undecodable for other types.

    `text` gives the JSON of a value.
    """
    if isinstance(node, Struct):
        return _struct(node, text)
    if isinstance(node, MapOf):
        values = _converter(node.values, text)
        return lambda value, at: (
            None
            if value is None
            else [(name, values(each, f"{at}.{name}")) for name, each in _of(dict, value, at).items()]
        )
    if isinstance(node, List):
        items = _converter(node.items, text)
        return lambda value, at: (
            None
            if value is None
            else [items(each, f"{at}[{number}]") for number, each in enumerate(_of(list, value, at))]
        )
    if isinstance(node, Text):
        return lambda value, at: None if value is None else text(value)
    assert isinstance(node, Plain)
    return _PLAIN[node.arrow]


def _struct(node: Struct, text: Callable[[Any], str]) -> _Convert:
    fields = [(name, _converter(each, text)) for name, each in node.fields]

    def convert(value: Any, at: str) -> Any:
        if value is None:
            return None
        given = _of(dict, value, at)
        return {name: field(given.get(name), f"{at}.{name}") for name, field in fields}

    return convert


class _Written(float):
    """A number that keeps its digits."""

    def __init__(self, digits: str) -> None:
        self.digits = digits


def _dumped(value: Any) -> str:
    """The JSON of a parsed value, of whose numbers Python writes all as they came."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _written(value: Any) -> str:
    """As `_dumped`, of numbers that keep their digits. It takes four times as long."""
    if isinstance(value, _Written):
        return value.digits
    if isinstance(value, dict):
        return "{" + ",".join([f"{_dumped(name)}:{_written(each)}" for name, each in value.items()]) + "}"
    if isinstance(value, list):
        return "[" + ",".join([_written(each) for each in value]) + "]"
    return _dumped(value)


def _whole(digits: str) -> int:
    """A number without a point.

    If Python refuses the digits, the result is a larger number. A column of numbers has it as infinity, as with
    pyarrow's reader. A column of integers or texts refuses it.
    """
    try:
        return int(digits)
    except ValueError:
        larger = 1 << 4 * len(digits)
        return -larger if digits.startswith("-") else larger


def _integer(value: Any, at: str) -> Any:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        number = value
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    else:
        raise _other(value, at, "an integer")
    if number is not None and not -(2**63) <= number < 2**63:
        raise Undecodable(f"{at}: an integer of more than 64 bits")
    return number


def _number(value: Any, at: str) -> Any:
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:  # a number of more than 308 digits, as 1e400 is
            return math.inf if value > 0 else -math.inf
    raise _other(value, at, "a number")


def _string(value: Any, at: str) -> Any:
    if value is not None and not isinstance(value, str):
        raise _other(value, at, "a string")
    return value


def _boolean(value: Any, at: str) -> Any:
    if value is not None and not isinstance(value, bool):
        raise _other(value, at, "a boolean")
    return value


_PLAIN: Mapping[DataType, _Convert] = {
    pa.int64(): _integer, pa.float64(): _number, pa.string(): _string, pa.bool_(): _boolean,
}  # fmt: skip
_CALLED: Mapping[type, str] = {dict: "an object", list: "an array"}


def _of(kind: type, value: Any, at: str) -> Any:
    if not isinstance(value, kind):
        raise _other(value, at, _CALLED[kind])
    return value


def _other(value: Any, at: str, wanted: str) -> Undecodable:
    kind = "float" if isinstance(value, float) else type(value).__name__
    return Undecodable(f"{at}: {kind} where the schema has {wanted}")
