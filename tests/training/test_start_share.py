"""The share of the start in a model that went on: what the validation set shows beyond chance decides it."""

import numpy as np
import pytest

from bert_jax.metrics.intervals import difference_error, difference_intervals
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.training.start_share import SHARES, MeasuredShare, choose_share


def measured(rightness) -> MeasuredShare:
    rows = np.stack([rightness, np.ones(len(rightness))], 1).astype(float)
    sums = ScoreSums(rows, lambda sums: {"accuracy": sums[..., 0] / sums[..., 1]})
    return MeasuredShare(sums.scores, sums)


def first_right(count: int) -> MeasuredShare:
    """Of 100 examples the first so many are right, or the last if the number is negative."""
    examples = np.arange(100)
    return measured(examples < count if count > 0 else examples >= 100 + count)


@pytest.mark.parametrize(
    ("given", "right", "share"),
    [
        (-1, (90, 89, 70, 60, 50), 0.0),
        (-1, (40, 60, 80, 90, 50), 0.75),
        (-1, (-74, -73, -72, -71, 70), 0.75),  # four more of a hundred are chance, if they are others
        (-1, (40, 50, 60, 70, 70), 0.75),
        (-1, (50, 60, 70, 80, 90), 1.0),
        (0.3, (90, 50), 0.3),
        (0.3, (-69, 70), 1.0),
        (0.3, (70, 70), 0.3),
    ],
)
def test_a_share_is_chosen_by_differences_beyond_chance(given, right, share):
    shares = SHARES if given < 0 else (given, 1.0)
    by_share = dict(zip(shares, map(first_right, right), strict=True))
    chosen = choose_share(by_share.__getitem__, "accuracy", given)
    assert (chosen.share, chosen.metrics) == (share, by_share[share].metrics)
    assert [chosen.values[f"accuracy_at_{share:g}"] for share in shares] == [abs(n) / 100 for n in right]


def test_the_clearest_gain_is_told():
    by_share = dict(zip(SHARES, map(first_right, (-60, 50, 53, 52, 50)), strict=True))
    line = choose_share(by_share.__getitem__, "accuracy", -1).values
    assert line["gain"] == pytest.approx(0.03) and 0 < line["standard_error"] < 0.03, "0.1 is less clear"


def test_the_error_of_a_difference_is_that_of_the_bootstrap():
    rng = np.random.default_rng(0)
    before = rng.random(200) < 0.6
    first, second = measured(before), measured(np.where(rng.random(200) < 0.2, rng.random(200) < 0.6, before))
    assert first.sums and second.sums
    interval = difference_intervals(first.sums, second.sums)["accuracy"]
    error = difference_error("accuracy", first.sums, second.sums)
    assert 0 < error == pytest.approx(interval.standard_error, rel=0.05)
