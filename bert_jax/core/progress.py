"""How far long work is: a bar on a terminal, and a line now and then in a log. Short work shows nothing."""

import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

from bert_jax.core.terminal import IS_SILENT, RUN_PREFIX, is_notebook, print_line

BAR_AFTER = 2.0  # seconds until a bar shows
LINE_AFTER = 5.0  # seconds until the first line
LONGEST_GAP = 600.0  # seconds between two lines; the gaps grow up to this
Item = TypeVar("Item")


class LogLines:
    """Lines of a log, which grow rarer."""

    def __init__(self):
        self.begun = time.monotonic()
        self.due = self.begun + LINE_AFTER

    def print_due(self, describe: Callable[[float], str]) -> float | None:
        """Print what is described if a line is due; return the time then."""
        if (now := time.monotonic()) < self.due:
            return None
        with suppress(OSError):  # whoever reads the lines may go away; the work goes on
            print_line(describe(now))
        self.due = now + min(max(LINE_AFTER, (now - self.begun) / 2), LONGEST_GAP)
        return now


class Progress:
    """Counts what is done of some work, in `unit`s, a plural such as "texts". `total` is None if it is unknown, and
    `work` names the work if the unit does not say enough. `shown` is whether there is a bar wherever the output goes;
    None leaves the choice to the output."""

    def __init__(self, unit: str, total: float | None = None, work: str = "", shown: bool | None = None):
        self.unit, self.total, self.work, self.done = unit, total, work, 0.0
        hidden = IS_SILENT.get() or shown is False
        self.bar = None
        if not hidden and (shown or is_notebook() or sys.stderr.isatty()):
            from tqdm import tqdm

            name = (RUN_PREFIX.get() + work).removesuffix(": ") or None
            rounded = None if total is None else round(total)
            after = 0 if shown else BAR_AFTER
            # leave=None: a bar below another one goes away at its end.
            self.bar = tqdm(desc=name, total=rounded, unit=f" {unit}", delay=after, leave=None)
        self.prints = not hidden and self.bar is None
        self.lines = LogLines()
        self.line_time, self.line_done = self.lines.begun, 0.0

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def advance(self, count: float = 1) -> None:
        self.reach(self.done + count)

    def reach(self, done: float) -> None:
        """Set what is done in all."""
        self.done = done
        if self.bar is not None:
            self.bar.update(round(done) - self.bar.n)
        elif self.prints and done != self.total and (now := self.lines.print_due(self.describe)):
            self.line_time, self.line_done = now, done

    def describe(self, now: float) -> str:
        """Describe what is done, at the speed since the last line: the first texts may have been compiled for, or have
        been done by an earlier command."""
        named = f"{self.work}: " if self.work else ""
        rate = (self.done - self.line_done) / max(now - self.line_time, 1e-9)
        if not self.total:
            speed = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
            return f"{named}{self.done:,.0f} {self.unit}, {speed} {self.unit}/s"
        left = max(self.total - self.done, 0) / rate if rate else 0
        time_left = f", {format_duration(left)} left" if left else ""
        return f"{named}{self.done:,.0f} of {self.total:,.0f} {self.unit}{time_left}"


def track(items: Iterable[Item], unit: str, work: str = "", total: int | None = None) -> Iterator[Item]:
    """Yield the items, and show how many of them are done."""
    if total is None and isinstance(items, Collection):
        total = len(items)
    with Progress(unit, total, work) as progress:
        for item in items:
            yield item
            progress.advance()


def format_duration(seconds: float) -> str:
    """Format a duration.

    >>> [format_duration(seconds) for seconds in (7, 119, 121, 7199, 7201, 200_000)]
    ['7 s', '119 s', '2 min', '120 min', '2.0 h', '2.3 days']
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
