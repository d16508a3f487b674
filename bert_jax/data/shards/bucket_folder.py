"""A folder of outputs in a bucket. Each output is written on this machine and copied, and then its manifest. A copy
stands under its name at once or not at all. A bucket has no locks: two commands at a time do the same twice."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bert_jax.core.bucket import Bucket, BucketFile, is_bucket
from bert_jax.core.files import cache_home
from bert_jax.core.hashes import json_digest
from bert_jax.core.output import foreign_files_error, remove_path
from bert_jax.data.shards.shard import Shard
from bert_jax.data.shards.shard_folder import JOB, MANIFESTS, Job, ShardFolder, ShardManifest, WrittenShard


@dataclass(frozen=True, kw_only=True)
class BucketFolder(ShardFolder):
    """`path` is where files stand before they are copied."""

    bucket: Bucket
    listed: dict[str, BucketFile] = field(default_factory=dict)  # the files in the bucket, by their names

    def __str__(self) -> str:
        return str(self.bucket)

    @contextmanager
    def opened(self) -> Iterator[None]:
        remove_path(self.path)
        self.fetch()
        if JOB not in self.listed and (foreign := [name for name in self.listed if name[0] != "."]):
            raise foreign_files_error(self, foreign[0])
        try:
            with super().opened():
                yield
        finally:
            remove_path(self.path)

    def fetch(self) -> None:
        """List the bucket, and copy its manifests to this machine."""
        self.listed.clear()
        self.listed.update(self.bucket.list_files())
        remove_path(self.path / MANIFESTS)
        if JOB in self.listed:
            (self.bucket / JOB).download(self.path / JOB)
        if any(name.startswith(f"{MANIFESTS}/") for name in self.listed):
            (self.path / MANIFESTS).mkdir(parents=True)
            (self.bucket / MANIFESTS).download(self.path / MANIFESTS)

    def list_complete(self, shards: list[Shard]) -> dict[str, ShardManifest]:
        self.fetch()
        return super().list_complete(shards)

    def holds(self, name: str, size: int) -> bool:
        return name in self.listed and self.listed[name].bytes == size

    def publish(self, name: str) -> None:
        (self.bucket / name).upload(self.path / name)

    def record(self, shard: Shard, written: WrittenShard, local: Shard | None = None) -> None:
        super().record(shard, written, local)
        for name in written.files:
            remove_path(self.path / name)

    def remove(self, name: str) -> None:
        super().remove(name)
        if self.listed.pop(name, None):
            (self.bucket / name).remove()

    def local_file(self, name: str) -> Path:
        (self.bucket / name).download(self.path / name)
        return self.path / name


def open_folder(output: str, job: Job, ending: str) -> ShardFolder:
    """Return the folder of the outputs, in a bucket or not."""
    if not is_bucket(output):
        return ShardFolder(Path(output), job, ending)
    path = cache_home() / "buckets" / json_digest(output)
    return BucketFolder(path, job, ending, bucket=Bucket(output))
