"""How messages spell a setting: as a flag of a command, as a config key, or as an argument of a Python call.

The spelling follows the way in which the user started the run."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from bert_jax.core.errors import BertJaxError

WRITTEN: ContextVar[Literal["flags", "config", "python"]] = ContextVar("written", default="flags")


@contextmanager
def use_config_spelling() -> Iterator[None]:
    """Within the block, printed lines and errors name config keys instead of the flags of a command."""
    token = WRITTEN.set("config")
    try:
        yield
    finally:
        WRITTEN.reset(token)


@contextmanager
def use_python_spelling() -> Iterator[None]:
    """Within the block, printed lines and errors name settings as arguments of a Python call, not as flags."""
    token = WRITTEN.set("python")
    try:
        yield
    except BertJaxError as error:
        if (in_python := spell_as_arguments(str(error))) != str(error):
            raise type(error)(in_python) from error
        raise
    finally:
        WRITTEN.reset(token)


def spell_setting(flags: str, keys: str) -> str:
    """Return `flags` if the run was started with flags of a command, else the config `keys` of the same setting."""
    return flags if WRITTEN.get() == "flags" else keys


def spell_for_caller(text: str) -> str:
    """Spell the settings in the text as arguments of a call if the run was started from Python."""
    return spell_as_arguments(text) if WRITTEN.get() == "python" else text


def spell_as_arguments(text: str) -> str:
    """
    >>> spell_as_arguments("data.train is missing; give a file, --config.data.train=train.csv")
    'data.train is missing; give a file, data={"train": "train.csv"}'
    >>> spell_as_arguments("which --config.data.columns.skip_bad=True skips")
    'which data={"columns": {"skip_bad": True}} skips'
    >>> spell_as_arguments("--quantize applies to vectors; add --model DIR, or see `info --ids`")
    'quantize applies to vectors; add model=DIR, or see `info --ids`'
    >>> spell_as_arguments("a--b.csv row 3 is empty; --skip-bad skips it")
    'a--b.csv row 3 is empty; skip_bad skips it'
    >>> spell_as_arguments("memory:texts holds no example")
    'texts holds no example'
    """
    text = re.sub(r"\bmemory:(?=\w)", "", text)  # before the names of tables that the call was given
    text = re.sub(
        r"--config\.([\w.]*\w)(?:=(\d+(?:,\d+)+|[^\s,;)]+))?", lambda match: argument(*match.groups()), text
    )
    return re.sub(r"`[^`]*`|(?<![\w/.-])--([a-z][a-z-]*)(?: ([A-Z]+\b|\d[\d.]*\b))?", spell_flag, text)


def spell_flag(match: re.Match) -> str:
    """Return a flag as the argument of the same name; leave a command in backquotes as it is."""
    name, value = match.groups()
    if name is None:
        return match[0]
    return name.replace("-", "_") + (f"={value}" if value else "")


def argument(key: str, value: str | None) -> str:
    """
    >>> argument("epochs", "3"), argument("optimizer.learning_rate", None)
    ('epochs=3', 'optimizer.learning_rate')
    """
    if value is None:
        return key
    first, *others = key.split(".")
    is_literal = re.fullmatch(r"true|false|[-+.\d]+(e[-+]?\d+)?", value, re.IGNORECASE)
    written = value.capitalize() if value.lower() in ("true", "false") else value
    written = written if is_literal else json.dumps(value)
    for name in reversed(others):
        written = f"{{{json.dumps(name)}: {written}}}"
    return f"{first}={written}"
