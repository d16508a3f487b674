"""Rank documents by their relevance to a query."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bert_jax.core.config import Range, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.inference.runner import Runner
from bert_jax.inference.streaming import map_texts, ordered_texts
from bert_jax.inference.text_outcomes import make_outcome_function
from bert_jax.predictions.whole_text_kind import WholeTextKind
from bert_jax.text.truncation import TruncationCounter


@dataclass(frozen=True)
class Ranked:
    index: int  # of the document in the input list
    score: float  # the probability that the document is relevant; for a regression model, its number
    document: str


def rank(
    model: Runner,
    query: str,
    documents: Sequence[str],
    *,
    top: int | None = None,
    precision: float | None = None,
    long_texts: str = "truncate",
    truncated: TruncationCounter | None = None,
) -> list[Ranked]:
    """Rank documents with a cross-encoder of one logit, best first; return the `top` ones, or all by default.

    With `precision`, which needs a calibrated model, return only documents so probable that this share of them is
    relevant. If a pair is too long, its document is truncated, with a warning or counted in `truncated`. With
    long_texts="windows" the document is read in windows instead, and the most relevant window counts.

    >>> [document.index for document in model.rank("the cat", ["the mat", "cats"], top=1)]
    [0]
    """
    if not isinstance(query, str):
        raise BertJaxError(
            f"the query must be a text, not a {type(query).__name__}; rank one query at a time"
        )
    if isinstance(documents, str):
        raise BertJaxError("documents must be a list of texts, not one text")
    documents = list(ordered_texts(documents))
    if top is not None:
        check_number(top, "top", is_whole=True, allowed=Range(1))
    check_cross_encoder(model, "this model")
    kind, calibration = model.require_kind(WholeTextKind.heads, "rank"), model.calibration
    min_score = None if precision is None else kind.confidence_threshold(calibration, precision)

    compute_outcomes = make_outcome_function(model, kind, long_texts, truncated)

    def score_chunk(chunk) -> Iterator[tuple[float, float]]:
        for raw, _ in compute_outcomes(chunk):
            result, _ = kind.result_and_confidence(raw, calibration)
            yield float(result), float(np.ravel(raw)[0])

    scores = map_texts([(query, document) for document in documents], score_chunk)
    # Sort by logits, because probabilities near 1 are equal in floating point.
    order = sorted(range(len(scores)), key=lambda i: (-scores[i][1], i))
    ranked = [Ranked(i, scores[i][0], documents[i]) for i in order]
    return [document for document in ranked if min_score is None or document.score >= min_score][:top]


def check_cross_encoder(model: Runner, name: object) -> None:
    """Refuse a model without a head that scores pairs, such as an embedder, and a model with several scores."""
    remedy = "`bert-jax train --config rerank` makes one"
    if not set(model.layout.heads) & set(WholeTextKind.heads):
        raise BertJaxError(f"{name} is not a cross-encoder; {remedy}")
    if (count := len(model.labels)) != 1:
        raise BertJaxError(
            f"{name} gives {count} numbers for a pair of texts, and a cross-encoder gives one (num_labels: 1); {remedy}"
        )
