"""The rows of the guide's tables, from what was measured."""

import numpy as np
import pytest

from bert_jax.bench.timing import Turn
from tests.bench.comparison import Comparison, Row, dtype_ratios
from tests.bench.finetune import finetuning_rows
from tests.bench.texts import measure_texts, text_rows
from tests.bench.turns import Limits, Ratio

BUSY = {"cores": 2, "load": 0.5, "others": 0.9, "busy": True}


def test_a_row_holds_our_figures_and_the_ratios_of_each_dtype():
    ratios = {"float32": Ratio(1.5, 1.2, 1.9, 6), "bfloat16": Ratio(3.0, None, None, 1)}
    both = Row("embed", {"float32": "594", "bfloat16": "1,351"}, "torch 495", ratios, "texts/s")
    narrow = Row("embed", {"bfloat16": "1,351"}, unit="texts/s")
    comparison = Comparison([both, narrow], BUSY, ["a note"])
    lines = comparison.shown(as_json=False).splitlines()
    assert lines[0] == "|  | bert_jax | compared with | in float32 | in bfloat16 |"
    assert lines[2] == (
        "| embed | 594, in bfloat16 1,351 texts/s | torch 495 | 1.50 (1.20 to 1.90) (busy machine) | "
        "3.00 (one round, no interval) (busy machine) |"
    )
    assert lines[3] == "| embed | in bfloat16 1,351 texts/s |  |  |  |"
    assert lines[5] == "a note" and "BUSY" in lines[6]


def test_each_dtype_is_compared_with_the_others_round_by_round():
    seconds = {"bert_jax float32": [1.0, 2.0], "bert_jax bfloat16": [0.5, 1.0], "torch": [2.0, 4.0]}
    ratios = dtype_ratios(seconds, "torch")
    assert {dtype: ratio.median for dtype, ratio in ratios.items()} == {"float32": 2, "bfloat16": 4}


def test_a_fine_tuning_is_shown_with_scores_and_seconds_of_both_dtypes():
    runs = {
        "bert_jax float32": [({"f1": 0.80, "seconds": 50.0}, []), ({"f1": 0.82, "seconds": 50.0}, [])],
        "bert_jax bfloat16": [({"f1": 0.80, "seconds": 25.0}, []), ({"f1": 0.80, "seconds": 25.0}, [])],
        "transformers": [({"f1": 0.81, "seconds": 100.0}, []), ({"f1": 0.83, "seconds": 100.0}, [])],
    }
    (row,) = finetuning_rows("tags", "f1", runs)
    assert row.cells()[:3] == [
        "tags",
        "0.8100 in 50 s, in bfloat16 0.8000 in 25 s",
        "transformers 0.8200 in 100 s ± 0.0141",  # the standard error of the difference of the means
    ]
    assert [ratio.median for ratio in row.ratios.values()] == [pytest.approx(2), pytest.approx(4)]
    (alone,) = finetuning_rows("tags", "f1", {"bert_jax float32": runs["bert_jax float32"]})
    assert alone.other == "" and alone.ratios == {}


class Clock:
    """A contender whose texts take a hundredth of a second each, and the last one a second."""

    def __init__(self, slow: float):
        self.slow, self.calls = slow, 0

    def __call__(self, texts, alone):
        self.calls += 1
        seconds = [self.slow * (1.0 if text == texts[-1] else 0.01) for text in texts]
        return (seconds if alone else np.full(len(texts), self.slow)), Turn(sum(seconds), 0.0)


def test_latency_is_of_every_text_and_throughput_of_all():
    """p99 is that of the one slow text among many."""
    contenders, texts = {"bert_jax float32": Clock(1), "torch": Clock(10)}, [f"text {n}" for n in range(50)]
    together, alone, notes = measure_texts(contenders, texts, Limits(6, 0))
    batches, p50, p99 = text_rows("embed", together, alone, len(texts))
    assert (batches.ours, batches.other) == ({"float32": f"{50 / 1.49:,.0f}"}, "torch 3")
    assert (p50.ours, p50.other) == ({"float32": "10.0"}, "torch 100.0")
    assert float(p99.ours["float32"]) > 500
    for row in (batches, p50, p99):
        assert row.ratios == {"float32": Ratio(*[pytest.approx(10)] * 3, rounds=6)}
    assert notes == ["torch: outputs differ from bert_jax float32's by at most 9.0e+00"]
    assert {contender.calls for contender in contenders.values()} == {2 + 2 * 6}
