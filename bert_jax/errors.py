"""Errors for people: one line that says what is wrong, where, and what to do."""

import difflib
from collections.abc import Iterable


class BertJaxError(Exception):
    """Something a person can put right. The command line prints its message alone; a traceback needs --debug."""


def nearest(name: object, known: Iterable[object]) -> str:
    """A hint for a misspelt name.

    >>> nearest("hiden_size", ["hidden_size", "layers"])
    'did you mean "hidden_size"?'
    >>> nearest("zzz", ["heads", "layers"])
    'known: heads, layers'
    """
    names = [str(k) for k in known]
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
    return f'did you mean "{close[0]}"?' if close else "known: " + ", ".join(names)
