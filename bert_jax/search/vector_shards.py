"""Store the vectors of millions of texts: a directory of .npy files of 65,536 rows each, and vectors.json, which
describes them.

A shard is listed in vectors.json, with the hash of its texts, once its file is complete. So a killed command can
resume, and vectors of different texts are never mixed.
"""

import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path

import numpy as np

from bert_jax.core.config import check_flag
from bert_jax.core.errors import BertJaxError, explain_os_error
from bert_jax.core.files import read_json, write_json
from bert_jax.core.hashes import json_digest
from bert_jax.core.output import locked_directory, refuse_unlisted
from bert_jax.core.paths import require_path
from bert_jax.data.npy_writer import npy_writer
from bert_jax.search.vector_files import TYPES, Quantizer, from_bits, from_bytes, gather_rows
from bert_jax.text.truncation import TruncationCounter

VECTORS_FILE = "vectors.json"
TEXTS_PER_SHARD = 65_536  # per shard

# Yields the vectors of texts in batches.
Compute = Callable[[Iterable[str], TruncationCounter], Iterator[np.ndarray]]


@dataclass(frozen=True)
class ShardSettings:
    """All settings that determine the vectors of a text and their files."""

    model: str  # its fingerprint
    pooling: str
    normalize: bool
    prompt: str | None
    long_texts: str
    max_length: int
    dimensions: int
    quantization: str | None  # int8 or binary
    shard: int  # the number of texts in each file except the last


@dataclass(frozen=True)
class VectorShard:
    texts: int
    blake2b: str  # of the texts
    truncated: int
    most: int  # the number of tokens cut from the longest text
    longest: int  # its index
    clipped: int  # the number of values outside the range of their dimension


@dataclass(frozen=True)
class VectorsManifest:
    """The content of vectors.json."""

    settings: ShardSettings
    dtype: str
    count: int
    complete: bool
    truncated: int
    clipped: int
    input: str  # hash of the texts
    shards: list[VectorShard]
    ranges: list[list[float]] | None  # for int8: the minimum and the maximum of each dimension

    @classmethod
    def load(cls, directory: Path) -> "VectorsManifest":
        try:
            return read_json(directory / VECTORS_FILE, cls, "name a new directory")
        except (FileNotFoundError, NotADirectoryError):
            raise BertJaxError(
                f"{directory} holds no {VECTORS_FILE}; name a directory that `bert-jax embed` wrote, and read a .npy "
                "file with numpy.load"
            ) from None

    def truncations(self) -> TruncationCounter:
        """Return the counts of truncated texts over all shards."""
        counts = TruncationCounter(self.settings.max_length)
        for shard in self.shards:
            counts.add(shard.texts, shard.truncated, shard.most, shard.longest)
        return counts


def hash_texts(texts: Iterable[str], digest: blake2b) -> Iterator[str]:
    """Yield the texts, and add each to the digest as it is read."""
    for text in texts:
        digest.update(json.dumps(text).encode())
        yield text


def split_texts(texts: Iterable[str], size: int) -> Iterator[Iterator[str]]:
    """Yield parts of `size` texts (the last may be shorter); read each part to its end before taking the next."""
    texts = iter(texts)
    for first in texts:
        yield chain([first], islice(texts, size - 1))


def write_shards(
    directory: Path, texts: Iterable[str], compute: Compute, settings: ShardSettings
) -> VectorsManifest:
    """Write the missing shards; the existing shards must hold vectors of the same texts."""
    refuse_unlisted(directory, VECTORS_FILE)
    with locked_directory(directory):
        writer = ShardWriter(directory, settings)
        for part in split_texts(texts, settings.shard):
            writer.write_or_check(part, compute)
        return writer.finish()


