"""A folder of outputs, one for each shard of an input.

    DIR/_job.json            the verb and the settings that made the outputs
    DIR/_manifests/NAME.json rows, files and hashes of each shard that is complete
    DIR/NAME.jsonl           its output

The output of a shard is written under a temporary name and renamed, and then its manifest is written. So a command that
was killed is repeated, and does only the shards that are left.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.core.bucket import Bucket, BucketFile, is_bucket, without_options
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import cache_home, file_hash, read_json, to_json, write_atomically
from bert_jax.core.hashes import (
    SELF,
    FileFacts,
    check_version,
    collect_file_facts,
    describe_mismatch,
    is_sealed,
    json_digest,
    seal,
)
from bert_jax.core.output import foreign_files_error, locked_directory, refuse_unlisted, remove_path
from bert_jax.core.terminal import pluralize
from bert_jax.core.typed_json import coerce_json
from bert_jax.data.shards.shard import Shard

VERSION = 1
JOB, MANIFESTS = "_job.json", "_manifests"
CUT = "_cut"  # the folder of the parts of files that were cut
AGAIN = "name a new folder"
SHOWN = 3  # the most files that a message names
REMEDY = "delete it, and repeat the command that wrote it"


class WrittenShard(NamedTuple):
    """What was written for a shard: the number of its rows, the files in the folder, and counts to add up."""

    rows: int
    files: list[str]
    counts: dict[str, int]


@dataclass(frozen=True)
class InputFacts:
    """The size of the files of a shard, when one last changed, and their hash."""

    bytes: int
    changed_ns: int
    blake2b: str

    @classmethod
    def from_shard(cls, shard: Shard, local: Shard) -> "InputFacts":
        """`local` is the shard with its files on this machine."""
        hashes = [file_hash(Path(source)) for source in local.sources]
        return cls(*shard.stat(), json_digest(hashes))

    def matches(self, shard: Shard) -> bool:
        """Whether the files are still the same. They are hashed only if one was written since."""
        size, changed_ns = shard.stat()
        if size != self.bytes or changed_ns == self.changed_ns:
            return size == self.bytes
        with shard.local_copy() as local:
            return self.from_shard(shard, local).blake2b == self.blake2b


@dataclass(frozen=True)
class ShardManifest:
    sources: list[str]
    input: InputFacts
    rows: int
    counts: dict[str, int]
    files: dict[str, FileFacts]


@dataclass(frozen=True)
class Job:
    """What a folder is for. Its settings are all that determine the outputs."""

    verb: str
    noun: str  # what the folder holds, such as "predictions"
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class ShardFolder:
    path: Path
    job: Job
    ending: str = ""  # of the outputs

    def __str__(self) -> str:
        return str(self.path)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the folder for one command while the block runs; refuse one with outputs of another job."""
        refuse_unlisted(self.path, JOB)
        with locked_directory(self.path):
            if any((self.path / MANIFESTS).rglob("*.json")):
                self.refuse_other_job()
            else:
                remove_path(self.path / CUT)  # of what was begun with other settings or inputs
                self.write_json(JOB, {"version": VERSION, **asdict(self.job)})
            yield

    def refuse_other_job(self) -> None:
        path = self.path / JOB
        stored = read_json(path, dict[str, Any], AGAIN)
        check_version(stored, VERSION, path, AGAIN)
        if (verb := stored.get("verb")) != self.job.verb:
            raise BertJaxError(f"{self} was written by `{verb}`, not by `{self.job.verb}`; {AGAIN}")
        settings, noun = stored.get("settings", {}), self.job.noun
        for name, value in json.loads(to_json(self.job.settings)).items():  # a tuple is stored as a list
            if (before := settings.get(name)) != value:
                unlike = f"made with other settings: {name} was {describe(before)} and is {describe(value)}"
                unlike = "of another model" if name == "model" else unlike
                raise BertJaxError(f"{self} holds {noun} {unlike}; {AGAIN}")

    def output_name(self, shard: Shard) -> str:
        return f"{shard.name}{self.ending}"

    def output_path(self, shard: Shard) -> Path:
        return self.path / self.output_name(shard)

    def record(self, shard: Shard, written: WrittenShard, local: Shard | None = None) -> None:
        """Write the manifest of a shard, whose files stand under their names: now it is complete."""
        for name in written.files:
            self.publish(name)
        manifest = ShardManifest(
            [without_options(source) for source in shard.sources],
            InputFacts.from_shard(shard, local or shard),
            written.rows,
            written.counts,
            collect_file_facts(self.path, written.files),
        )
        self.write_json(manifest_name(shard), seal(asdict(manifest)))

    def read_manifest(self, shard: Shard) -> ShardManifest | None:
        """Return the manifest of a shard that is complete; None if it is to be made."""
        try:
            manifest = read_shard_manifest(self.path / manifest_name(shard))
        except FileNotFoundError:
            return None
        whole = all(self.holds(name, facts["bytes"]) for name, facts in manifest.files.items())
        return manifest if whole else None

    def holds(self, name: str, size: int) -> bool:
        """Whether the folder has a file of this name and size."""
        return describe_mismatch(self.path, name, size) is None

    def local_file(self, name: str) -> Path:
        """Return the path of an output on this machine."""
        return self.path / name

    def publish(self, name: str) -> None:
        """Put a file that was written on this machine where it belongs: here it stands there."""

    def list_complete(self, shards: list[Shard]) -> dict[str, ShardManifest]:
        """Return the manifests of the complete shards by their names; refuse a shard whose input has changed since."""
        complete = {}
        for shard in shards:
            if manifest := self.read_manifest(shard):
                # A file that was cut is compared as a whole: its parts are removed when all are done.
                if not shard.original and not manifest.input.matches(shard):
                    raise BertJaxError(
                        f"{shard.display_name} has changed since {self} got its {self.job.noun}; {AGAIN}, or delete "
                        f"{self}/{manifest_name(shard)} to do it again"
                    )
                complete[shard.name] = manifest
        return complete

    def handle_stale(self, shards: list[Shard], remove_missing: bool) -> None:
        """Remove the outputs of shards that are not among these, or refuse the folder that holds some."""
        wanted = {manifest_name(shard) for shard in shards}
        paths = sorted((self.path / MANIFESTS).rglob("*.json"))
        stale = [name for path in paths if (name := path.relative_to(self.path).as_posix()) not in wanted]
        if stale and not remove_missing:
            names = [f"{name[len(MANIFESTS) + 1 : -len('.json')]}{self.ending}" for name in stale]
            raise BertJaxError(
                f"{self} holds {pluralize(len(stale), 'output')} of inputs that are gone: {', '.join(names[:SHOWN])}"
                f"{', ...' * (len(names) > SHOWN)}; give these inputs, too, or add --remove-missing to remove their "
                f"{self.job.noun}"
            )
        for name in stale:
            for file in read_shard_manifest(self.path / name).files:
                self.remove(file)
            self.remove(name)  # the last: a command that is killed before goes on to remove the rest

    def remove(self, name: str) -> None:
        remove_path(self.path / name)

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Shared: a worker that was cut off may still be writing the same.
        write_atomically(path, to_json(value, indent=1) + "\n", shared=True)
        self.publish(name)


@dataclass(frozen=True, kw_only=True)
class BucketFolder(ShardFolder):
    """A folder in a bucket. Each output is written in `path` on this machine and copied, and then its manifest. A copy
    stands under its name at once or not at all. A bucket has no locks: two commands at a time do the same twice."""

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


def manifest_name(shard: Shard) -> str:
    return f"{MANIFESTS}/{shard.name}.json"


def read_shard_manifest(path: Path) -> ShardManifest:
    content = read_json(path, dict[str, Any], REMEDY)
    if not is_sealed(content):
        raise BertJaxError(f"{path} is damaged: its hash differs; {REMEDY}")
    return coerce_json({name: value for name, value in content.items() if name != SELF}, ShardManifest)


def add_counts(manifests: Iterable[ShardManifest]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for manifest in manifests:
        counts.update(manifest.counts)
    return counts


def describe(value: object) -> str:
    return "none" if value in (None, "") else str(value)
