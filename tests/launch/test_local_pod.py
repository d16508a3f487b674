"""launch/local_pod.sh, a job of Slurm and a job set: several processes on this machine."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.processes import kill_pod
from tests.support.project import LAUNCH, ROOT

BERT_JAX = """#!/bin/sh
trap 'echo "stopped at step 7; run the same command to resume"; exit 143' TERM
echo "$@"
[ "$1" != info ] || exit 0
[ "$1" = train ] || { echo "bert-jax: no verb $1"; exit 2; }
while :; do sleep 0.1; done
"""


def programs(folder: Path, **texts: str) -> str:
    """Shell scripts in place of programs, and the PATH that has them first."""
    folder.mkdir()
    for name, text in texts.items():
        (folder / name.replace("_", "-")).write_text(text)
        (folder / name.replace("_", "-")).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.fixture
def local_pod(tmp_path):
    """Two processes on this machine; bert-jax does nothing here, in training/test_processes.py it trains."""
    environment = {"PATH": programs(tmp_path / "bin", bert_jax=BERT_JAX), "LOCAL_POD": str(tmp_path / "pod")}

    started = []

    def start(*verb):
        command = [LAUNCH / "local_pod.sh", "2", *verb]
        out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        started.append(subprocess.Popen(command, env=environment, **out))
        return started[-1]

    yield start
    for process in started:
        kill_pod(process, tmp_path / "pod")


@pytest.mark.slow
def test_a_local_pod_gives_its_processes_what_they_need_and_lets_them_save(local_pod, tmp_path):
    pod = local_pod("train", "--workdir", "a 'b")
    assert "starting 2 processes of bert-jax train" in pod.stdout.readline(), "it says so at once"
    begun = [pod.stdout.readline() for _ in range(2)]
    assert any("running on 2 hosts" in line for line in begun)
    assert any(line.startswith("train --workdir a 'b --coordinator") for line in begun), (
        "what process 0 prints"
    )
    pod.terminate()
    output = pod.communicate(timeout=60)[0]
    assert pod.returncode == 143 and "stopped at step 7; run the same command to resume" in output
    printed = [(tmp_path / f"pod/logs/{index}.log").read_text() for index in range(2)]
    coordinator = re.search(r"--coordinator=localhost:\d+", printed[0])[0]
    assert printed == [
        f"train --workdir a 'b {coordinator} --processes=2 --process={index}\n"
        "stopped at step 7; run the same command to resume\n"
        for index in range(2)
    ]


LOSES_ONE = """#!/bin/sh
[ ! -f "$LOCAL_POD/lost" ] || { echo "the model is in a"; exit 0; }
trap 'echo "process 0 lost another"; exit 4' TERM
case "$*" in *--process=1) sleep 2; touch "$LOCAL_POD/lost"; exit 137 ;; esac
while :; do sleep 0.1; done
"""


@pytest.mark.slow
def test_the_last_words_of_a_process_that_is_stopped_are_kept(local_pod, tmp_path):
    (tmp_path / "bin/bert-jax").write_text(LOSES_ONE)
    pod = local_pod("train", "--workdir", "a")
    output = pod.communicate(timeout=60)[0]
    assert pod.returncode == 0 and "host 1 failed (ended 137)" in output and "started again" in output
    assert "process 0 lost another" in (tmp_path / "pod/logs/before/0.log").read_text()


def test_a_local_pod_ends_with_its_processes(local_pod, tmp_path):
    pod = local_pod("info", "DIR")
    assert "the run has ended: info DIR\n" in pod.communicate(timeout=60)[0], "without train's own flags"
    assert pod.returncode == 0
    pod = local_pod("trian")
    output = pod.communicate(timeout=60)[0]
    assert pod.returncode == 1 and "started again" not in output
    assert "local_pod.sh: host 0 failed (ended 2): bert-jax: no verb trian" in output


@pytest.mark.parametrize("code", [0, 1, 143])
def test_a_slurm_job_queues_again_if_it_was_told_to_stop(tmp_path, code):
    path = programs(
        tmp_path / "bin",
        srun=f"#!/bin/sh\necho srun $@\nexit {code}\n",
        scontrol="#!/bin/sh\necho scontrol $@\n",
    )
    environment = {"PATH": path, "SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": str(ROOT)}
    copy = shutil.copy(LAUNCH / "slurm.sh", tmp_path)  # as Slurm does
    ran = subprocess.run([copy, "train", "--workdir=run"], env=environment, capture_output=True, text=True)
    assert ran.returncode == code, ran.stderr
    assert "srun --kill-on-bad-exit=0 --wait=600 bert-jax train --workdir=run\n" in ran.stdout
    assert ("scontrol requeue 7" in ran.stdout) is (code == 143)


@pytest.mark.parametrize(
    "code, state", [(None, "none"), (0, "ended 0"), (143, "stopped"), (130, "ended 130"), (4, "ended 4")]
)
def test_a_host_says_how_its_process_ended(tmp_path, code, state):
    (tmp_path / "log").write_text("stopped at step 7; run the same command to resume\n")
    if code is not None:
        (tmp_path / "exit").write_text(f"{code}\n")
    shown = subprocess.run([LAUNCH / "on_host.sh", "look", tmp_path, "0"], capture_output=True, text=True)
    assert shown.stdout.splitlines()[0] == state


@pytest.mark.parametrize("ends, code", [(None, 143), (0, 0), (1, 1)])
def test_a_pod_of_a_job_set_ends_as_its_process_does(tmp_path, ends, code):
    job_set = yaml.safe_load((LAUNCH / "jobset.yaml").read_text())
    job = job_set["spec"]["replicatedJobs"][0]["template"]["spec"]
    pod = job["template"]["spec"]
    assert job["parallelism"] == job["completions"] == 4, "the hosts of 4x4 chips"
    assert pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == "4x4"
    path = programs(tmp_path / "bin", bert_jax=BERT_JAX if ends is None else f"#!/bin/sh\nexit {ends}\n")
    command = pod["containers"][0]["command"]
    process = subprocess.Popen(command, env={"PATH": path}, stdout=subprocess.PIPE, text=True)
    if ends is None:
        assert process.stdout.readline().startswith("train --config configs/pretrain.py:base")
        process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == code
