"""Give each shard to a worker that is free, until all are done. A worker that dies costs only the shard that it had."""

import time
from collections import Counter, deque
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

from bert_jax.cluster.cluster_progress import ClusterProgress
from bert_jax.cluster.shard_work import ShardWork
from bert_jax.cluster.versions import list_versions
from bert_jax.cluster.worker import Refusal, ShardResult
from bert_jax.cluster.workers import WorkerPlan
from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import print_line
from bert_jax.data.shards.shard import Shard

MAX_DEATHS = 3  # of workers with the same shard
OPEN_SECONDS = (
    120.0  # within which a worker that died is ready again; Ray also fails calls of one that it restarts
)
WAIT_SECONDS = 1.0
SHOWN_WARNINGS = 5

Actor = Any  # a handle of Ray, whose methods are made at run time


class Failure(NamedTuple):
    shard: Shard
    message: str


class PendingCall(NamedTuple):
    actor: Actor
    shard: Shard | None  # None: it opens the work
    since: float  # when the worker was started


class Dispatcher:
    def __init__(self, ray: ModuleType, work: ShardWork, shards: Sequence[Shard], progress: ClusterProgress):
        self.ray, self.work, self.progress = ray, work, progress
        # The largest first, so that all workers end at about the same time.
        self.queue = deque(sorted(shards, key=lambda shard: -shard.size))
        self.pending: dict[Any, PendingCall] = {}
        self.idle: list[Actor] = []
        self.deaths: Counter[str] = Counter()
        self.results: list[ShardResult] = []
        self.failures: list[Failure] = []
        self.printed_kinds: set[str] = set()  # the warnings that were printed, without their numbers

    def run(self, plan: WorkerPlan) -> None:
        try:
            for actor in plan.start(self.ray):
                self.open(actor)
            # Without a call that is pending, every worker has a full disk.
            while self.pending and (self.queue or any(call.shard for call in self.pending.values())):
                calls, _ = self.ray.wait(list(self.pending), timeout=WAIT_SECONDS)
                for call in calls:
                    self.handle_answer(call)
                self.assign()
                self.progress.show()
        finally:
            self.progress.close()

    def open(self, actor: Actor, since: float | None = None) -> None:
        call = actor.open.options(max_task_retries=MAX_DEATHS).remote(self.work, list_versions())
        self.pending[call] = PendingCall(actor, None, since or time.monotonic())

    def assign(self) -> None:
        while self.queue and self.idle:
            actor, shard = self.idle.pop(), self.queue.popleft()
            self.pending[actor.write.remote(shard)] = PendingCall(actor, shard, time.monotonic())

    def handle_answer(self, call: Any) -> None:
        """Take the answer of a worker."""
        actor, shard, since = self.pending.pop(call)
        try:
            answer = self.ray.get(call)
        except self.ray.exceptions.RayActorError as error:
            self.handle_death(actor, shard, since, error)
            return
        if shard is None:
            if isinstance(answer, Refusal):
                raise BertJaxError(answer.message)
            self.progress.start_worker()
        elif isinstance(answer, Refusal):
            self.fail(shard, answer.message)
            if answer.disk_is_full:  # the worker gets no other shard
                self.progress.workers -= 1
                return
        else:
            self.progress.add(shard, answer.rows)
            self.results.append(answer)
            self.print_warnings(shard, answer.warnings)
        self.idle.append(actor)

    def handle_death(self, actor: Actor, shard: Shard | None, since: float, error: Any) -> None:
        """Put the shard of a worker that died back, and open the work again in the one that Ray starts for it."""
        if error.actor_init_failed:
            reason = str(error).strip().splitlines()[-1]
            raise BertJaxError(f"a worker cannot start ({reason:.200}); install bert-jax on every machine")
        if shard is None and time.monotonic() - since < OPEN_SECONDS:
            self.open(actor, since)
            return
        if shard is None:
            raise BertJaxError(
                f"workers died while they opened {self.work.required_path}, likely out of memory; take fewer --workers"
            )
        self.progress.workers -= 1
        self.deaths[shard.name] += 1
        if self.deaths[shard.name] < MAX_DEATHS:
            self.queue.appendleft(shard)
        else:
            self.fail(
                shard,
                f"{shard.display_name}: {MAX_DEATHS} workers died of it, likely out of memory; take fewer --workers",
            )
        self.open(actor)

    def fail(self, shard: Shard, message: str) -> None:
        self.progress.fail(shard)
        self.failures.append(Failure(shard, message))
        print_line(message)

    def print_warnings(self, shard: Shard, messages: Sequence[str]) -> None:
        """Print the first warnings of each kind: those of other shards may differ in their numbers alone."""
        for message in messages:
            kind = "".join(
                character for character in message if not character.isdigit() and character not in ",."
            )
            if kind not in self.printed_kinds and len(self.printed_kinds) < SHOWN_WARNINGS:
                print_line(f"{shard.display_name}: {message}")
            self.printed_kinds.add(kind)
