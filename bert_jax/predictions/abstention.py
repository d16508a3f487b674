"""When a model abstains: below a confidence that was chosen for a precision, of all predictions or of single labels."""

from collections.abc import Mapping

Precision = float | Mapping[str, float]  # of all predictions, or of those of each named label
MinConfidence = float | Mapping[str, float] | None  # the lowest that is kept, of all or of each named label


def abstains(score: float, min_confidence: MinConfidence, label: str = "") -> bool:
    """Return whether the model abstains from a prediction with this score, and with this label if it is one."""
    if isinstance(min_confidence, Mapping):
        return score < min_confidence.get(label, 0)
    return min_confidence is not None and score < min_confidence


def abstention_fields(score: float, min_confidence: MinConfidence, label: str = "") -> dict[str, bool]:
    return {} if min_confidence is None else {"abstained": abstains(score, min_confidence, label)}
