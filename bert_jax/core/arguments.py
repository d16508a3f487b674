"""How messages spell a setting: as a flag of a command, as a config key, or as an argument of a Python call.

The spelling follows the way in which the user started the run."""

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


def spell_as_arguments(text: str) -> str:
    """Name config keys and flags without their dashes; leave commands in backquotes as they are.

    >>> spell_as_arguments("data.train is missing; give a file, --config.data.train=train.csv")
    'data.train is missing; give a file, data.train=train.csv'
    >>> spell_as_arguments("a--b.csv row 3 is empty; --skip-bad skips it; see `info --ids`")
    'a--b.csv row 3 is empty; skip_bad skips it; see `info --ids`'
    >>> spell_as_arguments("memory:texts holds no example; out of memory: 2 GB")
    'texts holds no example; out of memory: 2 GB'
    """
    text = re.sub(r"\bmemory:(?=\w)", "", text)  # before the names of tables that the call was given
    text = text.replace("--config.", "")
    return re.sub(
        r"`[^`]*`|(?<![\w/.-])--([a-z][a-z-]*)",
        lambda match: match[1].replace("-", "_") if match[1] else match[0],
        text,
    )
