"""A run that goes on takes the attention kernels that it began with, whatever is kept or would be faster now."""

import shutil

import pytest

from bert_jax.models.kernels import kernel_choice
from bert_jax.training.step import StepCache
from tests.support.fake_kernel import plant
from tests.support.tiny_runs import assert_same_run, continue_run


@pytest.mark.ci
def test_a_run_resumes_with_the_kernels_of_its_record(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(kernel_choice, "kept_folder", lambda: None)
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    plant(monkeypatch, (1, 2))
    output = continue_run(whole, capsys)
    for inputs in ("20 tokens, dropout 0.1", "20 tokens"):  # of the step, and of the evaluation
        assert output.count(f"attention: short, checked, 2.0 x xla ({inputs})\n") == 1
    shutil.copytree(whole, resumed)
    for step in (15, 20):
        shutil.rmtree(resumed / f"checkpoints/{step}")
    shutil.rmtree(resumed / "model")
    plant(monkeypatch, (2, 1))
    output = continue_run(resumed, capsys)
    assert "resuming at step 10" in output and "attention: short, checked, 2.0 x xla" in output
    assert_same_run(whole, resumed)


def test_runs_share_steps_only_if_these_take_the_recorded_kernels():
    cache, short, xla = StepCache(), {"a": {"kernel": "short"}}, {"a": {"kernel": "xla"}}
    assert cache.resuming(short) is cache is cache.resuming({}) is cache.resuming({"b": {"kernel": "xla"}})
    other = cache.resuming(xla)
    assert other is not cache and other.kernels.record() == xla and cache.kernels.record()["a"] == short["a"]
