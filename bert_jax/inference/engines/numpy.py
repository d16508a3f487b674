"""The engine that computes static embeddings on CPUs. Nothing of it imports JAX."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import singledispatchmethod
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_array

from bert_jax.core.errors import BertJaxError
from bert_jax.hub.families import static
from bert_jax.hub.layout import Layout
from bert_jax.hub.model_directory import ModelDirectory, save_model
from bert_jax.hub.sentence_transformers import PROJECTION
from bert_jax.inference.batching import CPU_TOKENS, BatchShapes
from bert_jax.inference.computations import Computation, HiddenStates, PooledStates
from bert_jax.inference.engines.onnxruntime import Batch, finish_vectors, pooled, refuse_settings
from bert_jax.text.encoding import Encoding
from bert_jax.text.tokenizer import Tokenizer


class NumpyEngine:
    name: ClassVar = "numpy"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    dtype = "float32"
    bank: Any = None
    slot: int = 0
    shares_scale: bool = False
    shapes = BatchShapes(CPU_TOKENS)

    def __init__(self, rows: np.ndarray, dense: dict[str, np.ndarray]):
        self.rows, self.dense = rows, dense

    @classmethod
    def open_directory(cls, path, dtype: str, **settings: Any) -> ModelDirectory:
        refuse_settings(settings)
        directory = ModelDirectory.open(path)
        if not directory.layout.is_static:
            raise BertJaxError(
                f"the engine {cls.name} computes static embeddings, and {directory} has none; use jax"
            )
        return directory

    @classmethod
    def from_directory(cls, directory: ModelDirectory) -> Self:
        words, *projection = directory.mappings(directory.layout)
        rows = static.map_rows(directory.path)
        return cls(
            directory.read_parameter(words, 0) if rows is None else rows,
            {part.path.split("/")[-1]: directory.read_parameter(part, 1) for part in projection},
        )

    @property
    def params(self) -> dict:
        encoder = {"encoder": {"embeddings": {"words": self.rows}}}
        return encoder | ({PROJECTION: {"dense": self.dense}} if self.dense else {})

    def write_model(self, directory: Path, layout: Layout, tokenizer: Tokenizer | None) -> None:
        save_model(directory, layout, self.params, tokenizer)

    def compiling(self, computation: Computation, batches: Sequence[Batch]) -> AbstractContextManager:
        return nullcontext()

    def read(self, started: Any) -> Any:
        return started

    @singledispatchmethod
    def start(self, computation: Computation, batch: Batch) -> Any:
        """Return the outputs of a computation; each of the methods below computes one."""
        raise BertJaxError(
            f"the engine {self.name} computes hidden states and vectors of texts; use the engine jax"
        )

    @start.register
    def hidden_states(self, wanted: HiddenStates, batch: Batch) -> Any:
        return self.rows[batch["input_ids"]]

    @start.register
    def pooled_states(self, wanted: PooledStates, batch: Batch) -> Any:
        vectors = pooled(self.rows[batch["input_ids"]], batch["attention_mask"], wanted.pooling)
        return finish_vectors(vectors, wanted, self.dense)

    def mean_rows(self, encodings: Sequence[Encoding], wanted: PooledStates) -> np.ndarray:
        """Return the vectors [N, D] of texts of any lengths, without padding; those of no token are zeros."""
        lengths = np.array([len(encoding.input_ids) for encoding in encodings])
        ids = np.fromiter(chain.from_iterable(encoding.input_ids for encoding in encodings), np.int32)
        shares = np.repeat(1 / lengths.clip(1), lengths).astype(np.float32)
        starts = np.concatenate([[0], lengths.cumsum()])
        texts = csr_array((shares, ids, starts), shape=(len(lengths), len(self.rows)))
        return finish_vectors(texts @ self.rows, wanted, self.dense)


Engine = NumpyEngine
