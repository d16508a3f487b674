"""Read config files of ml_collections into frozen dataclasses.

A config file defines `get_config(name)`, which returns a `ConfigDict`. A key that the file leaves out has the default
of the dataclass. An unknown key is an error, which suggests a known one:

    config = parse_config(run_config_file("configs/pretrain.py:base"), ["data.mlm_probability=0.2"], Pretraining)
    config.data.mlm_probability  # 0.2
"""

import ast
import copy
import csv
import dataclasses
import io
import math
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from numbers import Integral, Real
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from bert_jax.core.errors import BertJaxError, suggest_name
from bert_jax.core.surrogates import holds_surrogates
from bert_jax.core.synonyms import hint_for
from bert_jax.core.typed_json import EXPECTED_TYPE_NAMES

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
# The largest values of fields whose range has no upper bound.
MAX_INT = 2**31 - 1  # whole numbers: steps are counted in 32 bits
MAX_FLOAT = 3.4e38  # other numbers: arrays are float32


@dataclasses.dataclass(frozen=True)
class Range:
    """The allowed range of a number, from `minimum` to `maximum`; `sentinel` is one more allowed value with its own
    meaning.

    >>> Range(0, 1, exclusive_maximum=True).description
    '0 or more and less than 1'
    """

    minimum: float
    maximum: float = math.inf
    exclusive_minimum: bool = False  # more than `minimum`
    exclusive_maximum: bool = False  # less than `maximum`
    sentinel: float | None = None

    def __contains__(self, value: float) -> bool:
        over = value > self.minimum if self.exclusive_minimum else value >= self.minimum
        under = value < self.maximum if self.exclusive_maximum else value <= self.maximum
        return (over and under) or value == self.sentinel

    @property
    def description(self) -> str:
        low, high = f"{self.minimum:,.10g}", f"{self.maximum:,.10g}"
        wanted = f"more than {low}" if self.exclusive_minimum else f"{low} or more"
        if not (self.exclusive_minimum or self.exclusive_maximum or self.maximum == math.inf):
            wanted = f"between {low} and {high}"
        elif self.maximum < math.inf:
            wanted += f" and {'less than' if self.exclusive_maximum else 'at most'} {high}"
        return wanted if self.sentinel is None else f"{wanted}, or {self.sentinel:g}"


@dataclasses.dataclass(frozen=True)
class OneOf:
    """The allowed values of a string."""

    choices: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Registered:
    """The names of a registry, to which users can add their own. Whoever looks a name up checks it."""

    names: Callable[[], Collection[str]]


SEED_RANGE = Range(1 - 2**63, 2**63 - 1)
Positive = Annotated[int, Range(1)]
NonNegative = Annotated[int, Range(0)]
Share = Annotated[float, Range(0, 1)]


def check_ranges(config: "DataclassInstance", where: str = "") -> None:
    """Refuse numbers that are not finite, too large for any use, or outside the range that their field declares.

    Messages put `where`, which ends in a dot, before the name of the field.
    """
    for name, (is_whole, allowed) in field_ranges(type(config)).items():
        value = getattr(config, name)
        for number in value if isinstance(value, tuple) else (value,):
            check_number(number, where + name, is_whole, allowed)


def check_number(value, name: str, is_whole: bool = False, allowed: Range | None = None) -> None:
    noun, numbers = ("whole number", Integral) if is_whole else ("number", Real)
    # On a line of its own: after a check in an `if`, mypy would take the value for an Integral or a Real, and reject
    # the comparisons below.
    is_number = isinstance(value, numbers) and not isinstance(value, bool)
    if not is_number:
        raise BertJaxError(f"{name} must be a {noun}, not {value!r:.40}")
    unlimited = allowed is None or allowed.maximum == math.inf
    if unlimited and not abs(value) <= (MAX_INT if is_whole else MAX_FLOAT):
        raise BertJaxError(f"{name} must be a finite 32-bit {noun}, not {value!r:.40}")
    if allowed and value not in allowed:
        raise BertJaxError(f"{name} must be {allowed.description}, not {value!r:.40}")


def check_flag(value, name: str) -> None:
    if not isinstance(value, bool):
        raise BertJaxError(f"{name} must be True or False, not {value!r:.40}")


