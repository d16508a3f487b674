"""Classifiers: one class, several labels or a number for a text or a pair of texts, with scikit-learn's names."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, cast, overload

import numpy as np
from numpy.typing import NDArray

from bert_jax.core.errors import BertJaxError
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.streaming import TextOrPair, Texts, TextStream, Vectors, map_texts, vector_stacker
from bert_jax.inference.text_outcomes import OutcomePipeline
from bert_jax.inference.zero_shot import HYPOTHESIS, CandidateLabels, EntailmentPipeline, ZeroShotLabels
from bert_jax.predictions.calibration import Calibration
from bert_jax.predictions.kind import Kind
from bert_jax.predictions.selective import Precision
from bert_jax.predictions.whole_text_kind import Label, WholeTextDecoder, WholeTextKind
from bert_jax.text.truncation import TruncationCounter

__all__ = ["Classifier", "Label"]


class Classifier(Encoder):
    """Predicts what one class, several labels or a number is, for each text or pair.

    Texts that are too long are truncated, with a warning; with `long_texts="windows"` they are read in windows, and the
    logits are averaged. A blank text is refused, as a blank cell of a file is.
    """

    @property
    def text_kind(self) -> Kind:
        """The kind of what it predicts."""
        return self.require_kind(WholeTextKind.heads, type(self).__name__)

    @overload
    def predict(self, texts: TextOrPair | Texts, *, long_texts: str = ...) -> Any: ...

    @overload
    def predict(self, texts: TextStream, *, long_texts: str = ...) -> Iterator[Any]: ...

    def predict(self, texts: Any, *, long_texts: str = "truncate") -> Any:
        """Return the class of each text. A model of several labels gives an array of 0 and 1 [N, labels], in the order
        of `labels`, and a regression model an array of numbers [N].

        >>> model.predict(["the cat", ("the cat", "the mat")])
        ['good', 'good']
        """
        decoder = self._decoder
        return self._map_outcomes(
            texts, self._outcomes(long_texts), decoder.predicted_value, decoder.gather_values
        )

    @overload
    def predict_proba(self, texts: TextOrPair | Texts, *, long_texts: str = ...) -> Vectors: ...

    @overload
    def predict_proba(self, texts: TextStream, *, long_texts: str = ...) -> Iterator[Vectors]: ...

    def predict_proba(self, texts: Any, *, long_texts: str = "truncate") -> Any:
        """Return the probability of each label [N, labels], in the order of `labels`; [labels] for one text.

        >>> dict(zip(model.labels, model.predict_proba("the cat").round().tolist()))
        {'bad': 0.0, 'good': 1.0}
        """
        stack_rows = vector_stacker(len(self.labels))
        return self._map_outcomes(texts, self._outcomes(long_texts), self._decoder.probabilities, stack_rows)

    @overload
    def classify(self, texts: TextOrPair, *, long_texts: str = ...) -> Label: ...

    @overload
    def classify(self, texts: Texts, *, long_texts: str = ...) -> list[Label]: ...

    @overload
    def classify(self, texts: TextStream, *, long_texts: str = ...) -> Iterator[Label]: ...

    @overload
    def classify(self, texts: Any, *, long_texts: str = ..., min_precision: Precision | None) -> Any: ...

    def classify(
        self, texts: Any, *, long_texts: str = "truncate", min_precision: Precision | None = None
    ) -> Any:
        """Return the best `Label` of each text, with its probability and its margin.

        A model of several labels returns the list of labels above their thresholds (0.5 if it was not calibrated). With
        `min_precision=0.95`, which needs a calibrated model, a result is None if the model is not confident enough, so
        that 95% of the other results are correct. `min_precision={"spam": 0.99}` does so for single labels: of the
        results that are "spam", 99% are correct, and other labels are kept; of several labels, those that are not
        confident enough are left out. Each guarantee fails with a probability of at most 5%.

        >>> [label.label for label in model.classify(["the cat", ("the cat", "the mat")])]
        ['good', 'good']
        """
        decoder = self._decoder
        decoder.require_labels("classify")
        min_confidence = (
            None if min_precision is None else decoder.confidence_threshold(self.calibration, min_precision)
        )

        def keep_label(raw: Any, calibration: Calibration) -> Any:
            return decoder.keep_confident(*decoder.result_and_confidence(raw, calibration), min_confidence)

        return self._map_outcomes(texts, self._outcomes(long_texts), keep_label)

    @overload
    def zero_shot(
        self, texts: str, labels: ZeroShotLabels, *, hypothesis_template: str = ..., multi_label: bool = ...
    ) -> list[Label]: ...

    @overload
    def zero_shot(
        self, texts: Texts, labels: ZeroShotLabels, *, hypothesis_template: str = ..., multi_label: bool = ...
    ) -> list[list[Label]]: ...

    @overload
    def zero_shot(
        self,
        texts: TextStream,
        labels: ZeroShotLabels,
        *,
        hypothesis_template: str = ...,
        multi_label: bool = ...,
    ) -> Iterator[list[Label]]: ...

    def zero_shot(
        self, texts: Any, labels: Any, *, hypothesis_template: str = HYPOTHESIS, multi_label: bool = False
    ) -> Any:
        """Return labels that the model was not trained for, each with its probability, best first, for each text.

        The model must predict entailment: it reads each text with a sentence about each label, `hypothesis_template`,
        and the scores are those of transformers' pipeline. A mapping has a description for each label, which then
        stands in the sentence instead of the label. With `multi_label` the labels are independent of each other. Long
        texts are truncated, with a warning.

        >>> [label.label for label in model.zero_shot("the cat", "cats, mats")]
        ['mats', 'cats']
        """
        candidates = CandidateLabels.read(labels, hypothesis_template, multi_label)
        pipeline = EntailmentPipeline(self, candidates)
        return self._map_outcomes(texts, pipeline, lambda raw, _: candidates.rank(raw))

    @property
    def _decoder(self) -> WholeTextDecoder:
        return cast(WholeTextDecoder, self.text_kind.decoder)

    def _outcomes(self, long_texts: str) -> OutcomePipeline:
        return OutcomePipeline(self, self.text_kind, long_texts)

    def _map_outcomes(
        self,
        texts: Any,
        compute_outcomes: OutcomePipeline,
        read: Callable[[Any, Calibration], Any],
        gather: Callable = list,
    ) -> Any:
        """Return what `read` makes of the raw output for each text; refuse blank texts."""
        numbers = count(1)

        def read_chunk(chunk: Sequence) -> Iterator:
            for text, number in zip(chunk, numbers, strict=False):
                parts = text if isinstance(text, tuple | list) else (text,)
                if any(isinstance(part, str) and not part.strip() for part in parts):
                    raise BertJaxError(
                        f"text {number:,} is blank, so there is nothing to classify; leave it out"
                    )
            return (read(raw, self.calibration) for raw, _ in compute_outcomes(chunk))

        return map_texts(texts, read_chunk, gather)

    @overload
    def in_distribution_p_value(self, texts: TextOrPair) -> float: ...

    @overload
    def in_distribution_p_value(self, texts: Texts) -> NDArray[np.float64]: ...

    @overload
    def in_distribution_p_value(self, texts: TextStream) -> Iterator[float]: ...

    def in_distribution_p_value(self, texts: Any) -> Any:
        """Return the share of known texts that are at most as similar to the training texts as this text.

        A share of 0.01 means that about one known text in a hundred is as dissimilar as this text, or more so. Return a
        number for one text, an array for a list, or an iterator for any other iterable. The known texts are those of
        the training data that the model was not trained on. Only the beginning of a long text is used.

        >>> (model.in_distribution_p_value(["the cat", "the mat"]) < 0.01).tolist()
        [False, False]
        """
        self.scope.check_usable()
        uncounted = TruncationCounter(self.config.max_position_embeddings)
        compute_outcomes = OutcomePipeline(self, self.kind, truncated=uncounted, compares=True)

        def compare_chunk(chunk: Sequence) -> Iterator[float]:
            return (float(self.scope.p_value(similarity)) for _, similarity in compute_outcomes(chunk))

        return map_texts(texts, compare_chunk, np.array)
