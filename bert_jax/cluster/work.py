"""What a cluster does with each shard: the same functions that a command on one machine calls for a whole input."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from bert_jax.core.errors import BertJaxError
from bert_jax.data.shards.shard import Shard
from bert_jax.data.shards.shard_folder import Job, ShardFolder, WrittenShard, open_folder
from bert_jax.hub.model_directory import model_fingerprint
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.load import load

if TYPE_CHECKING:
    from bert_jax.cluster.worker import ClusterOptions

WriteShard = Callable[[Shard], WrittenShard]


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

    def with_output(self, folder: str) -> Self:
        """Return the same work with another folder of outputs."""
        return replace(self, output=folder)

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

    def prepare(self, options: "ClusterOptions", shards: list[Shard], is_new: bool) -> Self:
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