def check_choices(config: "DataclassInstance", where: str) -> None:
    """Refuse a string that is not one of the choices that its field declares."""
    for name, hint in typing.get_type_hints(type(config), include_extras=True).items():
        for limit in getattr(hint, "__metadata__", ()):
            if isinstance(limit, OneOf):
                value = getattr(config, name)
                if not isinstance(value, str) or value not in limit.choices:
                    hint = suggest_name(value, filter(None, limit.choices))
                    raise BertJaxError(f'{where}{name} cannot be "{value!s:.60}"; {hint}')


@cache
def field_ranges(value_type: type) -> dict[str, tuple[bool, Range | None]]:
    """Return, for each field that holds a number or a tuple of numbers: (whether they must be whole, their range)."""
    ranges = {}
    hints = typing.get_type_hints(value_type, include_extras=True)
    for field in dataclasses.fields(value_type):
        hint = hints[field.name]
        allowed = next((x for x in getattr(hint, "__metadata__", ()) if isinstance(x, Range)), None)
        plain = hint.__origin__ if typing.get_origin(hint) is Annotated else hint
        number = typing.get_args(plain)[0] if typing.get_origin(plain) is tuple else plain
        if number in (int, float):
            ranges[field.name] = number is int, allowed
    return ranges


def merge_values(values: Mapping, changes: Mapping) -> dict:
    """Return nested dicts with the values of others in place of theirs.

    >>> merge_values({"seed": 1, "data": {"batch_size": 8}}, {"data": {"weights": [1.0]}})
    {'seed': 1, 'data': {'batch_size': 8, 'weights': [1.0]}}
    """
    both = dict(values)
    for name, value in changes.items():
        before = both.get(name)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            value = merge_values(before, value)
        both[name] = value
    return both


def parse_config(values: dict, overrides: Sequence[str], reader: type[T], *, strict: bool = True) -> T:
    """Read the values of a config file, with `a.b=value` overrides, as the frozen dataclass `reader`.

    With `strict=False`, top-level keys of the file for which `reader` has no field are ignored instead of refused, and
    overrides of them too. `values` itself is not changed.
    """
    others = set() if strict else set(values) - {field.name for field in dataclasses.fields(reader)}
    values = {name: value for name, value in values.items() if name not in others}
    overrides = [text for text in overrides if text.split("=")[0].split(".")[0] not in others]
    return build_config(reader, merge_overrides(values, overrides, reader))


def merge_overrides(values: dict, overrides: Sequence[str], reader: type) -> dict:
    values = copy.deepcopy(values)
    for override in overrides:
        apply_override(values, override, reader)
    return values


def apply_override(values: dict, override: str, reader: type) -> None:
    """Set one `a.b=value` in nested dicts. The value is parsed as the type of the dataclass field.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Data:
    ...     lengths: tuple[int, ...] = (128,)
    >>> values = {}
    >>> apply_override(values, "lengths=128,512", Data)
    >>> values
    {'lengths': (128, 512)}
    """
    path, equals, text = override.partition("=")
    if not equals:
        raise BertJaxError(f"--config.{path} needs a value: --config.{path}=...")
    *outer, last = path.split(".")
    value_type, where = reader, ""
    for name in outer:
        value_type = _field_type(value_type, name, where, reader, path)
        where += name + "."
        if not dataclasses.is_dataclass(value_type):
            raise BertJaxError(f"config key {where[:-1]} holds a value, not a section")
        values = values.setdefault(name, {})
        if not isinstance(values, dict):
            raise BertJaxError(f"config key {where[:-1]} is a section, not a value")
    value_type = _field_type(value_type, last, where, reader)
    if dataclasses.is_dataclass(value_type):
        raise BertJaxError(
            f"config key {where}{last} is a section; set one of its keys, --config.{where}{last}.KEY=..."
        )
    values[last] = _parse(text, value_type, where + last)


def build_config(reader: type[T], values: dict) -> T:
    """Turn nested dicts into nested frozen dataclasses. Every key must be a field, and every value of its type."""
    return _made(reader, check_values(values, reader))


def check_values(values: dict, reader: type, where: str = "", root: type | None = None) -> dict:
    """Check that all keys are fields of the nested dataclasses; return the values converted to the fields' types."""
    root, fitting = root or reader, {}
    for name, value in values.items():
        value_type = _field_type(reader, name, where, root)
        if not dataclasses.is_dataclass(value_type):
            fitting[name] = _fit(value, value_type, where + name)
        elif isinstance(value, dict):
            fitting[name] = check_values(value, value_type, f"{where}{name}.", root)
        else:
            first = dataclasses.fields(value_type)[0].name
            raise BertJaxError(
                f"config key {where}{name} is a section, not {value!r:.40}; give a dict of its keys, such as "
                f'{{"{first}": ...}}'
            )
    return fitting


