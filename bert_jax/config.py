"""Configs: a Python file of ml_collections at the edge, frozen dataclasses inside.

A config file defines `get_config(name)` and returns a `ConfigDict`; what it leaves out has the default of the
dataclass that reads it. A key that no dataclass reads is an error that names the nearest one that is read:

    config = load("configs/pretrain.py:base", ["data.rate=0.2"], Pretraining)
    config.data.rate  # 0.2
"""

import ast
import copy
import csv
import dataclasses
import math
import typing
from collections.abc import Callable, Collection, Sequence
from functools import cache
from numbers import Integral, Real
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from bert_jax.config_files import read_file
from bert_jax.errors import BertJaxError, nearest
from bert_jax.synonyms import meant
from bert_jax.typed import WANTED

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
MOST = 2**31 - 1  # of any whole number: steps are counted in 32 bits
LARGEST = 3.4e38  # of any other, for arrays are of float32


@dataclasses.dataclass(frozen=True)
class Range:
    """What a number may be, from `least` to `most`, or without one of them; `beside` stands for something else.

    >>> Range(0, 1, below=True).wanted
    '0 or more and less than 1'
    """

    least: float
    most: float = math.inf
    above: bool = False  # more than `least`
    below: bool = False  # less than `most`
    beside: float | None = None

    def __contains__(self, value: float) -> bool:
        over = value > self.least if self.above else value >= self.least
        under = value < self.most if self.below else value <= self.most
        return (over and under) or value == self.beside

    @property
    def wanted(self) -> str:
        least, most = f"{self.least:,.10g}", f"{self.most:,.10g}"
        wanted = f"more than {least}" if self.above else f"{least} or more"
        if not (self.above or self.below or self.most == math.inf):
            wanted = f"between {least} and {most}"
        elif self.most < math.inf:
            wanted += f" and {'less than' if self.below else 'at most'} {most}"
        return wanted if self.beside is None else f"{wanted}, or {self.beside:g}"


@dataclasses.dataclass(frozen=True)
class OneOf:
    """What a text may be."""

    choices: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Registered:
    """A text is one of these names, which others may add to; who looks it up checks it."""

    names: Callable[[], Collection[str]]


SEEDS = Range(1 - 2**63, 2**63 - 1)
Positive = Annotated[int, Range(1)]
NotNegative = Annotated[int, Range(0)]
Share = Annotated[float, Range(0, 1)]


def check_ranges(config: "DataclassInstance", where: str = "") -> None:
    """Refuse numbers that are not finite, too large for any use, or outside of the range that their field names.

    `where` stands before the names of the fields; it ends in a dot.
    """
    for name, (is_whole, allowed) in ranges_of(type(config)).items():
        value = getattr(config, name)
        for number in value if isinstance(value, tuple) else (value,):
            check_number(number, where + name, is_whole, allowed)


def check_number(value, name: str, is_whole: bool = False, allowed: Range | None = None) -> None:
    kind, numbers = ("whole number", Integral) if is_whole else ("number", Real)
    # Apart, for a type checker knows of these two neither order nor size.
    is_number = isinstance(value, numbers) and not isinstance(value, bool)
    if not is_number:
        raise BertJaxError(f"{name} must be a {kind}, not {value!r:.40}")
    unlimited = allowed is None or allowed.most == math.inf
    if unlimited and not abs(value) <= (MOST if is_whole else LARGEST):
        raise BertJaxError(f"{name} must be a finite {kind} of 32 bits, not {value!r:.40}")
    if allowed and value not in allowed:
        raise BertJaxError(f"{name} must be {allowed.wanted}, not {value!r:.40}")


def check_choices(config: "DataclassInstance", where: str) -> None:
    """Refuse texts that are none of the choices that their field names."""
    for name, hint in typing.get_type_hints(type(config), include_extras=True).items():
        for limit in getattr(hint, "__metadata__", ()):
            if isinstance(limit, OneOf):
                value = getattr(config, name)
                if not isinstance(value, str) or value not in limit.choices:
                    hint = nearest(value, filter(None, limit.choices))
                    raise BertJaxError(f'{where}{name} has no "{value!s:.60}"; {hint}')


@cache
def ranges_of(kind: type) -> dict[str, tuple[bool, Range | None]]:
    """Of each field that holds numbers or a tuple of them: whether they are whole, and their range."""
    ranges = {}
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        allowed = next((x for x in getattr(hint, "__metadata__", ()) if isinstance(x, Range)), None)
        plain = hint.__origin__ if typing.get_origin(hint) is Annotated else hint
        number = typing.get_args(plain)[0] if typing.get_origin(plain) is tuple else plain
        if number in (int, float):
            ranges[field.name] = number is int, allowed
    return ranges


def load(spec: str, overrides: Sequence[str], reader: type[T], *, whole: bool = True) -> T:
    """The config in `FILE` or `FILE:NAME`, with `a.b=value` overrides, as the frozen dataclass `reader`.

    With `whole=False` the sections of the file that `reader` has no field for are left to others.
    """
    return read(read_file(spec), overrides, reader, whole=whole)


def read(values: dict, overrides: Sequence[str], reader: type[T], *, whole: bool = True) -> T:
    """Likewise, of the values in a config file, which stay as they are."""
    others = set() if whole else set(values) - {field.name for field in dataclasses.fields(reader)}
    values = {name: value for name, value in values.items() if name not in others}
    overrides = [text for text in overrides if text.split("=")[0].split(".")[0] not in others]
    return build(reader, merged(values, overrides, reader))


