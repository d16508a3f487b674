"""The files of launch/ray: an image and a job for KubeRay, against the verbs and the version of Ray that is tested."""

import re
import shlex
import tomllib

import yaml

from bert_jax.command.main import make_parser
from tests.support.project import LAUNCH, ROOT

VERSION = re.search(r"^ray==(.*)$", (LAUNCH / "constraints.txt").read_text(), re.M)[1]
JOB = yaml.safe_load((LAUNCH / "ray/rayjob.yaml").read_text())["spec"]
CLUSTER = JOB["rayClusterSpec"]


def containers() -> list[tuple[dict, dict]]:
    """Each container, and the pod that it is in."""
    pods = [group["template"]["spec"] for group in (CLUSTER["headGroupSpec"], *CLUSTER["workerGroupSpecs"])]
    return [(container, pod) for pod in pods for container in pod["containers"]]


def test_the_job_runs_a_command_of_the_cluster_on_storage_that_all_see():
    program, verb, *flags = shlex.split(JOB["entrypoint"])
    args = make_parser(verb).parse_args(flags)
    assert (program, verb, args.ray) == ("bert-jax", "predict", "auto")
    for container, pod in containers():
        (mount,) = container["volumeMounts"]
        assert {path.split("/")[1] for path in (args.model, args.input, args.output)} == {
            mount["mountPath"].strip("/")
        }
        assert [volume["name"] for volume in pod["volumes"]] == [mount["name"]]


def test_the_head_has_no_worker_and_the_others_have_cores():
    assert CLUSTER["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    (group,) = CLUSTER["workerGroupSpecs"]
    (worker,) = group["template"]["spec"]["containers"]
    cores = group["replicas"] * int(worker["resources"]["limits"]["cpu"])
    assert f"by {cores} workers" in (LAUNCH / "ray/rayjob.yaml").read_text()


def test_the_image_and_the_job_have_the_tested_version():
    image = (LAUNCH / "ray/Dockerfile").read_text()
    assert re.findall(r"rayproject/ray:([\d.]+)-", image) == [VERSION] * 2
    assert CLUSTER["rayVersion"] == VERSION
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {
        name for names in re.findall(r"\[([\w,]+)\]'", image) for name in names.split(",")
    } <= extras.keys()
