"""What a cluster does with each shard: the same functions that a command on one machine calls for a whole input."""

from collections.abc import Callable
from typing import Protocol, Self

from bert_jax.data.shards.shard import Shard
from bert_jax.data.shards.shard_folder import ShardFolder, WrittenShard

WriteShard = Callable[[Shard], WrittenShard]


class ShardWork(Protocol):
    """It is sent to every worker, and so has no model; each worker opens its own."""

    @property
    def unit(self) -> str:
        """What is counted, as a plural, such as "rows"."""
        ...

    @property
    def folder(self) -> ShardFolder: ...

    @property
    def output(self) -> str:
        """The address of `folder`."""
        ...

    @property
    def required_path(self) -> str:
        """The directory that every machine has to see, such as that of the model."""
        ...

    def with_output(self, folder: str) -> Self:
        """Return the same work with another folder of outputs."""
        ...

    def open(self) -> WriteShard:
        """Open what every shard needs; refuse what is not the same as where the command runs."""
        ...
