"""Errors for people: one line that says what is wrong, where, and what to do."""

import difflib
import errno
import os
import re
from collections.abc import Collection, Iterable
from itertools import islice

LONGEST = 370  # characters of a message
SHOWN = 20  # names of a list
MOST_COMPARED = 1000  # names, for a table may have a million columns


class BertJaxError(Exception):
    """Something a person can put right. The command line prints its message alone; a traceback needs --debug."""

    exit_code = 1

    def __init__(self, message: object):
        super().__init__(one_line(message))


def one_line(message: object, longest: int = LONGEST) -> str:
    """The message in one line that a terminal shows as it is, whatever names of files and columns stand in it.

    >>> print(one_line("no column in a\\nb; name another"))
    no column in a\\nb; name another
    >>> one_line("x" * 30 + "; do this", longest=20)
    'xxxxxxx ... do this'
    """
    text = str(message)
    # Of a message that is too long the start says what is wrong, and the end what to do.
    if len(text) > longest:
        text = f"{text[: longest // 2 - 3].rstrip()} ... {text[-(longest // 2 - 2) :].lstrip()}"
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= longest else one_line(text, longest)


class NotFinite(BertJaxError):
    """Training came to updates or measures that are not finite; to start the same command again would not help."""

    exit_code = 3


LOST_ANOTHER = 4  # exit code of a process that lost another of its run; launch/hosts.sh reads both codes


def nearest(name: object, known: Iterable[object], these: str = "known", most: int = SHOWN) -> str:
    """A hint for a misspelt name, which is looked for among the first of very many; `these` is what they are called,
    of whom so many are listed.

    >>> nearest("hiden_size", ["hidden_size", "layers"])
    'did you mean "hidden_size"?'
    >>> nearest("zzz", ["heads", "layers"])
    'known: heads, layers'
    """
    names = [str(k) for k in islice(known, MOST_COMPARED)]
    close = difflib.get_close_matches(str(name)[:80], names, n=1, cutoff=0.6)
    if close:
        return f'did you mean "{close[0]}"?'
    return f"{these}: " + ", ".join(names[:most]) + ", ..." * (len(names) > most)


def check_name(name: object, known: Collection[str], noun: str) -> None:
    """Refuse what is none of the known names."""
    if not isinstance(name, str) or name not in known:
        raise BertJaxError(f'no {noun} "{name!s:.60}"; {nearest(name, known)}')


def first_line(error: BaseException) -> str:
    """The first line of a library's error, for use in a message of ours.

    >>> first_line(ValueError("no such key\\nin the file")), first_line(EOFError())
    ('no such key', 'EOFError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def of_system(error: OSError, path: object = None) -> BertJaxError:
    """What the system refused, where, and what to do.

    >>> of_system(OSError(errno.ENOSPC, "No space left on device"), "out.jsonl")
    BertJaxError('out.jsonl: No space left on device; make room there and repeat the command')
    """
    remedies = {
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG): "make room there and repeat the command",
        (errno.EISDIR, errno.ENOTDIR): "name another one",
        (errno.EACCES, errno.EPERM, errno.EROFS): "check its permissions",
        (errno.ENAMETOOLONG,): "name a shorter one",
    }
    remedy = next(
        (text for codes, text in remedies.items() if error.errno in codes), "check its name and its disk"
    )
    place = path or error.filename or "an output"
    return BertJaxError(f"{place}: {error.strerror or first_line(error)}; {remedy}")


def of_rust(error: Exception) -> OSError:
    """The error of the system that a library in Rust reports in its own way.

    >>> of_rust(Exception("I/O error: No space left on device (os error 28)"))
    OSError(28, 'No space left on device')
    """
    number = re.search(r"os error (\d+)", str(error))
    code = int(number[1]) if number else errno.EIO
    return OSError(code, os.strerror(code) if number else first_line(error))
