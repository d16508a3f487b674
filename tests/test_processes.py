"""Two processes on this machine, joined by gloo, stand in for two hosts."""

import socket
import time

import numpy as np
import pytest

import runs
from runs import command, finished, last_step, leaves, lines, started

pytestmark = pytest.mark.slow
SHORT = {"steps": 90, "log.evaluate_every": 30}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def corpus(place):
    return runs.small_corpus(place)


def pair(corpus, workdir, cache):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    return [
        started(
            command(
                corpus, workdir, f"--coordinator={address}", "--processes=2", f"--process={index}", **SHORT
            ),
            cache,
        )
        for index in range(2)
    ]


def test_two_processes_give_what_one_gives_also_when_one_was_lost(place, corpus):
    one, two = place / "one", place / "two"
    finished(command(corpus, one, **SHORT), place / "cache")

    first, second = pair(corpus, two, place / "cache")
    while last_step(two) < 20:
        assert first.poll() is None, first.communicate()[0][-3000:]
        time.sleep(0.001)
    second.kill()
    lost_at = time.monotonic()
    output = first.communicate(timeout=120)[0]
    second.communicate()
    assert first.returncode == 1, output
    assert time.monotonic() - lost_at < 60
    assert "process 0 lost another of the 2 processes" in output
    assert "start all of them again: they go on from the newest checkpoint" in output
    assert not (two / "model").exists()

    again = pair(corpus, two, place / "cache")
    outputs = [process.communicate(timeout=200)[0] for process in again]
    assert [process.returncode for process in again] == [0, 0], outputs
    assert "going on at step" in outputs[0]
    assert "going on at step" not in outputs[1], "one process speaks for all"

    assert [(line["step"], line["kind"]) for line in lines(one)] == [
        (line["step"], line["kind"]) for line in lines(two)
    ]
    for ours, theirs in zip(lines(one), lines(two), strict=True):
        assert (ours["step"], ours["kind"]) == (theirs["step"], theirs["kind"])
        for name in ours:
            if name.endswith(("loss", "accuracy", "tokens")):
                assert ours[name] == pytest.approx(theirs[name], rel=1e-5), (ours["step"], name)
    ours, theirs = leaves(one / "checkpoints/90"), leaves(two / "checkpoints/90")
    for name, value in ours.items():
        np.testing.assert_allclose(theirs[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
