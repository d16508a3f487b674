"""Paths that a program gives as arguments."""

from os import PathLike, fsencode
from pathlib import Path
from typing import Any

from bert_jax.core.errors import BertJaxError


def require_path(value: Any, name: str) -> Path:
    """Return an argument as a path; refuse what is none.

    >>> require_path("runs", "workdir").name
    'runs'
    """
    if not isinstance(value, str | PathLike) or not str(value):
        raise BertJaxError(f"{name} must be a path, not {value!r:.60}")
    try:
        fsencode(value)
    except UnicodeEncodeError:
        raise BertJaxError(
            f"{name} cannot be {value!r:.60}, which holds a lone surrogate; name another"
        ) from None
    return Path(value)
