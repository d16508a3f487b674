"""What a cluster does with each shard: the same functions that a command on one machine calls for a whole input. A
worker is an actor of Ray that opens what is needed once, and then does shard after shard.

What a user can correct is its answer, so that the other shards go on; any other error ends the command.
"""

import errno
import os
import platform
import socket
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal, Self

from bert_jax import __version__
from bert_jax.core.errors import BertJaxError, explain_os_error
from bert_jax.core.terminal import no_lines, pluralize, print_line
from bert_jax.data.shards.shard import Shard
from bert_jax.data.shards.shard_folder import Job, ShardFolder, WrittenShard, open_folder
from bert_jax.hub.model_directory import model_fingerprint
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.load import load

PACKAGES = ("jax", "jaxlib", "numpy", "onnxruntime", "tokenizers", "sentencepiece", "sentencex", "pyarrow")

# Each worker has its own cores, and the libraries would take all of the machine's. XLA reads NPROC.
THREADS = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Accelerator = Literal["gpu", "tpu"]
RESOURCES: dict[Accelerator | None, dict[str, Any]] = {
    None: {},
    "gpu": {"num_gpus": 1},
    "tpu": {"resources": {"TPU": 1}},
}
WriteShard = Callable[[Shard], WrittenShard]


@dataclass(frozen=True)
class ClusterOptions:
    address: str
    workers: int | None = None  # None: one for each core, or for each accelerator
    accelerator: Accelerator | None = None


@dataclass(frozen=True, kw_only=True)
class ShardWork(ABC):
    """It is sent to every worker, and so has no model; each worker opens its own."""

    output: str  # the address of the folder of outputs

    unit: ClassVar[str]  # what is counted, as a plural, such as "rows"
    counts_rows: ClassVar[bool]  # whether a unit is a row of the input

    @property
    @abstractmethod
    def folder(self) -> ShardFolder: ...

    @property
    @abstractmethod
    def required_path(self) -> str:
        """The directory that every machine has to see, such as that of the model."""

    @abstractmethod
    def open(self) -> WriteShard:
        """Open what every shard needs; refuse what is not the same as where the command runs."""

    def describe_written(self, rows: int, files: Iterable[Path], **counts: int) -> WrittenShard:
        """Return what was written for a shard, in files of the folder of the outputs."""
        return WrittenShard(rows, [str(file.relative_to(self.folder.path)) for file in files], counts)


@dataclass(frozen=True, kw_only=True)
class ModelShards(ShardWork):
    """What a model makes of shards. A verb is one of these: what it writes for a shard, and its settings."""

    model: str
    fingerprint: str  # of the model
    engine: dict[str, Any]
    format: str
    shard_rows: int | None = None

    verb: ClassVar[str]
    noun: ClassVar[str]  # what is written, such as "prediction"
    formats: ClassVar[tuple[str, ...]]  # the first is the default
    counts_rows = True

    @classmethod
    def from_model(cls, model: str, format: str | None, output: str, **settings) -> Self:
        """Return the work for workers, whose working directory is another: the name of a published model stays."""
        model = os.path.abspath(model) if os.path.isdir(model) else model
        fingerprint, format = model_fingerprint(model), format or cls.formats[0]
        return cls(model=model, fingerprint=fingerprint, format=format, output=output, **settings)

    @property
    def required_path(self) -> str:
        return self.model

    @property
    @abstractmethod
    def has_header(self) -> bool:
        """Whether the first line of a .csv or .tsv file names columns."""

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """What else than the model determines the outputs."""

    @cached_property
    def folder(self) -> ShardFolder:
        settings = {"model": self.fingerprint, **self.engine, **self.settings}
        settings |= {"format": self.format, "shard_rows": self.shard_rows}
        return open_folder(self.output, Job(self.verb, f"{self.noun}s", settings), f".{self.format}")

    def prepare(self, options: ClusterOptions, shards: list[Shard], is_new: bool) -> Self:
        """Return the work with what has to be known of all shards; `is_new`: none of them is complete yet."""
        return self

    def open(self) -> WriteShard:
        if model_fingerprint(self.model) != self.fingerprint:
            raise BertJaxError(
                f"{self.model} is another model here than where the command runs; copy it again"
            )
        return partial(self.write, self.open_model(load(self.model, **self.engine)))

    @abstractmethod
    def open_model(self, model: Encoder) -> Any:
        """Return what `write` needs of the model; refuse wrong settings."""

    @abstractmethod
    def write(self, model: Any, shard: Shard) -> WrittenShard: ...

    def describe_counts(self, counts: Mapping[str, int]) -> str:
        """Return the end of the line that says what was written."""
        return ""


