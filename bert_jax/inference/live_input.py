"""Read live input as lists of the items that have arrived: one line is not delayed, and many lines form a batch."""

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from queue import Queue
from threading import Thread
from typing import BinaryIO, TypeVar

T = TypeVar("T")


def open_live_input() -> BinaryIO | None:
    """Return standard input if it is live, such as a pipe or a terminal; None if it is a file.

    It is opened again, because the interpreter cannot exit while a thread waits for `sys.stdin` itself.
    """
    try:
        handle = sys.stdin.fileno()
        is_file = stat.S_ISREG(os.fstat(handle).st_mode)
    except (AttributeError, OSError, ValueError):  # closed, or without a descriptor
        return None
    return None if is_file else open(handle, "rb", closefd=False)


def group_arrivals(items: Iterable[T], most: int) -> Iterator[list[T]]:
    """Yield lists of the items that have arrived, 1 to `most` items each, while a thread waits for the next ones.

    >>> [item for items in group_arrivals("abc", most=2) for item in items]
    ['a', 'b', 'c']
    """
    queue: Queue[tuple[list[T], BaseException | None]] = Queue(most)

    def wait() -> None:
        try:
            for item in items:
                queue.put(([item], None))
            queue.put(([], StopIteration()))
        except BaseException as error:  # raised again in the caller's thread
            queue.put(([], error))

    Thread(target=wait, daemon=True).start()
    end = None
    while end is None:
        arrived, end = queue.get()
        while end is None and len(arrived) < most and not queue.empty():
            more, end = queue.get()
            arrived += more
        if arrived:
            yield arrived
    if not isinstance(end, StopIteration):
        raise end
