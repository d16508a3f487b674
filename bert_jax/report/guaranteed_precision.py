"""The rows of a report's tables of `--min-precision`: what can be guaranteed, and what it would have given here."""

from collections.abc import Iterator

import numpy as np

from bert_jax.metrics.intervals import wilson_interval
from bert_jax.predictions.calibration import Calibration
from bert_jax.predictions.report_data import ReportData
from bert_jax.predictions.selective import lowest_threshold

TARGET_PRECISIONS = (0.8, 0.9, 0.95, 0.99)
MAX_LABELS = 12  # the number of labels shown, the most frequent ones


def rows_of_all(calibration: Calibration, view: ReportData) -> Iterator[tuple[str, ...]]:
    """Yield a row for each precision: the threshold, and what is kept here and how precise that is."""
    for precision in TARGET_PRECISIONS:
        threshold = lowest_threshold(calibration.levels, precision)
        if threshold is None:
            yield f"{precision:g}", "cannot be guaranteed", "", "", ""
        else:
            kept = measure_kept(view.confidence, view.correct, threshold)
            yield f"{precision:g}", f"{threshold:.4f}", *kept


def rows_of_labels(calibration: Calibration, view: ReportData) -> Iterator[tuple[str, ...]]:
    """Yield rows for each label, one for each precision that can be guaranteed, or one that says that none can be."""
    shown = sorted(calibration.by_label, key=lambda known: -known.examples)[:MAX_LABELS]
    for known in shown:
        label, of_label, count = known.label, view.labels.name == known.label, 0
        confidence, correct = view.labels.confidence[of_label], view.labels.correct[of_label]
        true = view.counts.get(label, (0, 0, 0))[2]
        for precision in TARGET_PRECISIONS:
            threshold = lowest_threshold(known.levels, precision)
            if threshold is not None:
                count += 1
                hits = int((correct & (confidence >= threshold)).sum())
                kept = measure_kept(confidence, correct, threshold)
                recall = f"{hits / true:.4f}" if true else ""
                yield label, f"{precision:g}", f"{threshold:.4f}", *kept, recall
        if not count:
            yield label, "none can be guaranteed", "", "", "", "", ""


def measure_kept(confidence: np.ndarray, correct: np.ndarray, threshold: float) -> tuple[str, str, str]:
    """Return how many predictions are kept, their precision and its interval."""
    kept = confidence >= threshold
    count, right = int(kept.sum()), int(correct[kept].sum())
    share = f" ({kept.mean():.1%})" if len(kept) else ""
    number = f"{count:,} of {len(kept):,}{share}"
    if not count:
        return number, "", ""
    low, high = wilson_interval(right, count)
    return number, f"{right / count:.4f}", f"{low:.4f} to {high:.4f}"
