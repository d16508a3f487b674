"""Multi-vector embedders (late interaction, ColBERT): a vector for each token, by the names that sentence-transformers
gives them."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from bert_jax.core.config import Range, check_flag, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.layout import Layout
from bert_jax.hub.multi_vector_encoder import DOCUMENT, QUERY
from bert_jax.inference.max_sim import max_sim_matrix
from bert_jax.inference.prompted_encoder import PromptedEncoder
from bert_jax.inference.reranker import Ranked
from bert_jax.inference.streaming import check_batch_options, map_texts, ordered_texts
from bert_jax.inference.text_vectors import PromptText
from bert_jax.inference.token_vectors import TokenVectorPipeline, require_multi_vector


class MultiVectorEmbedder(PromptedEncoder):
    """Turns texts into vectors of their tokens, which are compared one by one (MaxSim): each token of a query finds the
    token of a document that answers it best.

    The vectors of a text are an array [T, D]. Queries and documents are read differently.
    """

    vectors = "multi_vector"

    @classmethod
    def accepts(cls, layout: Layout) -> bool:
        return bool(layout.multi_vector or layout.m3)

    def encode(  # type: ignore[override]  # not the dense vectors of an encoder
        self, inputs: Any, prompt_name: str | None = None, prompt: str | None = None, batch_size: int | None = None,
        show_progress_bar: bool | None = None, pool_factor: float | None = None, *, task: str = DOCUMENT,
    ) -> Any:  # fmt: skip
        """Return an array [T, D] for a text, a list of such for a list, or an iterator of such for any other iterable.

        `task` is "document" or "query". `prompt_name`, `prompt`, `batch_size` and `show_progress_bar` are as in
        `Embedder.encode`. With `pool_factor`, tokens of documents are grouped by their directions, and a vector is left
        of so many. Long texts are truncated, with a warning.

        >>> [vectors.shape for vectors in model.encode(["the cat", "the"])]
        [(4, 8), (3, 8)]
        """
        check_batch_options(batch_size, show_progress_bar)
        chosen = prompt_name if prompt is None else PromptText(prompt)
        pipeline = TokenVectorPipeline(self, task, prompt=chosen, pool_factor=pool_factor)
        inputs = [*inputs] if isinstance(inputs, tuple) else inputs
        return map_texts(inputs, pipeline, list, batch_size or 0, show_progress_bar)

    def encode_query(self, inputs: Any, prompt_name: str | None = None, **settings: Any) -> Any:
        """Return vectors as `encode` does for queries: with their prompt, their length and the tokens added to them.

        >>> model.encode_query("the cat").shape
        (6, 8)
        """
        return self.encode(inputs, prompt_name, task=QUERY, **settings)

    def encode_document(self, inputs: Any, prompt_name: str | None = None, **settings: Any) -> Any:
        """Return vectors as `encode` does for documents.

        >>> model.encode_document("the cat").shape
        (4, 8)
        """
        return self.encode(inputs, prompt_name, task=DOCUMENT, **settings)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        """Return the MaxSim [N1, N2] of each query with each document, given as the vectors of one or of several.

        It is divided by the number of the query's vectors if the model's directory says "meanmaxsim".

        >>> model.similarity(model.encode_query("the cat"), model.encode_document(["the cat", "the"])).shape
        (1, 2)
        """
        first, second = self._vectors(embeddings1, "embeddings1"), self._vectors(embeddings2, "embeddings2")
        return max_sim_matrix(first, second, require_multi_vector(self).similarity == "meanmaxsim")

    def rank(
        self, query: str, documents: Any, top_k: int | None = None, return_documents: bool = False
    ) -> list[Ranked]:
        """Return the `top_k` best documents for a query, or all of them, best first, as `Reranker.rank` does.

        >>> [document["corpus_id"] for document in model.rank("the cat", ["the mat", "the cat"], top_k=1)]
        [1]
        """
        if top_k is not None:
            check_number(top_k, "top_k", is_whole=True, allowed=Range(1))
        check_flag(return_documents, "return_documents")
        if not isinstance(query, str) or isinstance(documents, str):
            raise BertJaxError("rank needs a text, the query, and a list of texts, the documents")
        documents = list(ordered_texts(documents))
        (scores,) = self.similarity(self.encode_query(query), self.encode_document(documents))
        order = np.argsort(-scores, kind="stable")[:top_k].tolist()
        best: list[Ranked] = [{"corpus_id": index, "score": float(scores[index])} for index in order]
        for document in best if return_documents else ():
            document["text"] = documents[document["corpus_id"]]
        return best

    def _vectors(self, given: Any, name: str) -> list[np.ndarray]:
        listed = [given] if isinstance(given, np.ndarray) and given.ndim == 2 else given
        width = self.layout.vector_size
        if (isinstance(listed, Sequence) or np.ndim(listed) == 3) and all(
            map(partial(is_array, width=width), listed)
        ):
            return [*listed]
        raise BertJaxError(
            f"{name} must be arrays [T, {width}], as encode_query and encode_document return them, not {given!r:.40}"
        )


def is_array(given: object, width: int) -> bool:
    return isinstance(given, np.ndarray) and given.ndim == 2 and given.shape[1] == width
