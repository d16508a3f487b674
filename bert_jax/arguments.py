"""Settings as they are written where a run was begun: flags of the command, or arguments of a call from Python."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from bert_jax.errors import BertJaxError

IN_PYTHON: ContextVar[bool] = ContextVar("in_python", default=False)


@contextmanager
def called_from_python() -> Iterator[None]:
    """While open, lines that are said and errors name keys as arguments of a call, not as flags of a command."""
    token = IN_PYTHON.set(True)
    try:
        yield
    except BertJaxError as error:
        if (in_python := as_arguments(str(error))) != str(error):
            raise type(error)(in_python) from error
        raise
    finally:
        IN_PYTHON.reset(token)


def as_called(text: str) -> str:
    """The text with its settings as they are written where the run was begun."""
    return as_arguments(text) if IN_PYTHON.get() else text


def as_arguments(text: str) -> str:
    """
    >>> as_arguments("data.train is missing; give a file, --config.data.train=train.csv")
    'data.train is missing; give a file, data={"train": "train.csv"}'
    >>> as_arguments("which --skip-bad (in training --config.data.columns.skip_bad=True) skips")
    'which data={"columns": {"skip_bad": True}} skips'
    """
    text = re.sub(r"--[\w-]+ \(in training (--config[^)]*)\)", r"\1", text)
    text = re.sub(r"--\w+(?:, --\w+)*(?: or --\w+)?, in training with (?=--config)", "", text)
    text = re.sub(
        r"--config\.([\w.]*\w)(?:=(\d+(?:,\d+)+|[^\s,;)]+))?", lambda match: argument(*match.groups()), text
    )
    return text.replace("--workdir", "workdir")


def argument(key: str, value: str | None) -> str:
    """
    >>> argument("epochs", "3"), argument("optimizer.rate", None)
    ('epochs=3', 'optimizer.rate')
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
