"""Check the values of a JSON file against types; an error names the key of the wrong value."""

import dataclasses
import math
import types
import typing
from functools import cache
from typing import Any

from bert_jax.core.errors import BertJaxError, suggest_name

NAMES = {
    str: "a text", bool: "true or false", int: "a number", float: "a number", type(None): "nothing",
    list: "a list", dict: "an object",
}  # fmt: skip
EXPECTED_TYPE_NAMES = NAMES | {int: "a whole number", float: "a finite number", type(None): "null"}


class JsonTypeError(BertJaxError):
    """A value has the wrong type. The message begins with the key; the caller puts the name of the file in front."""


def type_name(value) -> str:
    """Return the type of a value with its article, by the names of JSON where it has one.

    >>> type_name(5), type_name(enumerate("")), type_name(b"")
    ('a number', 'an enumerate', 'a bytes object')
    """
    name = "bytes object" if isinstance(value, bytes) else type(value).__name__
    return NAMES.get(type(value), f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}")


def coerce_json(value, value_type, key: str = "") -> Any:
    """Return a value as `value_type`, checked and converted.

    `value_type` is a JSON type, list[X], tuple[X, ...], dict[str, X], dict[int, X], a union of these, or a record.

    A TypedDict is an open record: unknown keys are kept. A dataclass is a closed one: they are refused. Numbers must be
    finite.

    >>> coerce_json({"0": 1}, dict[int, float])
    {0: 1}
    >>> coerce_json({"a": [1, "b"]}, dict[str, list[int]])
    Traceback (most recent call last):
    bert_jax.core.typed_json.JsonTypeError: "a.1" is a text, not a whole number
    """
    origin, inner = typing.get_origin(value_type) or value_type, typing.get_args(value_type)
    if value_type is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        return coerce_union(value, inner, key)
    if origin in (list, tuple) and type(value) is list:
        items = (
            coerce_json(item, inner[0] if inner else Any, join_keys(key, i)) for i, item in enumerate(value)
        )
        return origin(items)
    if origin is dict and type(value) is dict:
        of_key, of_value = inner or (str, Any)
        return {
            coerce_key(name, of_key, key): coerce_json(item, of_value, join_keys(key, name))
            for name, item in value.items()
        }
    if (typing.is_typeddict(value_type) or dataclasses.is_dataclass(value_type)) and type(value) is dict:
        return coerce_record(value, value_type, key)
    number = value_type is float and type(value) is int
    if (type(value) is value_type or number) and not (value_type is float and not math.isfinite(value)):
        return value
    raise JsonTypeError(
        f"{quote_key(key)} is {describe_wrong_value(value)}, not {expected_type_name(value_type)}"
    )


def coerce_union(value, value_types: tuple, key: str):
    """Convert to the first kind that fits. If none does, raise the error of the last kind whose outer type is right."""
    complaint = JsonTypeError(
        f"{quote_key(key)} is {describe_wrong_value(value)}, not {' or '.join(map(expected_type_name, value_types))}"
    )
    for value_type in value_types:
        try:
            return coerce_json(value, value_type, key)
        except JsonTypeError as error:
            if not str(error).startswith(f"{quote_key(key)} is "):
                complaint = error
    raise complaint


@cache
def record_keys(value_type) -> tuple[dict[str, Any], list[str]]:
    """Return the types of a record's keys, and the names of the required ones."""
    hints, absent = typing.get_type_hints(value_type), dataclasses.MISSING
    if typing.is_typeddict(value_type):
        return hints, [name for name in hints if name in value_type.__required_keys__]
    fields = dataclasses.fields(value_type)
    return hints, [field.name for field in fields if field.default is field.default_factory is absent]


def coerce_record(value: dict, value_type, key: str):
    hints, required = record_keys(value_type)
    for name in required:
        if name not in value:
            raise JsonTypeError(f"{quote_key(join_keys(key, name))} is missing")
    fields = {
        name: coerce_json(value[name], hints[name], join_keys(key, name)) for name in hints if name in value
    }
    if typing.is_typeddict(value_type):
        return value | fields
    if unknown := [name for name in value if name not in hints]:
        raise JsonTypeError(
            f"{quote_key(join_keys(key, unknown[0]))} is not a known key; {suggest_name(unknown[0], hints)}"
        )
    return value_type(**fields)


def coerce_key(name: str, value_type: type, key: str) -> int | str:
    if value_type is int:
        if not (name.isascii() and name.isdecimal() and len(name) < 20):
            raise JsonTypeError(f"{quote_key(join_keys(key, name))}: its name is not a whole number")
        return int(name)
    return name


def expected_type_name(value_type) -> str:
    origin = typing.get_origin(value_type) or value_type
    if origin is tuple:
        origin = list
    if typing.is_typeddict(value_type) or dataclasses.is_dataclass(value_type):
        origin = dict
    return EXPECTED_TYPE_NAMES[origin]


def describe_wrong_value(value) -> str:
    """Describe a wrong value: by its type, or, if it is NaN or infinite, by itself."""
    return f"{value}" if type(value) is float and not math.isfinite(value) else type_name(value)


def join_keys(key: str, name: object) -> str:
    return f"{key}.{name}" if key else str(name)


def quote_key(key: str) -> str:
    return f'"{key[:100]}"' if key else "it"