def merged(values: dict, overrides: Sequence[str], reader: type) -> dict:
    values = copy.deepcopy(values)
    for override in overrides:
        apply_override(values, override, reader)
    return values


def apply_override(values: dict, override: str, reader: type) -> None:
    """Sets one `a.b=value` in nested dicts, its text read as the type of the dataclass field it names.

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
    kind, where = reader, ""
    for name in outer:
        kind = _field_type(kind, name, where, reader, path)
        where += name + "."
        if not dataclasses.is_dataclass(kind):
            raise BertJaxError(f"config key {where[:-1]} holds a value, not a section")
        values = values.setdefault(name, {})
        if not isinstance(values, dict):
            raise BertJaxError(f"config key {where[:-1]} is a section, not a value")
    kind = _field_type(kind, last, where, reader)
    if dataclasses.is_dataclass(kind):
        raise BertJaxError(
            f"config key {where}{last} is a section; set one of its keys, --config.{where}{last}.KEY=..."
        )
    values[last] = _parse(text, kind, where + last)


def build(reader: type[T], values: dict) -> T:
    """Nested dicts as nested frozen dataclasses; every key must be a field and of its type."""
    return _made(reader, checked(values, reader))


def checked(values: dict, reader: type, where: str = "", root: type | None = None) -> dict:
    """Nested dicts whose keys are fields of nested dataclasses, and whose values are of their types."""
    root, fitting = root or reader, {}
    for name, value in values.items():
        kind = _field_type(reader, name, where, root)
        if not dataclasses.is_dataclass(kind):
            fitting[name] = _fit(value, kind, where + name)
        elif isinstance(value, dict):
            fitting[name] = checked(value, kind, f"{where}{name}.", root)
        else:
            raise BertJaxError(f"config key {where}{name} is a section, not a value")
    return fitting


def _made(reader: Any, values: dict, where: str = "") -> Any:
    hints, fields = typing.get_type_hints(reader), dict(values)
    for field in dataclasses.fields(reader):
        if dataclasses.is_dataclass(kind := hints[field.name]) and field.init:
            fields[field.name] = _made(kind, values.get(field.name, {}), f"{where}{field.name}.")
        elif field.name not in fields and field.default is field.default_factory is dataclasses.MISSING:
            raise BertJaxError(
                f"config key {where}{field.name} is missing; give --config.{where}{field.name}=..."
            )
    return reader(**fields)


def kinds_of(reader: type, where: str = "") -> dict[str, tuple[type, dataclasses.Field]]:
    """Every key by its dotted name, those of sections last: the class and the field that it is in."""
    hints = typing.get_type_hints(reader)
    keys: dict[str, tuple[type, dataclasses.Field]] = {}
    sections: dict[str, tuple[type, dataclasses.Field]] = {}
    for field in dataclasses.fields(reader):
        if dataclasses.is_dataclass(hints[field.name]):
            sections |= kinds_of(hints[field.name], f"{where}{field.name}.")
        elif field.init:
            keys[where + field.name] = reader, field
    return keys | sections


def _field_type(reader: type, name: str, where: str, root: type, key: str = "") -> type:
    """`key`: with what was written behind the name."""
    names = [field.name for field in dataclasses.fields(reader) if field.init]
    if name not in names:
        key = key or f"{where}{name}"
        raise BertJaxError(f"nothing reads config key {key}; {meant(key, list(kinds_of(root)), names)}")
    return typing.get_type_hints(reader)[name]


def _parse(text: str, kind: type, where: str):
    """The text of an override as `kind`: plain strings stay as typed, tuples may leave their brackets out."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        text = text.strip()
        if text[:1] + text[-1:] in ("()", "[]"):
            text = text[1:-1]
        parts = names_in(text) if inner[0] is str else [part.strip() for part in text.split(",")]
        return tuple(_parse(part, inner[0], where) for part in parts if part)
    if kind is str or (origin is typing.Literal and isinstance(inner[0], str)):
        return _fit(text, kind, where)
    if kind is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    return _fit(literal(text), kind, where)


def names_in(text: str) -> list[str]:
    """Texts between commas, some of them perhaps in quotes.

    >>> names_in("one, two"), names_in('"Asked (raw), in full", "Answer"'), names_in("'a','b'")
    (['one', 'two'], ['Asked (raw), in full', 'Answer'], ['a', 'b'])
    """
    quoted = literal(f"[{text}]")
    if isinstance(quoted, list) and all(isinstance(name, str) for name in quoted):
        return quoted
    return [name.strip() for line in csv.reader([text], skipinitialspace=True) for name in line]


def literal(text: str) -> Any:
    """The Python value that a text spells, or else the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return text


def _fit(value, kind: type, where: str):
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        if value in inner:
            return value
        raise BertJaxError(f"config key {where} cannot be {value!r:.80}; {nearest(value, inner)}")
    if origin is tuple and inner[0] is str and isinstance(value, str):
        return (value,)
    if origin is tuple and isinstance(value, (tuple, list)):
        return tuple(_fit(item, inner[0], where) for item in value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST:
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)  # 1e6 steps
    if origin is None and isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    wanted = "a list" if origin is tuple else WANTED.get(kind, str(kind))
    raise BertJaxError(f"config key {where} must be {wanted}, not {value!r:.80}")
