"""How much more a trained encoder is expected to score than a linear probe on the frozen one.

Before any fold is predicted, the expectation is what other data sets showed. Predictions out of fold move it as far as
their standard error allows.
"""

from dataclasses import dataclass

from bert_jax.finetuning.finetune_config import Method
from bert_jax.metrics.intervals import difference_intervals
from bert_jax.metrics.score_sums import INFORMATIVE, ScoreSums
from bert_jax.predictions.kind import Outcomes

MIN_GAIN = 0.005  # a smaller gain is not worth the larger model directory
MIN_TRIED_GAIN = 0.01  # a method that can hardly gain more is not worth the time of its folds

# The share of the probe's errors that training removes.
# Contrastive training: USUAL_SHARE - SKILL_SHARE x m / √n, for a probe with a Matthews correlation of m and n examples
# per class. Measured (and expected): SST-2 with 8, 16, 64, 256 per class 0.06, 0.01, 0.14, 0.19 (0.11, 0.11, 0.16,
# 0.20); ten emotions 0.15, 0.26, 0.26, 0.26 (0.16, 0.17, 0.19, 0.22); 28 emotions with 8 0.11 (0.19); 48 articles with
# 8 and 24 -0.09, 0.00 (-0.16, 0.01); 50 and 150 articles with 8 -0.52, -0.32 (-0.29, -0.27); 77 intents with 10 -0.15
# (-0.18).
# Fine-tuning, where each text or pair has one class: FINETUNED_SHARE. Measured: SST-2 with 16, 64 0.06, 0.20; ten and
# 28 emotions with 8 0.05, 0.05; 48 articles with 8, 24 0.01, 0.06; 50 and 150 articles with 8 0.05, 0.23; pairs of MRPC
# with 64, 256 0.03 (another draw -0.07), 0.10.
# Otherwise fine-tuning: USUAL_SHARE. Measured: tags of CoNLL-2003 0.20 to 0.32.
USUAL_SHARE, SKILL_SHARE, FINETUNED_SHARE = 0.25, 1.6, 0.07
SHARE_SPREAD = 0.1  # the root mean square of the differences above is 0.08


@dataclass(frozen=True)
class Gain:
    """The expected gain in score, and the standard deviation of what it may be."""

    mean: float
    spread: float
    measured: tuple[float, float] | None = None  # the difference out of fold, and its standard error

    def __str__(self) -> str:
        """
        >>> str(Gain(0.04, 0.03)), str(Gain(0.04, 0.03).given(0.1, 0.03))
        ('+0.040 ± 0.030', '+0.100 ± 0.030 (shrunk by what other data sets showed: +0.070 ± 0.021)')
        """
        expected = f"{self.mean:+.3f} ± {self.spread:.3f}"
        if self.measured is None:
            return expected
        difference, error = self.measured
        return f"{difference:+.3f} ± {error:.3f} (shrunk by what other data sets showed: {expected})"

    @property
    def is_worthwhile(self) -> bool:
        return self.mean > MIN_GAIN

    @property
    def may_be_worthwhile(self) -> bool:
        return self.mean + self.spread > MIN_TRIED_GAIN

    def given(self, difference: float, error: float) -> "Gain":
        """Return the expectation after a difference was measured with a standard error.

        >>> print(f"{Gain(0.04, 0.03).given(-0.02, 0.03).mean:.3f}")
        0.010
        """
        trust = self.spread**2 / (self.spread**2 + error**2)
        mean = self.mean + trust * (difference - self.mean)
        return Gain(mean, error * trust**0.5, measured=(difference, error))


def prior_gain(method: Method, probe: Outcomes, examples: int) -> Gain:
    """Return what other data sets let expect of a method, from the probe's predictions out of fold and the number of
    examples."""
    scores, kind = probe.score_sums.scores, probe.kind
    errors, share = 1 - scores[kind.best_metric], USUAL_SHARE
    if method == "contrastive":
        skill = next(scores[name] for name in INFORMATIVE if name in scores)
        share -= SKILL_SHARE * skill / (examples / len(kind.labels)) ** 0.5
    elif kind.supports_contrastive:
        share = FINETUNED_SHARE
    return Gain(errors * share, errors * SHARE_SPREAD)


def gain_after_folds(prior: Gain, probe: Outcomes, trained: Outcomes) -> Gain:
    """Return the expectation after some or all folds were predicted by both methods."""
    place = {id(example): i for i, example in enumerate(probe.examples)}
    sums, shared = probe.score_sums, [place[id(example)] for example in trained.examples]
    same = ScoreSums(sums.rows[shared], sums.compute_scores)
    measured = difference_intervals(same, trained.score_sums)[probe.kind.best_metric]
    # No error is smaller than one example that may fall otherwise.
    return prior.given(measured.value, max(measured.standard_error, 1 / len(shared)))
