"""`bench predict`: everyone computes the same, and the figures are of what was measured."""

import pytest

import bert_jax
from bert_jax.bench import predict
from bert_jax.errors import BertJaxError
from bert_jax.predictions import calibration
from bert_jax.predictions.calibration import Calibration
from test_evaluate import TEXTS
from test_hub import write


class Clock:
    """A runner whose texts take a hundredth of a second each, or ten times that."""

    def __init__(self, run, slow=1.0):
        self.run_texts, self.slow, self.calls = run, slow, 0

    def run(self, texts, calls=1, pause=0.3):
        self.calls += 1
        return self.run_texts(texts), 0.01 * self.slow * len(texts), 0.005 * len(texts)


@pytest.mark.slow
def test_everyone_gives_the_same_logits_and_is_timed(tmp_path):
    pytest.importorskip("onnxruntime"), pytest.importorskip("transformers")
    write(tmp_path, heads=("classify",), labels=("no", "yes", "maybe"))
    # Neither transformers nor the comparison of logits minds a calibration.
    calibration.save(tmp_path, Calibration("classes", ("no", "yes", "maybe"), (2.0,)))
    runners = {
        name: Clock(contender(str(tmp_path)), slow=1 + 9 * (name == "transformers"))
        for name, contender in predict.CONTENDERS.items()
    }
    found = predict.measured(runners, TEXTS, rounds=2)
    assert max(one["apart"] for one in found.values()) < 1e-5
    assert found["transformers"]["ours_is"] == pytest.approx(10)
    for name, one in found.items():
        each = 100 if name == "transformers" else 10
        assert [one[f"p{p}_ms"] for p in (50, 90, 99)] == pytest.approx([each] * 3)
        assert one["texts_per_second"] == pytest.approx(1000 / each) and one["cpu_ms"] == pytest.approx(5)
    assert {runner.calls for runner in runners.values()} == {1 + 2 + 2 * len(TEXTS)}


def test_a_model_that_is_no_classifier(tmp_path):
    write(tmp_path)
    with pytest.raises(BertJaxError, match='bench predict needs the head "classify"'):
        predict.report(str(tmp_path), [], None)
    assert bert_jax.load(tmp_path).labels == ()
