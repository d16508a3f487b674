"""What a type checker knows of the results of each class: for one text, a list and a stream."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import bert_jax
from bert_jax import (
    Answer,
    Classifier,
    Embedder,
    Encoder,
    Hit,
    Label,
    MaskedLM,
    PseudoLogLikelihood,
    QuestionAnswerer,
    Reranker,
    Span,
    Tagger,
)

Vectors = NDArray[np.float32]
ONE, PAIR, LISTED = "a text", ("a query", "a document"), ["a text"]


def stream() -> Iterator[str]:
    yield ONE


def of_functions(directory: Path) -> None:
    model = bert_jax.finetune(directory, LISTED, ["a label"], method="linear_probe").model
    assert isinstance(model, Classifier)
    float(bert_jax.evaluate(model, directory)["metrics"]["accuracy"])
    index = bert_jax.Index.build(LISTED, directory, model=directory)
    index.add([{"id": "new", "text": ONE}])
    index.remove(["0"])
    assert_type(index.search(ONE, top_k=3), list[Hit])


def of_encoders(encoder: Encoder, embedder: Embedder) -> None:
    for model in (encoder, embedder):
        assert_type(model.encode(ONE), Vectors)
        assert_type(model.encode(LISTED), Vectors)
        assert_type(model.encode(stream()), Iterator[Vectors])
    assert_type(embedder.encode(LISTED, "query", batch_size=3), Vectors)
    assert_type(embedder.encode_query(ONE), Vectors)
    assert_type(embedder.encode_document(stream(), truncate_dim=3), Iterator[Vectors])
    assert_type(encoder.tokenize(PAIR).input_ids, list[int])
    assert_type([encoding.offsets for encoding in encoder.tokenize(stream())], list[list[tuple[int, int]]])
    assert_type(encoder.hidden_states(PAIR), Vectors)
    assert_type(encoder.hidden_states(LISTED, layers="all"), list[Vectors])
    assert_type(encoder.attentions(stream(), layers=-1), Iterator[Vectors])


def of_classifiers(classifier: Classifier) -> None:
    assert_type(classifier.classify(ONE), Label)
    assert_type(classifier.classify([PAIR]), list[Label])
    assert_type(classifier.classify(stream()), Iterator[Label])
    assert_type(classifier.classify(ONE, min_precision=0.9), Any)  # None if the model abstains
    assert_type(classifier.predict(ONE), Any)
    assert_type(classifier.predict(stream()), Iterator[Any])
    assert_type(classifier.predict_proba(LISTED), Vectors)
    assert_type(classifier.predict_proba(stream()), Iterator[Vectors])
    assert_type(classifier.in_distribution_p_value(ONE), float)
    assert_type(classifier.in_distribution_p_value(LISTED), NDArray[np.float64])
    assert_type(classifier.in_distribution_p_value(stream()), Iterator[float])


def of_rerankers(reranker: Reranker) -> None:
    assert_type(reranker.predict(PAIR), np.float32)
    assert_type(reranker.predict(["a query", "a document"]), np.float32)
    assert_type(reranker.predict([PAIR], batch_size=3), Vectors)
    assert_type(reranker.predict(iter([PAIR])), Iterator[np.float32])
    reranker.predict_proba  # type: ignore[attr-defined]  # noqa: B018


def of_taggers(tagger: Tagger) -> None:
    assert_type(tagger.tag(ONE), list[Span])
    assert_type(tagger.tag(LISTED), list[list[Span]])
    assert_type(tagger.tag(stream()), Iterator[list[Span]])
    assert_type(tagger.tag_words(["two", "words"]), list[str])
    assert_type(tagger.tag_words([["two", "words"], ["one"]]), list[list[str]])
    assert_type(tagger.tag_words(text.split() for text in stream()), Iterator[list[str]])


def of_question_answerers(answerer: QuestionAnswerer) -> None:
    assert_type(answerer.answer("a question", ONE), Answer | None)
    assert_type(answerer.answer("a question", LISTED), list[Answer | None])
    assert_type(answerer.answer(LISTED, ONE), list[Answer | None])
    assert_type(answerer.answer(stream(), stream(), longest=3), Iterator[Answer | None])


def of_masked_lms(masked: MaskedLM) -> None:
    assert_type(masked.pseudo_log_likelihood(ONE), PseudoLogLikelihood)
    assert_type(masked.pseudo_log_likelihood(LISTED), list[PseudoLogLikelihood])
    assert_type(masked.pseudo_log_likelihood(stream()), Iterator[PseudoLogLikelihood])
    assert_type(masked.fill_mask(LISTED), list[Any])  # by the masks of a text and by `steps`
    assert_type(masked.fill_mask(stream(), top_k=1), Iterator[Any])