@dataclass(frozen=True)
class ShardResult:
    rows: int
    seconds: float
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class ShardRefusal:
    """Why a worker or a shard cannot go on, in one line. If a disk is full, other shards would fail there, too."""

    message: str
    disk_is_full: bool = False


class ShardWorker:
    def __init__(self, cores: int, uses_accelerator: bool):
        # Before anything that reads them is imported.
        os.environ |= dict.fromkeys(THREADS, str(cores))
        os.environ["TOKENIZERS_PARALLELISM"] = "true" if cores > 1 else "false"
        if not uses_accelerator:
            os.environ["JAX_PLATFORMS"] = "cpu"
        self.work: ShardWork
        self.write_shard: WriteShard

    def open(self, work: ShardWork, versions: Mapping[str, str]) -> ShardRefusal | None:
        """Open what the shards need; called first, also when Ray has restarted the worker."""
        try:
            check_versions(versions)
            for path in filter(os.path.isabs, (work.required_path, work.output)):
                if not Path(path).exists():
                    raise BertJaxError(
                        f"{socket.gethostname()} does not see {path}; put it on storage that all machines mount at "
                        "this path"
                    )
            work = replace(work)  # a bucket's files stand elsewhere before they are copied
            with no_lines():
                self.work, self.write_shard = work, work.open()
        except BertJaxError as error:
            return ShardRefusal(str(error))
        return None

    def write(self, shard: Shard) -> ShardResult | ShardRefusal:
        """Write the output of a shard and its manifest."""
        local, begun = shard, time.monotonic()
        try:
            with warnings.catch_warnings(record=True) as told, no_lines(), shard.local_copy() as local:
                warnings.simplefilter("always", UserWarning)
                written = self.write_shard(local)
                self.work.folder.record(shard, written, local)
        except (BertJaxError, OSError) as error:
            message = str(explain_os_error(error) if isinstance(error, OSError) else error)
            line = f"{local.name_original_rows(message)} (on {socket.gethostname()})"
            return ShardRefusal(
                line, any(getattr(cause, "errno", 0) in FULL for cause in (error, error.__cause__))
            )
        messages = (str(warning.message) for warning in told if issubclass(warning.category, UserWarning))
        return ShardResult(written.rows, time.monotonic() - begun, tuple(dict.fromkeys(messages)))


def list_versions() -> dict[str, str]:
    versions = {"bert-jax": __version__, "python": ".".join(platform.python_version_tuple()[:2])}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "none"
    return versions


def check_versions(expected: Mapping[str, str]) -> None:
    """Refuse a machine whose versions are not those of the machine on which the command runs."""
    for name, version in list_versions().items():
        if version != expected[name]:
            raise BertJaxError(
                f"{socket.gethostname()} has {name} {version}, and the command runs with {expected[name]}; install the "
                "same versions on all machines"
            )


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
        actor = ray.remote(ShardWorker).options(**options)
        return [actor.remote(self.cores, self.accelerator is not None) for _ in range(self.count)]

    def describe_lack(self, ray: ModuleType) -> str:
        """Say what the workers need, and what the cluster has."""
        resource, needed = ("CPU", self.cores) if self.accelerator is None else (self.accelerator.upper(), 1)
        total, nodes = int(ray.cluster_resources().get(resource, 0)), ray.nodes()
        dead = sum(not node["Alive"] for node in nodes)
        has = f"the cluster has {total} on {pluralize(len(nodes) - dead, 'machine')}"
        return f"each needs {needed} {resource}, and {has}" + (f", and {dead} more dead" if dead else "")


def plan_workers(ray: ModuleType, options: ClusterOptions, shards: int) -> WorkerPlan:
    """Return what workers there will be, at most as many as there are shards."""
    resource = (options.accelerator or "cpu").upper()
    available = int(ray.cluster_resources().get(resource, 0))
    if not available and options.workers is None:
        raise BertJaxError(
            f"the cluster has no {resource}; leave --accelerator out, or give --workers N to wait for some"
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
