"""Errors for people: one line that says what is wrong, where, and what to do."""

import difflib
from collections.abc import Iterable


class BertJaxError(Exception):
    """Something a person can put right. The command line prints its message alone; a traceback needs --debug."""

    exit_code = 1


class NotFinite(BertJaxError):
    """Training came to updates or measures that are not finite; to start the same command again would not help."""

    exit_code = 3


LOST_ANOTHER = 4  # exit code of a process that lost another of its run; launch/hosts.sh reads both codes


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


def first_line(error: BaseException) -> str:
    """The first line of a library's error, for use in a message of ours.

    >>> first_line(ValueError("no such key\\nin the file")), first_line(EOFError())
    ('no such key', 'EOFError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