def _made(reader: Any, values: dict, where: str = "") -> Any:
    hints, fields = typing.get_type_hints(reader), dict(values)
    for field in dataclasses.fields(reader):
        if dataclasses.is_dataclass(value_type := hints[field.name]) and field.init:
            fields[field.name] = _made(value_type, values.get(field.name, {}), f"{where}{field.name}.")
        elif field.name not in fields and field.default is field.default_factory is dataclasses.MISSING:
            raise BertJaxError(
                f"config key {where}{field.name} is missing; give --config.{where}{field.name}=..."
            )
    return reader(**fields)


def config_fields(reader: type, where: str = "") -> dict[str, tuple[type, dataclasses.Field]]:
    """Return {dotted key: (the dataclass, its field)} for every key, those of nested sections last."""
    hints = typing.get_type_hints(reader)
    keys: dict[str, tuple[type, dataclasses.Field]] = {}
    sections: dict[str, tuple[type, dataclasses.Field]] = {}
    for field in dataclasses.fields(reader):
        if dataclasses.is_dataclass(hints[field.name]):
            sections |= config_fields(hints[field.name], f"{where}{field.name}.")
        elif field.init:
            keys[where + field.name] = reader, field
    return keys | sections


def _field_type(reader: type, name: str, where: str, root: type, key: str = "") -> type:
    """Return the type of a field. `key` is the full key that the user wrote, for the error message."""
    names = [field.name for field in dataclasses.fields(reader) if field.init]
    if name not in names:
        key = key or f"{where}{name}"
        raise BertJaxError(f"unknown config key {key}; {hint_for(key, list(config_fields(root)), names)}")
    return typing.get_type_hints(reader)[name]


def _parse(text: str, value_type: type, where: str):
    """Parse the text of an override as `value_type`. Strings are kept as typed; a tuple needs no brackets."""
    origin, inner = typing.get_origin(value_type), typing.get_args(value_type)
    if origin is tuple:
        text = text.strip()
        if text[:1] + text[-1:] in ("()", "[]"):
            text = text[1:-1]
        parts = split_names(text) if inner[0] is str else [part.strip() for part in text.split(",")]
        return tuple(_parse(part, inner[0], where) for part in parts if part)
    if value_type is str or (origin is typing.Literal and isinstance(inner[0], str)):
        return _fit(text, value_type, where)
    if value_type is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    return _fit(parse_literal(text), value_type, where)


def split_names(text: str) -> list[str]:
    """Split a comma-separated list of strings, which may be quoted.

    >>> split_names("one, two"), split_names('"Asked (raw), in full", "Answer"'), split_names("'a','b'")
    (['one', 'two'], ['Asked (raw), in full', 'Answer'], ['a', 'b'])
    """
    quoted = parse_literal(f"[{text}]")
    if isinstance(quoted, list) and all(isinstance(name, str) for name in quoted):
        return quoted
    return [name.strip() for line in csv.reader(io.StringIO(text), skipinitialspace=True) for name in line]


def parse_literal(text: str) -> Any:
    """Evaluate the text as a Python literal; return the text itself if it is none."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return text


def _fit(value, value_type: type, where: str):
    origin, inner = typing.get_origin(value_type), typing.get_args(value_type)
    if origin is typing.Literal:
        if value in inner:
            return value
        raise BertJaxError(f"config key {where} cannot be {value!r:.80}; {suggest_name(value, inner)}")
    if origin is tuple and inner[0] is str and isinstance(value, str):
        return (value,)
    if origin is tuple and isinstance(value, (tuple, list)):
        return tuple(_fit(item, inner[0], where) for item in value)
    if (
        value_type is float
        and isinstance(value, int)
        and not isinstance(value, bool)
        and abs(value) <= MAX_FLOAT
    ):
        return float(value)
    if value_type is int and isinstance(value, float) and value.is_integer():
        return int(value)  # 1e6 steps
    if holds_surrogates(value):
        raise BertJaxError(
            f"config key {where} holds a lone surrogate, which is not a character: {value!r:.80}; remove it"
        )
    if (
        origin is None
        and isinstance(value, value_type)
        and not (value_type is int and isinstance(value, bool))
    ):
        return value
    wanted = "a list" if origin is tuple else EXPECTED_TYPE_NAMES.get(value_type, str(value_type))
    raise BertJaxError(f"config key {where} must be {wanted}, not {value!r:.80}")
