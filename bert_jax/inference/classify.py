"""Labels for whole texts, or for pairs of them."""

from bert_jax.inference.runner import Runner
from bert_jax.predictions.whole_texts import Label, WholeTexts

__all__ = ["Label", "classify"]


def classify(
    model: Runner, texts, *, scores: bool = False, long: str = "cut", precision: float | None = None
):
    """The best `Label` of a text or pair, or with `scores` the probability of every label.

    A model of several labels at once gives the list of those above their thresholds (one half, if it was not
    calibrated); a model of one number gives it. Longer texts are truncated, with a warning, or with long="windows" read
    in windows whose logits are averaged. With `precision=0.95` the result is None where a calibrated model is not
    confident enough for so many to be right. An empty text has a label too; only in files is an empty cell refused.

    >>> [label.label for label in model.classify(["the cat", ("the cat", "the mat")])]
    ['good', 'good']
    """
    kind, calibration = model.kind_for(WholeTexts.heads, "classify"), model.calibration
    enough = None if precision is None else kind.floor(calibration, precision)

    def read(raw):
        if scores:
            return kind.probabilities(raw, calibration)
        result, confidence = kind.result(raw, calibration)
        return result if enough is None or confidence >= enough else None

    return model.outcomes(kind, texts, read, long)
