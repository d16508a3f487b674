"""Lone surrogates, which can occur in JSON and in paths, but not in UTF-8 text."""

import re

SURROGATE = re.compile("[\ud800-\udfff]")


def replace_surrogates(text: str) -> str:
    """Replace each surrogate with U+FFFD, one for one, so offsets stay valid.

    >>> replace_surrogates("a" + chr(0xD800))
    'a\ufffd'
    """
    return text if text.isascii() else SURROGATE.sub("\ufffd", text)
