"""Vectors of shards: each is computed by the functions of `embed`. The keys of the texts are kept beside them, so that
an index can take over the vectors."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from bert_jax.cluster.run_shards import complete_shards, temporary_work
from bert_jax.cluster.worker import ClusterOptions, ModelShards
from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.errors import BertJaxError
from bert_jax.core.output import atomic_file
from bert_jax.data.npy_writer import npy_writer
from bert_jax.data.shards.shard import Shard
from bert_jax.data.shards.shard_folder import AGAIN, WrittenShard
from bert_jax.inference.encoder import Encoder
from bert_jax.search import vector_shards
from bert_jax.search.cache import KEY, content_keys
from bert_jax.search.embed_file import (
    EmbedSettings,
    describe_clipped,
    embed_chunks,
    read_texts,
)
from bert_jax.search.stored_vectors import KEYS
from bert_jax.search.vector_files import TYPES, Quantizer, ranges_of, read_vectors, vector_writer
from bert_jax.search.vector_forms import vector_form_of
from bert_jax.text.truncation import TruncationCounter

RANGES = "_ranges.npy"  # the minimum and the maximum of each dimension, [2, D]


@dataclass(frozen=True, kw_only=True)
class EmbedShards(ModelShards):
    pipeline: EmbedSettings
    column: str
    quantize: str | None
    # For int8; without them vectors stay whole.
    ranges: np.ndarray | None = field(default=None, compare=False)

    verb, noun, unit = "embed", "vector", "texts"
    formats = "npy", "parquet"

    @property
    def has_header(self) -> bool:
        return not self.column.isdecimal()

    @property
    def settings(self) -> dict[str, Any]:
        return {**self.pipeline, "text": self.column, "quantize": self.quantize}

    def prepare(self, options: ClusterOptions, shards: list[Shard], is_new: bool) -> Self:
        """Return the work with the ranges of int8, which are in the folder once a shard is complete."""
        if self.quantize != "int8":
            return self
        if is_new:
            with atomic_file(self.folder.path / RANGES) as new, open(new, "wb") as file:
                np.save(file, self.measure_ranges(options, shards))
            self.folder.publish(RANGES)
        try:
            return replace(self, ranges=np.load(self.folder.local_file(RANGES)))
        except (OSError, ValueError, EOFError) as error:
            raise BertJaxError(f"{self.folder}/{RANGES} is missing or damaged; {AGAIN}") from error

    def measure_ranges(self, options: ClusterOptions, shards: list[Shard]) -> np.ndarray:
        """Return the ranges of the first texts, as many as in one process, whose shards are computed for that alone."""
        with temporary_work(replace(self, format="npy")) as measured:
            parts, missing = list[np.ndarray](), vector_shards.TEXTS_PER_SHARD
            while missing > 0 and len(parts) < len(shards):
                # As many shards as probably have what is missing, by those that are done.
                rows = sum(map(len, parts))
                some = shards[len(parts) :][: -(-missing * len(parts) // rows) if rows else 1]
                complete_shards(options, measured, some, {})
                for shard in some:
                    vectors = read_vectors(measured.folder.local_file(measured.folder.output_name(shard)))
                    parts.append(vectors[:missing])
                    missing -= len(parts[-1])
            return ranges_of(parts)

    def open_model(self, model: Encoder) -> Encoder:
        vector_form_of(model.layout).open(model, **self.pipeline)  # refuses wrong settings
        return model

    def write(self, model: Encoder, shard: Shard) -> WrittenShard:
        form = vector_form_of(model.layout)
        truncated = TruncationCounter(form.open(model, **self.pipeline).truncated.max_length)
        embed = form.open(model, **self.pipeline, truncated=truncated)
        path, keys = self.folder.output_path(shard), self.folder.path / KEYS / f"{shard.name}.npy"
        quantized = None if self.quantize == "int8" and self.ranges is None else self.quantize
        quantizer = Quantizer(quantized, 0, self.ranges)
        rows = 0
        with (
            npy_writer(keys, KEY, shared=True) as array,
            vector_writer(path, TYPES[quantized], shared=True) as append,
        ):
            for texts, vectors in embed_chunks(embed, read_texts(shard.source, self.column)):
                array.append(content_keys(texts))
                numbers = np.arange(len(texts)) + shard.first_row + rows + 1
                if form.columns:
                    append(None, row=numbers, text=texts, **form.columns(vectors, model.layout.vector_size))
                else:
                    append(quantizer.quantized(vectors), row=numbers, text=texts)
                rows += len(texts)
        if notice := truncated.notice(form.advice):
            warn_caller(notice)
        return self.describe_written(
            rows, [path, keys], truncated=truncated.truncated, clipped=quantizer.clipped
        )

    def describe_counts(self, counts: Mapping[str, int]) -> str:
        return describe_clipped(counts.get("clipped", 0))
