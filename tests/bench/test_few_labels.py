"""`labels`: draws from published data sets, and how learners stand to each other."""

import numpy as np
import pytest

from tests.bench import few_labels, learners
from tests.bench.few_labels import compare_default, results_table


def test_the_default_stands_to_the_best_other_by_paired_differences():
    def lines(learner: str, scores, errors) -> list[dict]:
        return [
            {"set": "sst2", "size": 8, "draw": draw, "learner": learner, "score": s, "calibration_error": e}
            for draw, (s, e) in enumerate(zip(scores, errors, strict=True))
        ]

    given = [*lines("default", (0.7, 0.8, 0.9), (0.1, 0.1, 0.1)), *lines("probe", (0.9, 0.9, 0.9), (0, 0, 0)),
             *lines("regression", (0.7, 0.7, 0.7), (0.3, 0.3, 0.3)),
             *lines("setfit", (0.7, 0.8, 0.8), (0.2, 0.2, 0.2))]  # fmt: skip
    by_learner = next(few_labels.group_results(given))[-1]
    best, difference, spread, calibration = compare_default(by_learner)
    assert (best, round(difference, 6), round(calibration, 6)) == ("setfit", round(0.1 / 3, 6), -0.1)
    assert spread == pytest.approx(np.std([0, 0, 0.1], ddof=1) / 3**0.5)
    text = results_table(given)
    assert "| sst2 | 8 | 3 | 0.800 (0.100) | 0.900 (0.000) | 0.700 (0.300) | 0.767 (0.200) |" in text
    assert "at most one standard error below the best other library in 1 of 1 comparisons" in text
    # A draw that one learner has not learnt from says nothing of how they stand, and one alone shows no spread.
    another = [*lines("default", (0, 0, 0, 0), (1,) * 4)[3:], *lines("setfit", (0, 0, 0, 0, 1), (1,) * 5)[4:]]
    assert results_table([*given, *another]).splitlines()[-3:] == text.splitlines()[-3:]
    assert "within" not in results_table([line for line in given if line["draw"] == 0])
    behind = results_table([*lines("default", (0.7, 0.7, 0.6), (0.3,) * 3), *given[6:]])
    assert "within" not in results_table([line for line in given if line["learner"] in learners.OURS]), (
        "nothing to compare"
    )
    assert (
        "in 0 of 1 comparisons, at most two in 1; its calibration error is the lowest or within 0.02 in 0."
        in behind
    )
