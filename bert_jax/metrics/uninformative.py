"""Whether a metric shows that the predictions do not depend on the texts."""

from collections.abc import Mapping

# About 0 if the predictions do not depend on the text.
INFORMATIVE = ("matthews", "spearman", "f1_micro", "f1")
NEGLIGIBLE = 0.02  # an informative score below this counts as 0


def uninformative_metric(measured: Mapping[str, float]) -> str:
    """Name the metric that shows that the predictions do not depend on the texts; "" if none does.

    >>> uninformative_metric({"accuracy": 0.9, "matthews": 0.01})
    'matthews 0.010: predictions look constant or random'
    """
    name = next((name for name in INFORMATIVE if name in measured), None)
    if name is None or abs(measured[name]) >= NEGLIGIBLE:
        return ""
    return f"{name} {measured[name]:.3f}: predictions look constant or random"
