"""Errors for users: one line that says what is wrong, where, and what to do."""

import difflib
import errno
import os
import re
from collections.abc import Collection, Iterable
from itertools import islice

LONGEST = 370  # characters of a message
SHOWN = 20  # names of a list
MOST_COMPARED = 1000  # names compared with a misspelt one: a table may have a million columns


class BertJaxError(Exception):
    """An error that the user can fix. The command line prints only its message, and the traceback with --debug."""

    exit_code = 1

    def __init__(self, message: object):
        super().__init__(one_line(message))


def one_line(message: object, longest: int = LONGEST) -> str:
    """Return the message as one printable line of limited length, whatever file and column names it contains.

    >>> print(one_line("no column in a\\nb; name another"))
    no column in a\\nb; name another
    >>> one_line("x" * 30 + "; do this", longest=20)
    'xxxxxxx ... do this'
    """
    text = str(message)
    # Cut the middle of a message that is too long: its start says what is wrong, and its end what to do.
    if len(text) > longest:
        text = f"{text[: longest // 2 - 3].rstrip()} ... {text[-(longest // 2 - 2) :].lstrip()}"
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= longest else one_line(text, longest)


class NonFiniteError(BertJaxError):
    """Training produced updates or metrics that are not finite; repeating the same command would not help."""

    exit_code = 3


# The exit code if another process of the run died. launch/hosts.sh reads it, and the exit code of NonFiniteError.
PEER_LOST_EXIT_CODE = 4


def suggest_name(name: object, known: Iterable[object], these: str = "known", most: int = SHOWN) -> str:
    """Return a hint for a misspelt name: the closest known name, or else a list of at most `most` known names.

    `these` introduces the list. Only the first MOST_COMPARED names are compared.

    >>> suggest_name("hiden_size", ["hidden_size", "layers"])
    'did you mean "hidden_size"?'
    >>> suggest_name("zzz", ["heads", "layers"])
    'known: heads, layers'
    """
    names = [str(k) for k in islice(known, MOST_COMPARED)]
    close = difflib.get_close_matches(str(name)[:80], names, n=1, cutoff=0.6)
    if close:
        return f'did you mean "{close[0]}"?'
    return f"{these}: " + ", ".join(names[:most]) + ", ..." * (len(names) > most)


def check_name(name: object, known: Collection[str], noun: str) -> None:
    if not isinstance(name, str) or name not in known:
        raise BertJaxError(f'no {noun} "{name!s:.60}"; {suggest_name(name, known)}')


def first_line(error: BaseException) -> str:
    """Return the first line of a library's error, for use in a message of ours.

    >>> first_line(ValueError("no such key\\nin the file")), first_line(EOFError())
    ('no such key', 'EOFError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def explain_os_error(error: OSError, path: object = None) -> BertJaxError:
    """Turn an error of the operating system into one that says what failed, where, and what to do.

    >>> explain_os_error(OSError(errno.ENOSPC, "No space left on device"), "out.jsonl")
    BertJaxError('out.jsonl: No space left on device; make room there and repeat the command')
    >>> explain_os_error(OSError(errno.EMFILE, "Too many open files"), "index")
    BertJaxError('index: Too many open files; raise the limit with `ulimit -n 4096`')
    """
    remedies = {
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG): "make room there and repeat the command",
        (errno.EISDIR, errno.ENOTDIR): "name another one",
        (errno.EACCES, errno.EPERM, errno.EROFS): "check its permissions",
        (errno.ENAMETOOLONG,): "name a shorter one",
        (errno.EMFILE, errno.ENFILE): "raise the limit with `ulimit -n 4096`",
    }
    remedy = next(
        (text for codes, text in remedies.items() if error.errno in codes), "check its name and its disk"
    )
    location = path or error.filename or "an output"
    return BertJaxError(f"{location}: {error.strerror or first_line(error)}; {remedy}")


def recover_os_error(error: Exception) -> OSError:
    """Recover the OSError from the exception of a library written in Rust, which holds only its text.

    >>> recover_os_error(Exception("I/O error: No space left on device (os error 28)"))
    OSError(28, 'No space left on device')
    """
    number = re.search(r"os error (\d+)", str(error))
    code = int(number[1]) if number else errno.EIO
    return OSError(code, os.strerror(code) if number else first_line(error))
