"""Two processes on this machine, joined by gloo, stand in for two hosts."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bert_jax.command.main import main
from tests.support.pretraining_runs import (
    checkpoint_arrays,
    last_logged_step,
    logged_metrics,
    make_corpus,
    train_command,
)
from tests.support.processes import kill_pod, start_process
from tests.support.project import ROOT

pytestmark = pytest.mark.ci
STEPS = 60
SHORT = {"steps": STEPS, "log.evaluate_every": 20}


class Pod:
    """launch/local_pod.sh with two processes, and what it leaves."""

    def __init__(self, corpus: Path, workdir: Path):
        self.workdir, self.folder = workdir, workdir.with_name(f"{workdir.name}.pod")
        verb = train_command(corpus, workdir, **SHORT)[3:]  # without `python -m bert_jax`
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        script = ROOT / "launch" / "local_pod.sh"
        # A narrow terminal cuts what `ps` says of a process, unless it is told not to.
        self.shell: subprocess.Popen = start_process(
            [script, "2", *verb], LOCAL_POD=str(self.folder), PATH=path, COLUMNS="20"
        )

    def send(self, number: signal.Signals, index: int, step: int) -> None:
        """A signal to one of the two once the run is past a step."""
        while last_logged_step(self.workdir) < step:
            assert self.shell.poll() is None, self.shell.communicate()[0][-3000:]
            time.sleep(0.001)
        os.kill(int((self.folder / str(index) / "pid").read_text()), number)

    def wait_for(self, text: str) -> str:
        output = ""
        while text not in output:
            line = self.shell.stdout.readline()
            assert line, output
            output += line
        return output

    def printed(self, index: int) -> str:
        """By all its lives."""
        logs = self.folder / "logs"
        return (logs / "before" / f"{index}.log").read_text() + (logs / f"{index}.log").read_text()


@pytest.fixture
def pod(tmp_path):
    found = Pod(make_corpus(tmp_path), tmp_path / "two")
    yield found
    kill_pod(found.shell, found.folder)


def test_two_processes_give_what_one_gives_also_when_stopped_and_when_one_was_lost(pod, tmp_path):
    one, two = tmp_path / "one", pod.workdir
    assert main(train_command(tmp_path / "corpus", one, **SHORT)[3:]) == 0
    pod.send(signal.SIGTERM, 1, step=12)
    output = pod.wait_for("run the same command to resume") + pod.wait_for("run the same command to resume")
    # Process 0 says so, and once both have ended, the script.
    # A checkpoint is put together from what both have of a step, so both stopped at that one.
    step = max(int(path.name) for path in (two / "checkpoints").iterdir())
    assert f"stopped at step {step};" in output
    assert 12 <= step < STEPS and (two / f"checkpoints/{step}/manifest.json").exists()
    assert [(pod.folder / f"{index}/exit").read_text() for index in range(2)] == ["143\n", "143\n"]

    pod.send(signal.SIGKILL, 1, step=max(step, 30) + 3)
    lost_at = time.monotonic()
    assert "host 1 failed (ended 137)" in pod.wait_for("started again")
    assert time.monotonic() - lost_at < 60
    assert not (two / "model").exists()
    output = pod.shell.communicate(timeout=200)[0]
    assert pod.shell.returncode == 0, output
    assert "the run has ended: the model is in" in output
    printed = pod.printed(0)
    assert "process 0 lost another of the 2 processes" in printed
    assert f"resuming at step {step}\n" in printed
    assert printed.count("resuming at step") == 2
    assert "resuming at step" not in pod.printed(1), "one process speaks for all"

    for ours, theirs in zip(logged_metrics(one), logged_metrics(two), strict=True):
        assert (ours["step"], ours["kind"]) == (theirs["step"], theirs["kind"])
        for name in ours:
            if name.endswith(("loss", "accuracy", "tokens")):
                assert ours[name] == pytest.approx(theirs[name], rel=1e-5), (ours["step"], name)
    ours, theirs = (checkpoint_arrays(workdir / f"checkpoints/{STEPS}") for workdir in (one, two))
    for name, value in ours.items():
        np.testing.assert_allclose(theirs[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
