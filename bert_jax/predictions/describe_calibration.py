"""What a calibration did, in words."""

from bert_jax.predictions.calibration import Calibration
from bert_jax.predictions.kind import Kind
from bert_jax.predictions.selective import highest_precision


def describe_calibration(kind: Kind, calibration: Calibration) -> str:
    """Describe a calibration in one line."""
    if calibration.keeps_probabilities:
        error = f"expected calibration error {calibration.error_before:.4f}"
        fit = f"probabilities stay as they are, because rescaling did not improve them; {error}"
    else:
        temperature = kind.describe_temperature(calibration)
        fit = f"{temperature}{', ' * bool(temperature)}{calibration.describe_errors()}"
    best = highest_precision(calibration.levels)
    promise = f"--min-precision can be {best:g} at most" if best else "no precision can be guaranteed"
    return f"calibrated on {calibration.examples:,} examples: {fit}; {promise}"
