"""Runs that are killed, told to stop, or find their checkpoints damaged: nothing is lost."""

import random
import signal
import time

import pytest

from tests.support.pretraining_runs import (
    RUN_STEPS,
    assert_same_result,
    kill_while_training,
    last_logged_step,
    logged_metrics,
    make_corpus,
    train_command,
)
from tests.support.processes import run_process, start_process

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def corpus(place):
    return make_corpus(place)


@pytest.fixture(scope="module")
def uninterrupted(place, corpus):
    run_process(train_command(corpus, place / "whole"))
    return place / "whole"


@pytest.mark.long
def test_twenty_kills_change_nothing(place, corpus, uninterrupted):
    rng, workdir = random.Random(2), place / "killed often"
    arguments, interrupted = train_command(corpus, workdir), 0
    for n in range(20):
        interrupted += kill_while_training(
            arguments, workdir, writing=n % 2 == 0, steps=rng.randint(1, RUN_STEPS // 40)
        )
    assert interrupted >= 5, "of twenty, so many fell into the writing of a checkpoint"
    run_process(arguments)
    assert_same_result(uninterrupted, workdir)


def test_a_kill_changes_nothing_and_sigterm_saves_and_ends_cleanly(place, corpus, uninterrupted):
    workdir = place / "stopped"
    arguments = train_command(corpus, workdir)
    while not kill_while_training(arguments, workdir, writing=True, steps=12):
        assert last_logged_step(workdir) < RUN_STEPS // 2, "no kill falls into the writing of a checkpoint"
    killed_at, process = last_logged_step(workdir), start_process(arguments)
    while last_logged_step(workdir) < killed_at + 13:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.001)
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 143, output
    # A kill between the last file of a checkpoint and its manifest leaves one that is set aside, as N.damaged.
    names = [path.name for path in (workdir / "checkpoints").iterdir()]
    step = max(int(name) for name in names if name.isdecimal())
    assert f"stopped at step {step}; run the same command to resume" in output
    assert step < RUN_STEPS
    assert not (workdir / "model").exists()
    assert f"resuming at step {step}\n" in run_process(arguments)
    assert_same_result(uninterrupted, workdir)


def test_what_a_run_leaves(place, corpus, uninterrupted):
    names = {path.name.split(".")[0] for path in uninterrupted.iterdir()}
    assert names >= {"run", "tokenizer", "checkpoints", "metrics", "curves", "model", "events"}
    kinds = [line["kind"] for line in logged_metrics(uninterrupted)]
    assert kinds.count("train") == RUN_STEPS // 3
    validation = [line for line in logged_metrics(uninterrupted) if line["kind"] == "validation"]
    assert [line["step"] for line in validation] == [80, 160, 240]
    assert validation[-1].keys() >= {"mlm_loss", "mlm_accuracy", "mlm_perplexity", "nsp_accuracy"}
    assert (uninterrupted / "curves.png").read_bytes()[:4] == b"\x89PNG"
    steps = sorted(int(path.name) for path in (uninterrupted / "checkpoints").iterdir())
    assert steps == [220, 230, 240]
