"""How far a cluster is, in one line: shards, rows, time left, failures."""

import shutil
import time
from collections.abc import Sequence

from bert_jax.core.progress import LogLines, format_duration
from bert_jax.core.terminal import log_file, pluralize
from bert_jax.data.shards.shard import Shard


class ClusterProgress:
    """Counts shards and their rows. `complete` shards were there before; `unit` is a plural such as "rows"."""

    def __init__(self, verb: str, unit: str, shards: Sequence[Shard], complete: int):
        self.verb, self.unit = verb, unit
        self.total, self.done, self.failed = len(shards) + complete, complete, 0
        self.bytes_left, self.bytes_done = sum(shard.size for shard in shards), 0
        self.rows, self.workers = 0, 0
        self.begun: float | None = None  # when the first worker was ready
        self.lines = LogLines()

    def start_worker(self) -> None:
        self.workers += 1
        self.begun = self.begun or time.monotonic()

    def add(self, shard: Shard, rows: int) -> None:
        self.done += 1
        self.rows += rows
        self.bytes_done += shard.size
        self.bytes_left -= shard.size

    def fail(self, shard: Shard) -> None:
        self.failed += 1
        self.bytes_left -= shard.size

    def show(self) -> None:
        """Renew the line on a terminal; elsewhere print it now and then."""
        if log_file().isatty():
            width = shutil.get_terminal_size().columns - 1
            print(
                f"\r{self.describe(time.monotonic())[:width]:<{width}}", end="", file=log_file(), flush=True
            )
        elif self.begun:
            self.lines.print_due(self.describe)

    def close(self) -> None:
        if log_file().isatty():
            print(file=log_file(), flush=True)

    def describe(self, now: float) -> str:
        """
        >>> progress = ClusterProgress("predict", "rows", [Shard(("a",), "a", 10), Shard(("b",), "b", 30)], 1)
        >>> progress.describe(0.0)
        'predict: 1 of 3 shards, no worker is ready'
        >>> progress.start_worker()
        >>> progress.begun = 100.0
        >>> progress.add(Shard(("a",), "a", 10), 1000)
        >>> progress.describe(110.0)
        'predict: 2 of 3 shards, 100 rows/s, about 3,000 rows left, 30 s left, 1 worker'
        """
        line = f"{self.verb}: {self.done} of {self.total} shards"
        if self.begun and self.bytes_done:
            rate = self.rows / max(now - self.begun, 1e-9)
            left = self.rows * self.bytes_left / self.bytes_done
            line += f", {rate:,.0f} {self.unit}/s, about {left:,.0f} {self.unit} left"
            line += f", {format_duration(left / rate)} left" if rate else ""
        if self.failed:
            line += f", {self.failed} failed"
        return line + (f", {pluralize(self.workers, 'worker')}" if self.workers else ", no worker is ready")
