"""`labels`: draws from published data sets, and how learners stand to each other."""

from collections import Counter

import numpy as np
import pytest

from bert_jax.core.errors import BertJaxError
from tests.bench import few_labels, learners
from tests.bench.few_labels import Cell, compare_default, draw_examples, measure_labels, results_table


def test_a_draw_has_so_many_of_each_class():
    known = [((f"text {n}",), "often" if n % 5 else "rare") for n in range(200)]
    rows = [draw_examples(known, Cell("sst2", 8, draw), np.random.default_rng(draw)) for draw in (0, 0, 1)]
    assert Counter(label for _, label in rows[0]) == {"often": 8, "rare": 8}
    assert rows[0] == rows[1] != rows[2]


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


def test_what_was_measured_is_not_measured_again(tmp_path, monkeypatch):
    folder = tmp_path / "data/glue-sst2"
    folder.mkdir(parents=True)
    rows = ["sentence\tlabel", *(f"text number {n}\t{n % 2}" for n in range(60))]
    for name in ("train", "dev"):
        (folder / f"{name}.tsv").write_text("\n".join(rows) + "\n")
    tasks = []

    def guess(task, init):
        tasks.append(task)
        return task.outcomes([np.array([0.4, 0.6])] * len(task.test))

    monkeypatch.setitem(learners.LEARNERS, "regression", learners.Learner(guess))
    of_one_size = few_labels.DataSet("classify", few_labels.sst2, (8,))
    monkeypatch.setitem(few_labels.SETS, "sst2", of_one_size)
    given = (str(tmp_path / "data"), "model", str(tmp_path / "out"), ["sst2"], ["regression"])
    assert "| sst2 | 8 | 1 | 0.500 (0.100) |" in measure_labels(*given, 1)
    assert "| sst2 | 8 | 2 | 0.500 (0.100) |" in measure_labels(*given, 2)
    assert [task.directory.name for task in tasks] == ["sst2-8-0", "sst2-8-1"]
    assert [len(task.train) for task in tasks] == [16, 16]
    assert "| sst2 | 8 | 1 | 0.500 (0.100) |" in measure_labels(given[0], "another model", *given[2:], 1)
    assert len(tasks) == 3 and "| sst2 | 8 | 2 |" in measure_labels(*given, 1), (
        "results of the one model and of the other"
    )
    with pytest.raises(BertJaxError, match='no learner "regresion"; did you mean "regression"'):
        measure_labels(*given[:4], ["regresion"], 1)
