"""The workers of a cluster: how many, and what each of them gets of a machine. Ray chooses the machines."""

from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from bert_jax.cluster.worker import Worker
from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import pluralize, print_line

Accelerator = Literal["gpu", "tpu"]


@dataclass(frozen=True)
class ClusterOptions:
    address: str
    workers: int | None = None  # None: one for each core, or for each accelerator
    accelerator: Accelerator | None = None


@dataclass(frozen=True)
class WorkerPlan:
    count: int
    cores: int  # of each
    accelerator: Accelerator | None

    def start(self, ray: ModuleType) -> list[Any]:
        """Return the handles of the workers. Ray starts them where there is room, and again when they die."""
        options: dict[str, Any] = {"num_cpus": self.cores, "max_restarts": -1, **RESOURCES[self.accelerator]}
        # glibc would keep what the threads of each shard have freed, in one arena after another.
        options["runtime_env"] = {"env_vars": {"MALLOC_ARENA_MAX": str(self.cores)}}
        actor = ray.remote(Worker).options(**options)
        return [actor.remote(self.cores, self.accelerator is not None) for _ in range(self.count)]


RESOURCES: dict[Accelerator | None, dict[str, Any]] = {
    None: {},
    "gpu": {"num_gpus": 1},
    "tpu": {"resources": {"TPU": 1}},
}


def plan_workers(ray: ModuleType, options: ClusterOptions, shards: int) -> WorkerPlan:
    """Return what workers there will be, at most as many as there are shards."""
    resource = (options.accelerator or "cpu").upper()
    available = int(ray.cluster_resources().get(resource, 0))
    if not available and options.workers is None:
        raise BertJaxError(
            f"the cluster has no {resource}; leave --accelerator out, or give --workers N to wait until it has"
        )
    count = min(options.workers or available, shards)
    cores = 1 if options.accelerator else cores_per_worker(ray, count)
    if count * (1 if options.accelerator else cores) > available:
        print_line(
            f"the cluster has {available} {resource} for {pluralize(count, 'worker')}; the others start when it grows"
        )
    return WorkerPlan(count, cores, options.accelerator)


def cores_per_worker(ray: ModuleType, workers: int) -> int:
    """Share the cores of the cluster among the workers; no worker gets more than the smallest machine has."""
    cores = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    cores = [count for count in cores if count]
    return max(1, min(sum(cores) // workers, *cores)) if cores else 1
