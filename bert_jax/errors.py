"""Errors for people: one line that says what is wrong, where, and what to do."""

import difflib
import errno
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


def of_library(error: Exception, path: object) -> BertJaxError:
    """What a library without OSErrors says of a file that it could not write.

    >>> of_library(Exception("No space left (os error 28)"), "model")
    BertJaxError('model cannot be written (No space left (os error 28)); make room there and repeat the command')
    """
    remedy = "make room there and repeat the command"
    return BertJaxError(f"{path} cannot be written ({first_line(error)}); {remedy}")
