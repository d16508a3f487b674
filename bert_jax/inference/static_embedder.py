"""Static embeddings: the vector of a text is the mean of its tokens' vectors."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.progress import Progress
from bert_jax.hub.layout import Layout
from bert_jax.hub.weights import is_finite
from bert_jax.inference.computations import Computation, PooledStates
from bert_jax.inference.embedder import Embedder
from bert_jax.inference.engine import Engine
from bert_jax.inference.engines.numpy import NumpyEngine
from bert_jax.text.encoding import Encoding


class StaticEmbedder(Embedder):
    """An `Embedder` of a hundred times the speed, without attention: texts are bags of tokens."""

    texts_at_once = 16384

    @classmethod
    def accepts(cls, layout: Layout) -> bool:
        return layout.is_static

    @classmethod
    def load(cls, path, **settings: Any) -> Self:
        """Open static embeddings; `settings` are those of `Encoder.load`.

        >>> bert_jax.StaticEmbedder.load("static").encode(["the cat", "the mat"]).shape
        (2, 4)
        """
        return super(Embedder, cls).load(path, **settings)

    def _run(
        self,
        encodings: Sequence[Encoding],
        wanted: Computation,
        extra_inputs: dict[str, np.ndarray] | None,
        progress: Progress | None,
        engine: Engine,
    ) -> list:
        if not (
            isinstance(engine, NumpyEngine) and isinstance(wanted, PooledStates) and wanted.pooling == "mean"
        ):
            return super()._run(encodings, wanted, extra_inputs, progress, engine)
        vectors = engine.mean_rows(encodings, wanted)  # without batches and their padding
        if not is_finite(vectors):
            raise BertJaxError(
                "some static embeddings are not finite; copy model.safetensors again from its source"
            )
        if progress:
            progress.advance(len(vectors))
        return list(vectors)
