"""Vectors of shards: each is computed by the functions of `embed`. The keys of the texts are kept beside them, so that
an index can take over the vectors."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.cluster.model_shards import ModelShards
from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.output import atomic_file
from bert_jax.data.growing_array import GrowingArray, growing_array
from bert_jax.data.shards.shard import Shard
from bert_jax.data.shards.shard_folder import WrittenShard
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.text_vectors import EmbeddingPipeline, embedder_reading
from bert_jax.search.content_keys import KEY, content_keys
from bert_jax.search.embed_file import EmbedSettings, embed_windows, read_texts
from bert_jax.search.quantization import TYPES, to_bits
from bert_jax.search.stored_vectors import KEYS
from bert_jax.text.truncation import TruncationCounter, windows_advice

Windows = Iterator[tuple[list[str], np.ndarray]]  # texts and their vectors


def write_array(windows: Windows, path: Path, kind: str | None, first: int) -> int:
    with growing_array(path, TYPES[kind], shared=True) as array:
        for _, vectors in windows:
            array.append(vectors)
        return array.rows


def write_table(windows: Windows, path: Path, kind: str | None, first: int) -> int:
    """Write rows with a number, a text and a vector, as a list of fixed size; `first` rows of the file were before."""
    import pyarrow as pa
    from pyarrow import parquet

    rows, writer = first, None
    with atomic_file(path, shared=True) as new:
        try:
            for texts, vectors in windows:
                numbers = range(rows + 1, rows + len(texts) + 1)
                lists = pa.FixedSizeListArray.from_arrays(
                    vectors.astype(TYPES[kind]).ravel(), vectors.shape[1]
                )
                table = pa.table({"row": pa.array(numbers, pa.int64()), "text": texts, "embedding": lists})
                writer = writer or parquet.ParquetWriter(new, table.schema)
                writer.write_table(table)
                rows += len(texts)
        finally:
            if writer:
                writer.close()
    return rows - first


WRITERS = {"npy": write_array, "parquet": write_table}


@dataclass(frozen=True, kw_only=True)
class EmbedShards(ModelShards):
    pipeline: EmbedSettings
    column: str
    quantize: str | None  # binary, for which no shard has to know another

    verb, noun, unit = "embed", "vector", "texts"
    writers = WRITERS

    @property
    def has_header(self) -> bool:
        return not self.column.isdecimal()

    @property
    def settings(self) -> dict[str, Any]:
        return {**self.pipeline, "text": self.column, "quantize": self.quantize}

    def open_model(self, model: Encoder) -> Encoder:
        EmbeddingPipeline(model, **self.pipeline)  # refuses wrong settings
        return model

    def make_windows(self, embed: EmbeddingPipeline, texts: Iterable[str], keys: GrowingArray) -> Windows:
        """Yield texts and their vectors as they are stored; append the keys of the texts to `keys`."""
        for window, vectors in embed_windows(embed, texts):
            keys.append(content_keys(window))
            yield window, to_bits(vectors) if self.quantize else vectors

    def write(self, model: Encoder, shard: Shard) -> WrittenShard:
        truncated = TruncationCounter(embedder_reading(model).max_length)
        embed = EmbeddingPipeline(model, **self.pipeline, truncated=truncated)
        path, keys = self.folder.output_path(shard), self.folder.path / KEYS / f"{shard.name}.npy"
        with growing_array(keys, KEY, shared=True) as array:
            windows = self.make_windows(embed, read_texts(shard.source, self.column), array)
            rows = WRITERS[self.format](windows, path, self.quantize, shard.first_row)
        if notice := truncated.notice(windows_advice()):
            warn_caller(notice)
        return self.written(rows, [path, keys], truncated=truncated.truncated)
