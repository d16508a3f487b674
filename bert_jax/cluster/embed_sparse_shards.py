"""Sparse vectors of shards, as Parquet: the ids of each text and their weights."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_jax.cluster.worker import ModelShards
from bert_jax.core.caller_warning import warn_caller
from bert_jax.data.shards.shard import Shard
from bert_jax.data.shards.shard_folder import WrittenShard
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.sparse_vectors import SparsePipeline
from bert_jax.inference.text_vectors import embedder_reading
from bert_jax.search.embed_file import read_texts
from bert_jax.search.sparse_file import embed_sparse_windows
from bert_jax.search.vector_files import vector_writer
from bert_jax.text.truncation import TruncationCounter, windows_advice


@dataclass(frozen=True, kw_only=True)
class EmbedSparseShards(ModelShards):
    pipeline: dict[str, Any]  # settings of `SparsePipeline`
    column: str

    verb, noun, unit = "embed", "vector", "texts"
    formats = ("parquet",)

    @property
    def has_header(self) -> bool:
        return not self.column.isdecimal()

    @property
    def settings(self) -> dict[str, Any]:
        return {**self.pipeline, "text": self.column}

    def open_model(self, model: Encoder) -> Encoder:
        SparsePipeline(model, **self.pipeline)  # refuses wrong settings
        return model

    def write(self, model: Encoder, shard: Shard) -> WrittenShard:
        import pyarrow as pa

        truncated = TruncationCounter(embedder_reading(model).max_length)
        embed = SparsePipeline(model, **self.pipeline, truncated=truncated)
        path, rows = self.folder.output_path(shard), 0
        with vector_writer(path, "", shared=True) as append:
            for texts, vectors in embed_sparse_windows(embed, read_texts(shard.source, self.column)):
                lists = {
                    name: pa.ListArray.from_arrays(vectors.indptr.astype(np.int32), numbers)
                    for name, numbers in {"indices": vectors.indices, "values": vectors.data}.items()
                }
                append(None, row=np.arange(len(texts)) + shard.first_row + rows + 1, text=texts, **lists)
                rows += len(texts)
        if notice := truncated.notice(windows_advice()):
            warn_caller(notice)
        return self.describe_written(rows, [path], truncated=truncated.truncated)
