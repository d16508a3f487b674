"""Lone surrogates, which can occur in JSON, in paths and in a program's strings, but not in UTF-8 text."""

import re
from collections.abc import Mapping

SURROGATE = re.compile("[\ud800-\udfff]")


def holds_surrogates(value: object) -> bool:
    """Whether a string, or a string in lists and dicts, holds a lone surrogate.

    >>> holds_surrogates([{"text": "a"}]), holds_surrogates([{"text": "a" + chr(0xD800)}])
    (False, True)
    """
    if isinstance(value, str):
        return not value.isascii() and SURROGATE.search(value) is not None
    if isinstance(value, Mapping):
        return any(holds_surrogates(key) or holds_surrogates(part) for key, part in value.items())
    return isinstance(value, list | tuple) and any(map(holds_surrogates, value))


def replace_surrogates(text: str) -> str:
    """Replace each surrogate with U+FFFD, one for one, so offsets stay valid.

    >>> replace_surrogates("a" + chr(0xD800))
    'a\ufffd'
    """
    return text if text.isascii() else SURROGATE.sub("\ufffd", text)
