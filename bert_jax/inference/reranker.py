"""Cross-encoders: how relevant documents are to a query, with the names and arguments of CrossEncoder."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NotRequired, TypedDict, Unpack, overload

import numpy as np

from bert_jax.core.config import Range, check_flag, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.core.typed_json import type_name
from bert_jax.hub.layout import Layout
from bert_jax.hub.multi_vector_encoder import DOCUMENT
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.runner import Runner
from bert_jax.inference.streaming import Column, Vectors, check_batch_options, map_texts, ordered_texts
from bert_jax.inference.text_outcomes import OutcomePipeline
from bert_jax.inference.token_vectors import pair_scorer
from bert_jax.predictions.selective import MinConfidence, abstains
from bert_jax.predictions.whole_text_kind import WholeTextKind
from bert_jax.text.truncation import TruncationCounter


class Ranked(TypedDict):
    """A document that `Reranker.rank` returns, as a dict."""

    corpus_id: int  # the index of the document in the input list
    score: float  # the probability that the document is relevant; for a regression model, its number
    text: NotRequired[str]  # the document, if it is asked for


QueryAndDocument = tuple[str, str] | list[str]


class PredictSettings(TypedDict, total=False):
    """The other arguments of `Reranker.predict`."""

    batch_size: int | None
    show_progress_bar: bool | None
    long_texts: str


class Reranker(Encoder):
    """Scores how relevant a document is to a query, reading both together; it has one output."""

    @classmethod
    def accepts(cls, layout: Layout) -> bool:
        return not set(layout.heads).isdisjoint(WholeTextKind.heads) and len(layout.labels) == 1

    @overload
    def predict(self, texts: QueryAndDocument, **settings: Unpack[PredictSettings]) -> np.float32: ...

    @overload
    def predict(
        self, texts: Sequence[QueryAndDocument] | np.ndarray | Column, **settings: Unpack[PredictSettings]
    ) -> Vectors: ...

    @overload
    def predict(
        self, texts: Iterable[QueryAndDocument], **settings: Unpack[PredictSettings]
    ) -> Iterator[np.float32]: ...

    def predict(self, texts: Any, *, batch_size: int | None = None, show_progress_bar: bool | None = None,
                long_texts: str = "truncate") -> Any:  # fmt: skip
        """Return the score of each pair (query, document): the probability that the document is relevant.

        One pair gives a number, a list of pairs an array [N]. A list of two texts is a pair, too. `batch_size` and
        `show_progress_bar` are those of `Embedder.encode`, and `long_texts` that of `rank`.

        >>> model.predict([("the cat", "the mat"), ("the cat", "cats")]).shape
        (2,)
        """
        check_batch_options(batch_size, show_progress_bar)
        if isinstance(texts, list) and len(texts) == 2 and all(isinstance(text, str) for text in texts):
            texts = tuple(texts)
        score_chunk = make_score_function(self, long_texts)

        def predict_chunk(chunk: Sequence) -> Iterator[np.float32]:
            return (np.float32(score) for score, _ in score_chunk([as_pair(item) for item in chunk]))

        def gather(scores: list) -> Vectors:
            return np.array(scores, np.float32)

        return map_texts(texts, predict_chunk, gather, batch_size or 0, show_progress_bar)

    def rank(
        self, query: str, documents: Sequence[str], top_k: int | None = None, return_documents: bool = False, *,
        min_precision: float | None = None, long_texts: str = "truncate",
    ) -> list[Ranked]:  # fmt: skip
        """Rank documents by their relevance to a query, best first; return the `top_k` ones, or all by default.

        With `min_precision`, which needs a calibrated model, return only documents so probable that this share of them
        is relevant. `return_documents` adds their texts. If a pair is too long, its document is truncated, with a
        warning. With `long_texts="windows"` it is read in windows instead, and the most relevant window counts.

        >>> [document["corpus_id"] for document in model.rank("the cat", ["the mat", "cats"], top_k=1)]
        [0]
        """
        if top_k is not None:
            check_number(top_k, "top_k", is_whole=True, allowed=Range(1))
        check_flag(return_documents, "return_documents")
        if isinstance(documents, str):
            raise BertJaxError("documents must be a list of texts, not one text")
        documents = list(ordered_texts(documents))
        ranked = rank_documents(self, query, documents, min_precision=min_precision, long_texts=long_texts)
        best: list[Ranked] = [{"corpus_id": index, "score": score} for index, score in ranked[:top_k]]
        for document in best if return_documents else ():
            document["text"] = documents[document["corpus_id"]]
        return best


def as_pair(item):
    """Return a pair as a tuple, and refuse anything else."""
    if not (isinstance(item, list | tuple) and len(item) == 2):
        raise BertJaxError(f"expected pairs (query, document), not {item!r:.60}")
    return tuple(item)


def make_score_function(
    model: Runner, long_texts: str = "truncate", truncated: TruncationCounter | None = None
) -> Callable[[Sequence], Iterator[tuple[float, float]]]:
    """Return the function that computes the score and the logit of each pair of a list; MaxSim is both."""
    check_cross_encoder(model, "this model")
    if model.layout.multi_vector:
        return score_by_tokens(model, long_texts, truncated)
    kind = model.require_kind(WholeTextKind.heads, "rank")
    compute_outcomes = OutcomePipeline(model, kind, long_texts, truncated)

    def score_chunk(chunk: Sequence) -> Iterator[tuple[float, float]]:
        for raw, _ in compute_outcomes(chunk):
            result, _ = kind.decoder.result_and_confidence(raw, model.calibration)
            yield float(result), float(np.ravel(raw)[0])

    return score_chunk


def score_by_tokens(
    model: Runner, long_texts: str, truncated: TruncationCounter | None
) -> Callable[[Sequence], Iterator[tuple[float, float]]]:
    score = pair_scorer(model, long_texts, truncated)
    return lambda chunk: ((number, number) for number in score(chunk))


def pair_counter(model: Runner) -> TruncationCounter:
    """Return the counter of the pairs of a query and a document that a model truncates."""
    longest = model.config.max_position_embeddings
    settings = model.layout.multi_vector
    return TruncationCounter(settings.longest(DOCUMENT, longest) if settings else longest)


def rank_documents(
    model: Runner,
    query: str,
    documents: Sequence[str],
    *,
    min_precision: float | None = None,
    long_texts: str = "truncate",
    truncated: TruncationCounter | None = None,
) -> list[tuple[int, float]]:
    """Return the index and the score of each document, best first, as `Reranker.rank` does, also by a multi-vector
    embedder.

    Truncated pairs are counted in `truncated`; without it there is a warning.
    """
    if not isinstance(query, str):
        raise BertJaxError(f"the query must be a text, not {type_name(query)}; rank one query at a time")
    if not query.strip():
        raise BertJaxError("the query is blank; give a text to rank documents for")
    score_chunk = make_score_function(model, long_texts, truncated)
    min_confidence: MinConfidence = None
    if min_precision is not None:
        if model.layout.multi_vector:
            raise BertJaxError(
                "min_precision needs probabilities, and a multi-vector embedder gives sums of similarities; leave it "
                "out"
            )
        kind = model.require_kind(WholeTextKind.heads, "rank")
        min_confidence = kind.decoder.confidence_threshold(model.calibration, min_precision)
    scores = map_texts([(query, document) for document in documents], score_chunk)
    # Sort by logits, because probabilities near 1 are equal in floating point.
    order = sorted(range(len(scores)), key=lambda i: (-scores[i][1], i))
    return [(i, scores[i][0]) for i in order if not abstains(scores[i][0], min_confidence)]


def check_cross_encoder(model: Runner, name: object) -> None:
    """Refuse a model that scores no pairs, neither by a head nor by the vectors of their tokens, and a model with
    several scores."""
    if model.layout.multi_vector:
        return
    remedy = "`bert-jax train --config rerank` makes one"
    if not set(model.layout.heads) & set(WholeTextKind.heads):
        raise BertJaxError(f"{name} is not a cross-encoder; {remedy}")
    if (count := len(model.labels)) != 1:
        raise BertJaxError(
            f"{name} gives {count} numbers for a pair of texts, and a cross-encoder gives one (num_labels: 1); {remedy}"
        )
