"""Give each shard to a worker that is free, until all are done. A worker that dies costs only the shard that it had."""

import re
import shutil
import time
from collections import Counter, deque
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

from bert_jax.cluster.worker import ShardRefusal, ShardResult, ShardWork, WorkerPlan, list_versions
from bert_jax.core.errors import BertJaxError
from bert_jax.core.progress import LogLines, format_duration
from bert_jax.core.terminal import log_file, pluralize, print_line
from bert_jax.data.shards.shard import Shard

MAX_DEATHS = 3  # of workers with the same shard
POLL_SECONDS = 1.0
# Without any worker that is ready: until it is told, and until the command ends. Machines of a cloud take minutes.
NOTICE_SECONDS, MAX_WAIT_SECONDS = 60.0, 900.0
SHOWN_WARNINGS = 5
MIN_DONE = 0.05  # of all bytes, before the time that is left is told

Actor = Any  # a handle of Ray, whose methods are made at run time


class PendingCall(NamedTuple):
    actor: Actor
    shard: Shard | None  # None: it opens the work


class Dispatcher:
    """`complete` shards were there before."""

    def __init__(
        self, ray: ModuleType, work: ShardWork, shards: Sequence[Shard], verb: str, complete: int = 0
    ):
        self.ray, self.work, self.verb, self.complete = ray, work, verb, complete
        self.lines = LogLines()
        self.begun: float | None = None  # when the first worker was ready
        # The largest first, so that all workers end at about the same time.
        self.queue = deque(sorted(shards, key=lambda shard: -shard.size))
        self.pending: dict[Any, PendingCall] = {}
        self.idle: list[Actor] = []
        self.deaths: Counter[str] = Counter()
        self.results: list[ShardResult] = []
        self.bytes_done, self.bytes_left = 0, sum(shard.size for shard in shards)
        self.failures: list[str] = []  # a message for each shard that failed
        self.printed_warnings: set[str] = set()  # the warnings that were printed, without their numbers
        self.waiting_since = time.monotonic()
        self.last_death = ""  # why a worker that opened the work died
        self.is_wait_told = False

    def run(self, plan: WorkerPlan) -> None:
        try:
            for actor in plan.start(self.ray):
                self.open(actor)
            # Without a call that is pending, every worker has a full disk.
            while self.pending and (self.queue or self.count_busy()):
                calls, _ = self.ray.wait(list(self.pending), timeout=POLL_SECONDS)
                for call in calls:
                    self.handle_answer(call)
                self.assign()
                self.check_wait(plan)
                self.show_progress()
        finally:
            if log_file().isatty():
                print(file=log_file(), flush=True)

    def count_busy(self) -> int:
        return sum(call.shard is not None for call in self.pending.values())

    def open(self, actor: Actor) -> None:
        call = actor.open.options(max_task_retries=MAX_DEATHS).remote(self.work, list_versions())
        self.pending[call] = PendingCall(actor, None)

    def assign(self) -> None:
        while self.queue and self.idle:
            actor, shard = self.idle.pop(), self.queue.popleft()
            self.pending[actor.write.remote(shard)] = PendingCall(actor, shard)

    def check_wait(self, plan: WorkerPlan) -> None:
        """Say for what the command waits if no worker is ready, and end it if none comes."""
        waited = time.monotonic() - self.waiting_since
        if self.count_busy():
            self.waiting_since, self.is_wait_told = time.monotonic(), False
        elif self.pending and waited > MAX_WAIT_SECONDS:
            raise BertJaxError(
                f"no worker was ready within {format_duration(MAX_WAIT_SECONDS)}: {plan.describe_lack(self.ray)}"
                f"{self.last_death}; start machines, or take fewer --workers, and repeat the command, which goes on"
            )
        elif self.pending and waited > NOTICE_SECONDS and not self.is_wait_told:
            self.is_wait_told = True
            print_line(
                f"no worker is ready after {format_duration(waited)}: {plan.describe_lack(self.ray)}"
                f"{self.last_death}; the command ends if none is within {format_duration(MAX_WAIT_SECONDS)}"
            )

    def handle_answer(self, call: Any) -> None:
        """Take the answer of a worker."""
        actor, shard = self.pending.pop(call)
        try:
            answer = self.ray.get(call)
        except (self.ray.exceptions.RayActorError, self.ray.exceptions.OutOfMemoryError) as error:
            self.handle_death(actor, shard, error)
            return
        if shard is None:
            if isinstance(answer, ShardRefusal):
                raise BertJaxError(answer.message)
            self.begun = self.begun or time.monotonic()
        elif isinstance(answer, ShardRefusal):
            self.fail(shard, answer.message)
            if answer.disk_is_full:  # the worker gets no other shard
                return
        else:
            self.results.append(answer)
            self.bytes_done += shard.size
            self.bytes_left -= shard.size
            self.print_warnings(shard, answer.warnings)
        self.idle.append(actor)

    def handle_death(self, actor: Actor, shard: Shard | None, error: Any) -> None:
        """Put the shard of a worker that died back, and open the work again in the one that Ray starts for it."""
        if getattr(error, "actor_init_failed", False):
            reason = str(error).strip().splitlines()[-1]
            raise BertJaxError(f"a worker cannot start ({reason:.200}); install bert-jax on every machine")
        reason = describe_death(error)
        if shard is None:
            # Ray also fails calls of a worker that it starts again: how long is bounded by `check_wait`.
            self.last_death = f"; one died while it opened {self.work.required_path}, {reason}"
            time.sleep(POLL_SECONDS)
        else:
            self.deaths[shard.name] += 1
            if self.deaths[shard.name] < MAX_DEATHS:
                self.queue.appendleft(shard)
            else:
                self.fail(
                    shard,
                    f"{shard.display_name}: {MAX_DEATHS} workers died while they had it, the last {reason}; if memory "
                    "is short, take fewer --workers",
                )
        self.open(actor)

    def fail(self, shard: Shard, message: str) -> None:
        self.bytes_left -= shard.size
        self.failures.append(message)
        print_line(message)

    def print_warnings(self, shard: Shard, messages: Sequence[str]) -> None:
        """Print the first warnings of each kind: those of other shards may differ in their numbers alone."""
        for message in messages:
            without_numbers = re.sub(r"[\d,.]", "", message)
            if without_numbers not in self.printed_warnings and len(self.printed_warnings) < SHOWN_WARNINGS:
                print_line(f"{shard.display_name}: {message}")
            self.printed_warnings.add(without_numbers)

    def show_progress(self) -> None:
        """Renew the line on a terminal; elsewhere print it now and then."""
        if log_file().isatty():
            width = shutil.get_terminal_size().columns - 1
            line = self.describe_progress(time.monotonic())[:width]
            print(f"\r{line:<{width}}", end="", file=log_file(), flush=True)
        elif self.begun:
            self.lines.print_due(self.describe_progress)

    def describe_progress(self, now: float) -> str:
        done, rows = len(self.results), sum(result.rows for result in self.results)
        total = self.complete + done + len(self.failures) + len(self.queue) + self.count_busy()
        line = f"{self.verb}: {self.complete + done} of {total} shards"
        if self.begun and self.bytes_done:
            seconds = max(now - self.begun, 1e-9)
            line += f", {rows / seconds:,.0f} {self.work.unit}/s"
            if self.bytes_done >= MIN_DONE * (self.bytes_done + self.bytes_left):
                line += f", {format_duration(seconds * self.bytes_left / self.bytes_done)} left"
        if self.failures:
            line += f", {len(self.failures)} failed"
        workers = len(self.idle) + self.count_busy()
        return f"{line}, {pluralize(workers, 'worker') if workers else 'no worker is ready'}"


def describe_death(error: Exception) -> str:
    """
    >>> describe_death(Exception("The actor died because its node has died. Node Id: 9"))
    'because its node has died'
    >>> describe_death(Exception("RPC error"))
    'for a reason that Ray does not know'
    """
    text = " ".join(str(error).split())
    if "low on memory" in text:
        return "because the machine ran low on memory"
    known = re.search(r"because its [\w ]+", text)
    return known[0] if known else "for a reason that Ray does not know"
