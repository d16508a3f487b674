"""The scripts of launch/ against a cloud that is not there (fake_gcloud.py)."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.core.errors import PEER_LOST_EXIT_CODE, NonFiniteError
from tests.launch import fake_gcloud
from tests.support.project import LAUNCH

TRAIN = (
    "train --config configs/pretrain.py:base --config.data.corpora=corpus --workdir runs/base "
    "--config.optimizer.learning_rate=1e-4"
)
RUNNING, DONE = ["running", "step 10\n"], ["ended 0", "the model is in runs/base/model\n"]
LOST = ["ended 4", "bert-jax: process 0 lost another of the 2 processes (Gloo); start all of them again\n"]


class Cloud:
    """What the scripts are run with: a gcloud, settings, and a folder for what they leave."""

    def __init__(self, folder: Path):
        self.folder, self.started = folder, []
        shim = folder / "bin" / "gcloud"
        shim.parent.mkdir()
        shim.write_text(f'#!/bin/sh\nexec {sys.executable} -SE {fake_gcloud.__file__} "$@"\n')
        shim.chmod(0o755)
        self.environment = {
            "PATH": f"{shim.parent}:/usr/bin:/bin",
            "FAKE_CLOUD": str(folder),
            # Should the real one ever be reached, it knows nobody.
            "CLOUDSDK_CONFIG": str(folder / "nobody"),
            "HOME": str(folder),
        }
        self.settings = {
            "project": "p", "zone": "z", "name": "pod", "type": "v4-16", "runs": "10.0.0.9:/runs",
            "corpus": "gs://b/corpus", "poll": "0", "folder": str(folder / "here"),
        }  # fmt: skip

    def script(self, *lives: dict) -> None:
        (self.folder / "script.json").write_text(json.dumps(lives))

    def start(self, name: str, *words: str) -> subprocess.Popen:
        settings = (LAUNCH / "settings.sh").read_text()
        settings += "\n".join(f"{key}={shlex.quote(value)}" for key, value in self.settings.items())
        (self.folder / "settings.sh").write_text(settings)
        command = [LAUNCH / f"{name}.sh", "--settings", self.folder / "settings.sh", *words]
        out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.started.append(subprocess.Popen(command, env=self.environment, **out))
        return self.started[-1]

    def run(self, name: str, *words: str, code: int = 0) -> str:
        process = self.start(name, *words)
        output = process.communicate(timeout=60)[0]
        assert process.returncode == code, output
        return output

    def calls(self) -> list[list[str]]:
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def deeds(self) -> list[str]:
        """The calls that change something, those of several hosts as one."""
        deeds = []
        for call in self.calls():
            word = re.search(r"on_host\.sh (\w+)", " ".join(call))
            deed = " ".join(call[2:4]) if call[3] != "ssh" else word[1]
            if call[3] != "describe" and deed != "look" and deeds[-1:] != [deed]:
                deeds.append(deed)
        return deeds

    def world(self) -> dict:
        return json.loads((self.folder / "world.json").read_text())

    def nothing_is_left(self) -> bool:
        return not self.world()["node"] and not self.world()["request"]


@pytest.fixture
def cloud(tmp_path):
    cloud = Cloud(tmp_path)
    yield cloud
    for process in cloud.started:
        process.kill()


CREATE = ["queued-resources create"]
BEGIN = ["tpu-vm scp", "setup", "corpus", "start"]
DELETE = ["queued-resources delete"]


def begin(cloud: Cloud) -> None:
    for name in ("create", "setup", "corpus"):
        cloud.run(name)
    cloud.run("run", *TRAIN.split())


@pytest.mark.slow
def test_a_run_from_nothing_to_its_result(cloud):
    looks = {"0": [RUNNING, ["running", "step 20\n"], DONE], "1": [["running", ""], ["ended 0", "bye\n"]]}
    request = ["ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"]
    cloud.script({"request": request, "looks": looks})
    output = cloud.run("create")
    assert re.findall(r"pod: (\w+)", output) == request[:-1]
    assert "pod is ready: 8 chips on 2 hosts" in output
    assert "exists already" in cloud.run("create")
    cloud.run("setup")
    cloud.run("corpus")
    cloud.run("run", *TRAIN.split())
    assert "host 1: running" in cloud.run("status")
    here = cloud.folder / "here"
    assert (here / "logs/0.log").read_text() == "", "what is printed is gathered by watch alone"
    output = cloud.run("watch")
    assert "the run has ended: the model is in runs/base/model" in output
    assert cloud.deeds() == [*CREATE, *BEGIN, "send", *DELETE]
    assert cloud.nothing_is_left()
    assert (here / "result/model/config.json").exists()
    printed = "".join(text for _, text in looks["0"])
    assert (here / "logs/0.log").read_text() == printed, "nothing is missing or twice"
    assert (here / "logs/1.log").read_text() == "bye\n"

    create = next(call for call in cloud.calls() if "create" in call)
    assert create[:5] == ["compute", "tpus", "queued-resources", "create", "pod"]
    assert {"--node-id=pod", "--accelerator-type=v4-16", "--runtime-version=tpu-ubuntu2204-base", "--spot",
            "--valid-until-duration=24h"} <= set(create)  # fmt: skip
    assert all({"--project=p", "--zone=z", "--quiet"} <= set(call) for call in cloud.calls())
    starts = [call for call in cloud.calls() if " start " in " ".join(call)]
    assert sorted(call[5:7] for call in starts) == [
        [
            f"--worker={index}",
            f"--command=cd bert-jax && launch/on_host.sh start .process 10.0.0.2:8476 2 {index} {TRAIN}",
        ]
        for index in range(2)
    ]


@pytest.mark.parametrize("queue", ["yes", "no"])
def test_a_reservation_is_named(cloud, queue):
    cloud.settings |= {"queue": queue, "capacity": "reserved", "reservation": "mine"}
    cloud.script({})
    cloud.run("create")
    (create,) = (call for call in cloud.calls() if "create" in call)
    assert create[0] == "alpha" and "--reservation=mine" in create and "--reserved" not in create
    cloud.settings["capacity"] = "spot"
    assert "reservation=mine needs capacity=reserved" in cloud.run("create", code=1)


@pytest.mark.slow
@pytest.mark.parametrize("keep, kept", [("", True), ("no", False)])
def test_a_reserved_slice_is_kept_unless_told_otherwise(cloud, keep, kept):
    cloud.settings |= {"capacity": "reserved", "keep": keep}
    cloud.script({"looks": {"0": [DONE], "1": [["ended 0", ""]]}})
    begin(cloud)
    output = cloud.run("watch")
    assert cloud.world()["node"] is kept and ("pod is kept, as its reservation is paid for" in output) is kept
    assert cloud.deeds() == [*CREATE, *BEGIN, "send", *([] if kept else DELETE)]


@pytest.mark.slow
def test_a_preempted_slice_is_made_anew_and_goes_on(cloud):
    first = {"looks": {"0": [RUNNING, RUNNING], "1": [RUNNING]}, "then": "PREEMPTED"}
    second = {"looks": {"0": [["running", "resuming at step 10\n"], DONE], "1": [["ended 0", ""]]}}
    cloud.script(first, {"taken": True}, second)
    begin(cloud)
    output = cloud.run("watch")
    assert "the slice was preempted; its last line: step 10" in output
    assert "pod is PREEMPTED: deleting it" in output
    once_more = [*DELETE, *CREATE, "tpu-vm scp", "setup"]
    assert cloud.deeds() == [*CREATE, *BEGIN, *once_more, *DELETE, *CREATE, *BEGIN, "send", *DELETE]
    starts = [call for call in cloud.calls() if " start " in " ".join(call)]
    assert sorted(starts[:2]) == sorted(starts[2:]), "the same command goes on from the newest checkpoint"
    assert cloud.nothing_is_left()
    assert (cloud.folder / "here/logs/before/0.log").read_text() == "step 10\n" * 2
    assert (cloud.folder / "here/logs/0.log").read_text().startswith("resuming at step 10\n")


@pytest.mark.slow
def test_no_slice_is_left_when_the_new_one_fails(cloud):
    first = {"looks": {"0": [RUNNING], "1": [RUNNING]}, "then": "PREEMPTED"}
    cloud.script(first, {"setup": {"1": "No space left on device"}}, {})
    begin(cloud)
    output = cloud.run("watch", code=1)
    assert "1 of 2 hosts could not be set up" in output
    assert cloud.deeds().count(*CREATE) == 2
    assert "watch.sh: the slice could not be recreated" in output.splitlines()[-1]
    assert cloud.nothing_is_left()


@pytest.mark.slow
@pytest.mark.parametrize(
    "queue, error, line",
    [
        ("yes", "RESOURCE_EXHAUSTED: Quota limit 'TPUV4' has been exceeded", "quota refused v4-16 in z ("),
        ("no", 'There is no more capacity in the zone "z"', "no capacity for v4-16 in z ("),
        ("no", "PERMISSION_DENIED: the API is not enabled", "pod could not be created ("),
    ],
)
def test_a_refusal_is_one_line_and_nothing_is_left(cloud, queue, error, line):
    cloud.settings["queue"] = queue
    cloud.script({"refused": error})
    last = cloud.run("create", code=1).splitlines()[-1]
    assert last.startswith(f"create.sh: {line}")
    assert error in last and last.endswith("the slice is deleted")
    assert cloud.nothing_is_left()


def test_a_request_that_lapses_is_deleted(cloud):
    error = "There is no more capacity in the zone"
    cloud.script({"request": ["WAITING_FOR_RESOURCES", "FAILED"], "error": error})
    last = cloud.run("create", code=1).splitlines()[-1]
    assert last.startswith(f"create.sh: no capacity for v4-16 in z ({error})")
    assert cloud.deeds() == [*CREATE, *DELETE]
    assert cloud.nothing_is_left()


def test_an_interrupted_wait_leaves_no_request(cloud):
    cloud.script({"request": ["WAITING_FOR_RESOURCES"]})
    process = cloud.start("create", "--keep")
    while "WAITING" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    assert "interrupted; the slice is deleted" in process.communicate(timeout=60)[0]
    assert process.returncode == 1
    assert cloud.nothing_is_left()


@pytest.mark.slow
def test_a_lost_process_is_started_again_on_the_same_slice(cloud):
    looks = {
        "0": [RUNNING, LOST, ["running", ""], DONE],
        "1": [RUNNING, ["ended 137", "Killed\n"], ["running", ""], ["ended 0", ""]],
    }
    cloud.script({"looks": looks})
    begin(cloud)
    output = cloud.run("watch", "--keep")
    assert "host 1 failed (ended 137): Killed" in output, "not host 0, which lost it"
    assert cloud.deeds() == [*CREATE, *BEGIN, "stop", "start", "send"]
    assert cloud.world()["node"] and "pod is kept and goes on costing" in output


@pytest.mark.slow
def test_a_process_that_is_lost_again_and_again(cloud):
    cloud.script({"looks": {"0": [LOST] * 4, "1": [["ended 137", "Killed\n"]] * 4}})
    begin(cloud)
    last = cloud.run("watch", code=1).splitlines()[-1]
    assert "host 1 failed (ended 137)" in last
    assert "restarted 3 times" in last and "the slice is deleted" in last
    assert cloud.deeds() == [*CREATE, *BEGIN, *["stop", "start"] * 3, "stop", *DELETE]
    assert cloud.nothing_is_left()


@pytest.mark.parametrize(
    ("state", "seconds", "passes"),
    [
        ("ended 1", 10, False), ("ended 1", 1000, True),  # an error of the command itself, or one of later
        ("ended 3", 1000, False), ("ended 4", 10, True), ("ended 137", 10, True), ("none", 10, True),
    ],
)  # fmt: skip
def test_what_is_tried_again_follows_from_the_exit_code(state, seconds, passes):
    script = f'source {LAUNCH}/hosts.sh; states=("{state}") culprit=0 since=$((SECONDS - {seconds})); passing'
    assert (subprocess.run(["bash", "-c", script]).returncode == 0) is passes


def test_exit_codes_are_those_of_the_package():
    assert f'not_finite="ended {NonFiniteError.exit_code}" lost_another="ended {PEER_LOST_EXIT_CODE}"' in (
        LAUNCH / "hosts.sh"
    ).read_text(encoding="utf-8")


@pytest.mark.slow
def test_processes_told_to_stop_go_on_if_the_slice_stays(cloud):
    stopped = ["stopped", "stopped at step 30; run the same command to resume\n"]
    cloud.script({"looks": {"0": [stopped, DONE], "1": [["ended 0", ""]]}})
    begin(cloud)
    assert "stopped at step 30" in cloud.run("watch")
    assert cloud.deeds() == [*CREATE, *BEGIN, "send", *DELETE]
    assert sum(" start " in " ".join(call) for call in cloud.calls()) == 2 * 2


@pytest.mark.slow
def test_a_cloud_that_does_not_answer_is_not_a_preemption(cloud):
    cloud.script({"looks": {"0": [["running", ""], DONE], "1": [["ended 0", ""]]}, "request": ["ACTIVE"]})
    begin(cloud)
    (cloud.folder / "silent").touch()
    before = cloud.deeds()
    process = cloud.start("watch")
    assert "is unknown; asking again" in process.stdout.readline()
    (cloud.folder / "silent").unlink()
    assert "the run has ended" in process.communicate(timeout=60)[0]
    assert cloud.deeds() == [*before, "send", *DELETE]


@pytest.mark.slow
def test_a_slice_that_cannot_be_deleted_is_said_loudly(cloud):
    cloud.script({"stuck": True})
    cloud.run("create")
    last = cloud.run("delete", code=1).splitlines()[-1]
    assert "pod COULD NOT BE DELETED and may go on costing" in last


@pytest.mark.slow
def test_dry_run_prints_what_would_be_called_and_calls_nothing(cloud):
    cloud.script({"looks": {"0": [DONE], "1": [["ended 0", ""]]}})

    def dry(name, *words):
        output = cloud.run(name, "--dry-run", *words).splitlines()
        return [shlex.split(line)[1:] for line in output if line.startswith("gcloud ")]

    printed = [*dry("create"), *dry("setup"), *dry("corpus"), *dry("run", *TRAIN.split())]
    assert not cloud.calls()
    begin(cloud)
    called = len(cloud.calls())
    printed += [*dry("watch"), *dry("status"), *dry("fetch"), *dry("delete")]
    assert len(cloud.calls()) == called
    cloud.run("watch")

    def plain(calls):
        text = json.dumps(calls).replace("10.0.0.2:8476", "ADDRESS:8476")
        text = re.sub(r'"[^"]*/bert-jax.tar.gz"', '"bert-jax.tar.gz"', text)
        return json.loads(text)

    printed = plain(printed)
    assert [call for call in plain(cloud.calls()) if call not in printed] == []


@pytest.mark.parametrize(
    "setting, value, line",
    [
        ("project", "", "leaves project empty; fill it in"),
        ("type", "v5e-16", "type=v5e-16 is unknown; v4-N and v5p-N have N/2 chips"),
        ("capacity", "cheap", "capacity=cheap is unknown; spot, reserved or on-demand"),
    ],
)
def test_settings_that_cannot_be(cloud, setting, value, line):
    cloud.script()
    cloud.settings[setting] = value
    assert line in cloud.run("create", code=1)
    assert not cloud.calls()


def test_a_run_is_kept_where_it_outlives_the_slice(cloud):
    cloud.script()
    for workdir in ("--workdir /tmp/base", "--workdir=base"):
        assert "is not in runs/" in cloud.run("run", "train", *workdir.split(), code=1)
    assert not cloud.calls()


@pytest.mark.parametrize("kind, hosts", [("v4-32", 4), ("v5litepod-8", 1), ("v6e-256", 64)])
def test_the_hosts_of_a_type(cloud, kind, hosts):
    cloud.settings["type"] = kind
    assert cloud.run("run", "--dry-run", "info").count("--worker=") == hosts
    assert cloud.run("corpus", "--dry-run").count("--worker=") == hosts


def test_flags_of_the_compiler_are_set_on_the_hosts(cloud):
    cloud.settings["libtpu"] = "--first=true --second=1"
    words = shlex.split(cloud.run("run", "--dry-run", "info"))
    command = next(word for word in words if word.startswith("--command="))
    assert shlex.split(command)[3:5] == ["LIBTPU_INIT_ARGS=--first=true --second=1", "launch/on_host.sh"]


@pytest.mark.slow
def test_a_first_hour_that_would_fail_creates_nothing(cloud):
    cloud.environment["PYTHON"] = sys.executable
    train = ("train", "--config", "configs/pretrain.py:tiny")
    for words, message in {
        (): "name the run",
        (*train, "--workdir", "runs/a"): "leave --workdir out",
        train: "the first hour needs the corpus",
    }.items():
        assert message in cloud.run("first_hour", *words, code=1)
    cloud.settings["type"] = "v4-24"
    assert "is a power of two, not 12" in cloud.run("first_hour", *train, "--config.data.corpora=c", code=1)
    assert cloud.calls() == []


@pytest.mark.slow
def test_shellcheck_finds_nothing():
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    scripts = sorted(path.name for path in LAUNCH.glob("*.sh"))
    assert len(scripts) > 12
    checked = subprocess.run(
        [shellcheck, "-x", "-P", "..", *scripts], cwd=LAUNCH, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout
