"""Lone surrogates, which JSON and paths can hold, and no text in UTF-8."""

import re

SURROGATE = re.compile("[\ud800-\udfff]")


def without_surrogates(text: str) -> str:
    """Each becomes U+FFFD, one for one, so offsets still hold.

    >>> without_surrogates("a" + chr(0xD800))
    'a\ufffd'
    """
    return text if text.isascii() else SURROGATE.sub("\ufffd", text)
