"""A Ray cluster of processes on this machine, and what can happen to its workers and nodes."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from bert_jax.data.shards.shard_folder import MANIFESTS
from tests.support.object_store import CREDENTIALS
from tests.support.processes import process_environment

NODES = 3
SECONDS = 60  # within which what is waited for must happen
# A node that is gone is noticed within a second.
QUICK_TO_NOTICE = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 300,
    "health_check_failure_threshold": 3,
}


class RayCluster:
    """A head and three nodes, of one core each."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 1, "include_dashboard": False, "_system_config": QUICK_TO_NOTICE}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.nodes = [self.cluster.add_node(wait=False, num_cpus=1) for _ in range(NODES)]
        self.cluster.wait_for_nodes()
        self.address = self.cluster.address

    def restore(self) -> None:
        """Add nodes for those that were removed."""
        while len(self.nodes) < NODES:
            self.nodes.append(self.cluster.add_node(num_cpus=1))

    def remove_node(self) -> None:
        self.cluster.remove_node(self.nodes.pop(), allow_graceful=False)

    def kill_worker(self) -> None:
        self.find_busy_worker().kill()

    def fill_disk(self) -> None:
        """Let a worker that is at a shard write no more to any file, as if the disk of its node were full."""
        self.find_busy_worker().rlimit(psutil.RLIMIT_FSIZE, (1, 1))

    def find_busy_worker(self) -> psutil.Process:
        """Return a worker that is at a shard, as soon as there is one."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            for process in self.worker_processes():
                with suppress(psutil.Error):  # it ends just now
                    if "ray::ShardWorker.write" in " ".join(process.cmdline()):
                        return process
            time.sleep(0.01)
        raise AssertionError("no worker is at a shard")

    def worker_processes(self) -> list[psutil.Process]:
        raylets = (node.all_processes["raylet"][0].process.pid for node in self.nodes)
        return [child for raylet in raylets for child in psutil.Process(raylet).children()]


@contextmanager
def ray_cluster() -> Iterator[RayCluster]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**process_environment(), **CREDENTIALS}.items():
            patch.setenv(name, value)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = RayCluster()
        try:
            yield cluster
        finally:
            cluster.cluster.shutdown()


def count_complete(output: Path) -> int:
    return len(list((output / MANIFESTS).rglob("*.json")))


def wait_for_shards(output: Path, count: int) -> None:
    until = time.monotonic() + SECONDS
    while count_complete(output) < count:
        assert time.monotonic() < until, f"{count_complete(output)} shards are complete, not {count}"
        time.sleep(0.01)


@contextmanager
def happening_after(output: Path, count: int, *events: Callable[[], None]) -> Iterator[None]:
    """While the block runs, let something happen once so many shards are complete, and fail if it does not."""
    errors = []

    def happen() -> None:
        try:
            wait_for_shards(output, count)
            for event in events:
                event()
        except Exception as error:  # raised below, in the thread of the test
            errors.append(error)

    thread = threading.Thread(target=happen)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if errors:
        raise errors[0]
