"""Labels for whole texts, or for pairs of them."""

from bert_jax.inference.runner import Runner
from bert_jax.inference.streaming import map_texts
from bert_jax.inference.text_outcomes import make_outcome_function
from bert_jax.predictions.whole_text_kind import Label, WholeTextKind

__all__ = ["Label", "classify"]


def classify(
    model: Runner,
    texts,
    *,
    scores: bool = False,
    long_texts: str = "truncate",
    precision: float | None = None,
):
    """Return the best `Label` of a text or a pair, or with `scores` the probability of every label.

    A multi-label model returns the list of labels above their thresholds (0.5 if the model was not calibrated); a
    regression model returns a number. Texts that are too long are truncated, with a warning; with long_texts="windows"
    they are read in windows, and the logits are averaged. With `precision=0.95`, which needs a calibrated model, a
    result is None if the model is not confident enough, so that 95% of the other results are correct. An empty text
    gets a label, too; only in files are empty cells refused.

    >>> [label.label for label in model.classify(["the cat", ("the cat", "the mat")])]
    ['good', 'good']
    """
    kind, calibration = model.require_kind(WholeTextKind.heads, "classify"), model.calibration
    min_confidence = None if precision is None else kind.confidence_threshold(calibration, precision)

    compute_outcomes = make_outcome_function(model, kind, long_texts)

    def classify_chunk(chunk):
        for raw, _ in compute_outcomes(chunk):
            if scores:
                yield kind.probabilities(raw, calibration)
            else:
                result, confidence = kind.result_and_confidence(raw, calibration)
                yield result if min_confidence is None or confidence >= min_confidence else None

    return map_texts(texts, classify_chunk)
