"""What training the encoder is expected to gain over a probe."""

from types import SimpleNamespace

import numpy as np
import pytest

from bert_jax.finetuning.choose_method import MIN_GAIN, Gain, gain_after_folds, pick_best, usual_gain
from bert_jax.metrics.intervals import Interval
from bert_jax.metrics.score_sums import ScoreSums

MEASURED = Interval(-0.02, -0.1, 0.06)
EXAMPLES = [object() for _ in range(40)]


def test_what_is_measured_precisely_replaces_what_was_believed():
    assert Gain(0.1, 0.05).given(MEASURED, 1e-4).mean == pytest.approx(-0.02, abs=1e-5)
    assert Gain(0.1, 0.05).given(MEASURED, 1e4).mean == pytest.approx(0.1)
    assert Gain(0.1, 0.03).given(MEASURED, 0.03).spread == pytest.approx(0.03 / 2**0.5)


def test_a_share_of_the_errors_of_the_probe_may_be_gained():
    def probe_of(f1: float):
        sums = SimpleNamespace(scores={"f1": f1, "accuracy": 0.9})
        return SimpleNamespace(score_sums=sums, kind=SimpleNamespace(best_metric="f1"), examples=range(16))

    probe = probe_of(0.5)
    gain = usual_gain("contrastive", probe, compares=False)
    assert (gain.mean, gain.spread) == (0.1, 0.1)
    assert usual_gain("finetune", probe, compares=True).mean == -0.05
    perfect = usual_gain("contrastive", probe_of(1.0), compares=False)
    assert (perfect.mean, perfect.spread) == (pytest.approx(0.2 / 18), 0.05), "all of 16 right may be chance"


def test_the_largest_gain_wins_and_the_probe_where_none_is_worth_it():
    worth, more, less = Gain(2 * MIN_GAIN, 0.1), Gain(3 * MIN_GAIN, 0.1), Gain(MIN_GAIN, 0.1)
    assert pick_best({"contrastive": worth, "finetune": more}) == "finetune"
    assert pick_best({"contrastive": worth, "finetune": worth}) == "contrastive"
    assert pick_best({"contrastive": less}) == pick_best({}) == "linear_probe"


def test_the_error_counts_that_the_models_of_folds_learn_from_the_same_examples():
    def outcomes(right: int):
        rows = np.array([[float(n < right), 1.0] for n in range(40)])
        sums = ScoreSums(rows, lambda sums: {"accuracy": sums[..., 0] / sums[..., 1]})
        return SimpleNamespace(
            score_sums=sums, kind=SimpleNamespace(best_metric="accuracy"), examples=EXAMPLES
        )

    few, many = (gain_after_folds(Gain(0, 1), outcomes(20), outcomes(26), learnt) for learnt in (32, 1e9))
    assert few.measured.value == pytest.approx(0.15) and few.mean < many.mean < 0.15
    # For a belief of this spread the mean tells the error.
    error = {gain: (0.15 / gain.mean - 1) for gain in (few, many)}
    assert error[few] / error[many] == pytest.approx(2.25, rel=1e-3)
