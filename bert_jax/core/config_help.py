"""The keys of a config with their meanings, defaults and allowed values, read from the dataclasses.

The meaning of a key is the comment after its field, or else the comment lines above it. A subclass that repeats a field
without a comment inherits the meaning.
"""

import ast
import dataclasses
import inspect
import io
import json
import textwrap
import tokenize
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from bert_jax.core.config import OneOf, Registered, config_fields


@dataclass(frozen=True)
class ConfigKey:
    name: str  # with its sections: "optimizer.learning_rate"
    default: Any
    meaning: str  # "" if the field has no comment
    allowed: str  # the allowed values, in words
    has_choices: bool  # whether `allowed` is a list of them


def list_config_keys(reader: type) -> list[ConfigKey]:
    """Return the keys of a config dataclass, nested sections included."""
    return [
        ConfigKey(
            name,
            None if field.default is dataclasses.MISSING else field.default,
            meanings(value_type).get(field.name, ""),
            *describe_allowed_values(hints_of(value_type)[field.name]),
        )
        for name, (value_type, field) in config_fields(reader).items()
    ]


def flatten_config_values(keys: list[ConfigKey], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return {key: value} for every key, from the nested dicts `given` or else the default."""
    flat: dict[str, Any] = {}

    def add(values: Mapping[str, Any], where: str) -> None:
        for name, value in values.items():
            if isinstance(value, Mapping):
                add(value, f"{where}{name}.")
            else:
                flat[where + name] = value

    add(given, "")
    return {key.name: flat.get(key.name, key.default) for key in keys}


def format_config_value(value: Any) -> str:
    """Spell a value as it is written after `--config.KEY=`. An empty string is shown as "".

    >>> format_config_value((128, 512)), format_config_value(False), format_config_value(""), format_config_value(2e-05)
    ('128,512', 'false', '""', '2e-05')
    """
    if isinstance(value, tuple | list):
        return ",".join(map(format_config_value, value)) if value else "()"
    if isinstance(value, bool) or value == "":
        return json.dumps(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def describe_allowed_values(hint: Any) -> tuple[str, bool]:
    """Describe the allowed values of a field with this type hint; return also whether they are listed.

    >>> from typing import Annotated
    >>> from bert_jax.core.config import Range
    >>> hints = (Annotated[int, Range(1)], tuple[str, ...], Literal["truncate", "windows"])
    >>> [describe_allowed_values(hint) for hint in hints]
    [('whole number, 1 or more', False), ('texts', False), ('truncate, windows', True)]
    """
    limits = getattr(hint, "__metadata__", ())
    plain = typing.get_args(hint)[0] if limits else hint
    is_list = typing.get_origin(plain) is tuple
    value_type = typing.get_args(plain)[0] if is_list else plain
    for limit in limits:
        if isinstance(limit, OneOf):
            return ", ".join(map(format_config_value, limit.choices)), True
        if isinstance(limit, Registered):
            return f"{', '.join(limit.names())}, or one of your own", True
    if typing.get_origin(value_type) is Literal:
        return ", ".join(map(format_config_value, typing.get_args(value_type))), True
    noun = {bool: "true, false", str: "text", int: "whole number", float: "number"}[
        value_type
    ] + "s" * is_list
    return ", ".join([noun, *(limit.description for limit in limits)]), False


@cache
def hints_of(value_type: type) -> dict[str, Any]:
    return typing.get_type_hints(value_type, include_extras=True)


@cache
def meanings(value_type: type) -> dict[str, str]:
    """Return the meanings of a dataclass's fields, inherited ones included; fields without a comment are left out."""
    inherited = [
        base
        for base in reversed(value_type.__mro__)
        if dataclasses.is_dataclass(base) and isinstance(base, type)
    ]
    return {name: meaning for base in inherited for name, meaning in comments_of(base).items()}


def comments_of(value_type: type) -> dict[str, str]:
    """Read the comments on a class's own fields from its source; {} if the source is not available."""
    try:
        source = textwrap.dedent(inspect.getsource(value_type))
    except (OSError, TypeError):
        return {}
    comments, alone = {}, set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            comments[line] = token.string.removeprefix("#").strip()
            if not token.line[:column].strip():
                alone.add(line)
    body = typing.cast(ast.ClassDef, ast.parse(source).body[0]).body
    meanings = {}
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            behind = [n for n in range(node.lineno, (node.end_lineno or node.lineno) + 1) if n in comments]
            first = node.lineno
            while first - 1 in alone:
                first -= 1
            lines = behind or range(first, node.lineno)
            if meaning := " ".join(comments[line] for line in lines):
                meanings[node.target.id] = meaning
    return meanings