class ShardWriter:
    """Checks or writes the shard of each part of the input, in order."""

    def __init__(self, directory: Path, settings: ShardSettings):
        self.directory, self.settings = directory, settings
        self.shards: list[VectorShard] = []
        self.ranges: np.ndarray | None = None
        self.complete, self.taken = False, 0
        facts = VectorsManifest.load(directory) if (directory / VECTORS_FILE).exists() else None
        if facts and (facts.shards or facts.complete):
            self.refuse_other_settings(facts.settings)
            self.shards, self.ranges, self.complete = facts.shards, stored_ranges(facts), facts.complete
        else:
            self.write_manifest()

    def refuse_other_settings(self, stored: ShardSettings) -> None:
        for name, value in asdict(self.settings).items():
            if (stored_value := getattr(stored, name)) != value:
                unlike = f"{name} was {stored_value or 'none'} and is {value or 'none'}"
                unlike = "of another model" if name == "model" else f"made with other settings: {unlike}"
                raise BertJaxError(f"{self.directory} holds vectors {unlike}; name a new directory")

    def write_manifest(self) -> VectorsManifest:
        facts = VectorsManifest(
            self.settings,
            TYPES[self.settings.quantization],
            sum(shard.texts for shard in self.shards),
            self.complete,
            sum(shard.truncated for shard in self.shards),
            sum(shard.clipped for shard in self.shards),
            json_digest([shard.blake2b for shard in self.shards]),
            self.shards,
            None if self.ranges is None else self.ranges.tolist(),
        )
        write_json(self.directory / VECTORS_FILE, asdict(facts))
        return facts

    def write_or_check(self, part: Iterable[str], compute: Compute) -> None:
        number, path = self.taken, shard_path(self.directory, self.taken)
        self.taken += 1
        is_listed, digest = number < len(self.shards), blake2b(digest_size=16)
        if self.complete and not is_listed:
            raise self.other_texts_error(number)
        texts = hash_texts(part, digest)
        if is_listed and path.exists():
            map_shard(path, self.shards[number].texts)
            deque(texts, maxlen=0)
            if self.shards[number].blake2b != digest.hexdigest():
                raise self.other_texts_error(number)
            return
        counts = TruncationCounter(self.settings.max_length)
        quantizer = Quantizer(self.settings.quantization, self.settings.shard, self.ranges)
        with npy_writer(path, TYPES[quantizer.quantization]) as array:
            for rows in quantizer(compute(texts, counts)):
                array.append(rows)
            if is_listed and self.shards[number].blake2b != digest.hexdigest():
                raise self.other_texts_error(number)
        self.ranges = quantizer.ranges
        if not is_listed:
            cut = counts.truncated, counts.most, counts.longest
            self.shards.append(VectorShard(counts.texts, digest.hexdigest(), *cut, quantizer.clipped))
            self.write_manifest()

    def other_texts_error(self, number: int) -> BertJaxError:
        first = number * self.settings.shard
        return BertJaxError(
            f"{self.directory} holds vectors of different texts: the input differs after the first {first:,}; "
            "name a new directory"
        )

    def finish(self) -> VectorsManifest:
        if self.taken < len(self.shards):
            raise self.other_texts_error(self.taken)
        self.complete = True
        return self.write_manifest()


def shard_path(directory: Path, number: int) -> Path:
    return directory / f"{number:05}.npy"


def stored_ranges(facts: VectorsManifest) -> np.ndarray | None:
    return None if facts.ranges is None else np.array(facts.ranges, np.float32)


def map_shard(path: Path, rows: int) -> np.ndarray:
    """Return the rows of a shard, memory-mapped: they are read from disk only when used."""
    damaged = BertJaxError(f"{path} is damaged; delete it, and repeat the command that wrote it")
    try:
        array = np.load(path, mmap_mode="r")
    except FileNotFoundError as error:
        raise BertJaxError(
            f"{path} is missing; copy the directory again, or repeat the command that wrote it"
        ) from error
    except OSError as error:
        raise explain_os_error(error, path) from error
    except (ValueError, EOFError) as error:
        raise damaged from error
    if len(array) != rows:
        raise damaged
    return array


class ShardedVectors:
    """The rows [N, D] in a directory; indexing by a number, a slice, indices or a mask reads only the selected rows."""

    def __init__(self, directory: Path, dequantize: bool):
        self.facts, self.dequantize = VectorsManifest.load(directory), dequantize
        if not self.facts.complete:
            raise BertJaxError(
                f"{directory} is not complete: it has {self.facts.count:,} vectors; repeat the command that writes it"
            )
        counts = [shard.texts for shard in self.facts.shards]
        self.shards = [map_shard(shard_path(directory, number), rows) for number, rows in enumerate(counts)]
        self.starts = np.cumsum([0, *counts])[:-1]
        self.ranges = stored_ranges(self.facts)

    def __len__(self) -> int:
        return self.facts.count

    @property
    def shape(self) -> tuple[int, int]:
        width = self.facts.settings.dimensions if self.dequantize else self.shards[0].shape[1]
        return len(self), width

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float32 if self.dequantize else self.facts.dtype)

    def __getitem__(self, which) -> np.ndarray:
        rows = gather_rows(self.indices(which), self.starts, self.shards.__getitem__, self.facts.dtype)
        if not self.dequantize:
            return rows
        if self.ranges is not None:
            return from_bytes(rows, self.ranges)
        if self.facts.settings.quantization == "binary":
            return from_bits(rows, self.facts.settings.dimensions)
        return rows

    def indices(self, which) -> np.ndarray:
        """Return the non-negative indices of the selected rows."""
        if isinstance(which, slice):
            return np.arange(*which.indices(len(self)))
        which = np.asarray(which)
        if which.dtype == bool:
            if which.shape != (len(self),):
                raise IndexError(
                    f"a mask of shape {which.shape} for {len(self):,} rows; give one value per row"
                )
            return np.flatnonzero(which)
        numbers = which.astype(np.int64)
        outside = numbers[(numbers < -len(self)) | (numbers >= len(self))]
        if outside.size:
            raise IndexError(f"row {outside[0]:,} is out of range: there are {len(self):,} rows")
        return numbers % len(self)


def open_vectors(path: str | os.PathLike[str], dequantize: bool = False) -> ShardedVectors:
    """Open the vectors that `bert-jax embed` wrote to a directory as one array, whose rows are read when selected.

    Rows have the stored dtype, or float32 with `dequantize`: int8 becomes the middle of the step that the number was
    in, binary becomes 1 and -1.

    >>> vectors = bert_jax.open_vectors("vectors")
    >>> len(vectors), vectors[:2].shape
    (8, (2, 8))
    """
    check_flag(dequantize, "dequantize")
    return ShardedVectors(require_path(path, "path"), dequantize)
