"""A program that follows a run gets each of its measurements once, also where a resumed run makes them again."""

import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.runs import follow
from bert_jax.training.log import MetricsLog
from bert_jax.training.workdir import Workdir


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "SECONDS", 0.01)
    (tmp_path / "folds").mkdir()  # as of a run that has begun
    return Workdir(tmp_path)


def open_log(directory, step: int) -> MetricsLog:
    return MetricsLog(directory.path, directory.metrics, step, 30, quiet=False)


def test_a_run_that_is_resumed_is_followed_to_its_end_and_tells_each_step_once(directory):
    followed = bert_jax.follow(directory.path)
    log = open_log(directory, 0)
    for step in (10, 20):
        log.write_line("train", step, {"loss": step / 8, "accuracy": None}, {"seconds": 0.5})
    log.write_line("validation", 20, {"loss": 9.0})
    assert [next(followed) for _ in range(3)] == [
        (10, {"train/loss": 1.25, "train/seconds": 0.5}),
        (20, {"train/loss": 2.5, "train/seconds": 0.5}),
        (20, {"validation/loss": 9.0}),
    ]
    log.close()
    log = open_log(directory, 10)
    log.write_line("train", 20, {"loss": 2.5})
    log.write_line("train", 30, {"loss": 3.75})
    assert next(followed) == (30, {"train/loss": 3.75})
    with open(directory.metrics, "a") as file:
        file.write('{"step": 30, "kind": "vali')  # half a line
    directory.finished.touch()
    assert list(followed) == []
    log.close()


def test_of_a_run_that_waits_what_is_there_can_be_read(directory):
    log = open_log(directory, 0)
    log.write_line("train", 10, {"loss": 0.5})
    log.close()
    assert list(bert_jax.follow(directory.path, wait=False)) == [(10, {"train/loss": 0.5})]


def test_what_is_no_run_is_told_at_once(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(BertJaxError, match=r"no run\.json"):
            bert_jax.follow(path)


@pytest.mark.parametrize(
    "line", ["[1]", "7", "{}", '{"step": "x", "kind": "train"}', '{"step": 20, "kind": null}']
)
def test_a_line_that_holds_no_measurements_is_named(directory, line):
    directory.metrics.write_text('{"step": 10, "kind": "train", "loss": 0.5}\n' + line + "\n")
    with pytest.raises(BertJaxError, match=r"metrics\.jsonl: line 2 .*remove it"):
        list(bert_jax.follow(directory.path, wait=False))


def test_a_line_that_is_no_text_ends_what_is_read(directory):
    directory.metrics.write_bytes(b'{"step": 10, "kind": "train", "loss": 0.5}\n\xff\0\n')
    assert list(bert_jax.follow(directory.path, wait=False)) == [(10, {"train/loss": 0.5})]
