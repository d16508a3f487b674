"""The files of launch/serve: an image, a unit of systemd and a manifest for Kubernetes, against the verb `serve`."""

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from bert_jax.command.main import make_parser
from tests.hostile import material
from tests.support.made_up_language import save_tokenizer
from tests.support.project import LAUNCH, ROOT

FOLDER = LAUNCH / "serve"
PORT = 3000
Instruction = tuple[str, str]


def stages() -> dict[str, tuple[str, list[Instruction]]]:
    """The stages of the Dockerfile by name, each with its base and its instructions."""
    lines = [
        line for line in (FOLDER / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")
    ]
    read: dict[str, tuple[str, list[Instruction]]] = {}
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.split()
            read[name] = (base, [])
        elif word:
            read[name][1].append((word, " ".join(rest.split())))
    return read


def of_image(name: str, word: str) -> list[str]:
    """What an image has of an instruction, that of its bases first."""
    base, instructions = stages().get(name, ("", []))
    earlier = of_image(base, word) if base in stages() else []
    return earlier + [rest for of, rest in instructions if of == word]


def started_by(image: str) -> list[str]:
    """The words of the command that an image runs."""
    return json.loads(of_image(image, "ENTRYPOINT")[-1]) + json.loads(of_image(image, "CMD")[-1])


def parsed(words: list[str]):
    assert words[:2] == ["bert-jax", "serve"]
    return make_parser("serve").parse_args(words[2:])


def longest_stop(asked) -> float:
    """The seconds for a request to arrive and to be answered after the signal."""
    return 2 * asked.timeout + 1


def unit() -> configparser.ConfigParser:
    read = configparser.ConfigParser(interpolation=None)
    read.optionxform = str
    read.read(FOLDER / "bert-jax.service")
    return read


def manifest() -> dict[str, dict]:
    return {one["kind"]: one for one in yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())}


@pytest.mark.parametrize(("image", "engine"), [("jax", "auto"), ("onnx", "onnxruntime")])
def test_an_image_serves_the_model_that_is_mounted(image, engine):
    asked = parsed(started_by(image))
    assert (asked.models, asked.host, asked.port, asked.engine) == (
        ["model=/models"],
        "0.0.0.0",
        PORT,
        engine,
    )
    assert of_image(image, "EXPOSE") == [str(PORT)]
    assert f":{PORT}/health" in of_image(image, "HEALTHCHECK")[-1]
    assert int(of_image(image, "USER")[-1]) > 0


def test_the_image_without_jax_has_the_packages_of_light_sh_and_of_the_extra():
    (installed,) = of_image("onnx-packages", "RUN")[1:]
    named = re.search(r"constraints\.txt (.*?) &&", installed)[1].split()
    light = re.search(r"packages=\((.*?)\)", (LAUNCH / "light.sh").read_text(), re.S)[1].split()
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["serve"]
    assert named == light + [Requirement(line).name for line in extra]


def test_the_unit_starts_the_verb_and_waits_until_it_has_answered():
    service = unit()["Service"]
    program, *words = shlex.split(service["ExecStart"])
    asked = parsed([Path(program).name, *words])
    assert float(service["TimeoutStopSec"]) > longest_stop(asked)
    assert service["Restart"] == "on-failure"
    # A second signal, such as a worker would get from systemd and from the first process, ends it at once.
    assert (service["KillMode"], service["KillSignal"]) == ("mixed", "SIGTERM")
    assert service["DynamicUser"] == "yes" and service["CapabilityBoundingSet"] == ""


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path):
    copy = tmp_path / "bert-jax.service"
    program = shlex.split(unit()["Service"]["ExecStart"])[0]
    copy.write_text((FOLDER / copy.name).read_text().replace(f"={program} ", f"={sys.executable} "))
    ran = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True)
    assert ran.returncode == 0 and "bert-jax" not in ran.stderr, ran.stderr


def test_the_manifest_asks_the_port_that_the_image_has():
    deployed, service = manifest()["Deployment"]["spec"], manifest()["Service"]["spec"]
    template = deployed["template"]
    (container,) = template["spec"]["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": PORT}]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": "http"}
    assert service["ports"][0]["targetPort"] == "http"
    assert service["selector"] == deployed["selector"]["matchLabels"] == template["metadata"]["labels"]
    about = template["metadata"]["annotations"]
    assert (about["prometheus.io/port"], about["prometheus.io/path"]) == (str(PORT), "/metrics")


def test_the_manifest_lets_a_server_answer_before_it_ends_it():
    template = manifest()["Deployment"]["spec"]["template"]["spec"]
    (container,) = template["containers"]
    asked = parsed([*json.loads(of_image("jax", "ENTRYPOINT")[-1]), *container["args"]])
    (sleep, seconds) = container["lifecycle"]["preStop"]["exec"]["command"]
    assert sleep == "sleep"
    assert template["terminationGracePeriodSeconds"] > int(seconds) + longest_stop(asked)
    assert asked.models == ["model=/models"] and asked.port == PORT


class Image:
    """An image without Docker: its files are in a folder, and its commands run with nothing else of this machine's
    Python packages or home."""

    def __init__(self, name: str, folder: Path):
        self.name, self.folder = name, folder
        self.home, self.work = folder / "home", folder / "package"
        for place in (self.home, self.work, folder / "cache"):
            place.mkdir()
        python = Path(getattr(sys, "_base_executable", sys.executable)).resolve().parent
        kept = {key: value for key, value in os.environ.items() if key.startswith(("PIP_", "SSL_"))}
        self.environment = kept | {"PATH": f"{python}:/usr/bin:/bin", "HOME": str(self.home)}

    def inside(self, text: str) -> str:
        return re.sub(r"/(venv|cache|models)\b", rf"{self.folder}/\1", text)

    def build(self) -> None:
        for copied in of_image(self.name, "COPY"):
            source, folder = re.fullmatch(r"--from=(\S+) (/\S+) \2", copied).groups()
            assert folder == "/venv"
            self.build_stage(source)
        for setting in shlex.split(self.inside(of_image(self.name, "ENV")[-1])):
            key, _, value = setting.partition("=")
            self.environment[key] = value.replace("$PATH", self.environment["PATH"])

    def build_stage(self, name: str) -> None:
        base, instructions = stages()[name]
        if base in stages():
            self.build_stage(base)
        for word, rest in instructions:
            if word == "COPY":
                *sources, destination = rest.split()
                for source in sources:
                    copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                    copy(ROOT / source, self.work / destination)
            elif word == "RUN":
                self.run(["sh", "-c", self.inside(rest)])

    def run(self, command: list[str]) -> str:
        ran = subprocess.run(command, cwd=self.work, env=self.environment, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-3000:]
        return ran.stdout

    def start(self, port: int) -> subprocess.Popen:
        words = [self.inside(word) for word in started_by(self.name)]
        words[words.index("--port") + 1] = str(port)
        words[words.index("--host") + 1] = "127.0.0.1"
        program = shutil.which(words[0], path=self.environment["PATH"])
        assert program == str(self.folder / "venv/bin/bert-jax")
        return subprocess.Popen([program, *words[1:]], cwd=self.folder, env=self.environment)

    def is_healthy(self, port: int) -> bool:
        check = json.loads(of_image(self.name, "HEALTHCHECK")[-1].partition("CMD ")[2])
        command = [word.replace(str(PORT), str(port)) for word in check]
        program = shutil.which(command[0], path=self.environment["PATH"])
        return (
            subprocess.run([program, *command[1:]], env=self.environment, capture_output=True).returncode == 0
        )


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.long
@pytest.mark.parametrize("name", ["onnx", "jax"])
def test_what_an_image_installs_serves_a_model(name, tmp_path):
    from bert_jax.export.onnx_directory import export_onnx

    image = Image(name, tmp_path)
    image.build()
    vocabulary, model = tmp_path / "vocabulary", tmp_path / "models"
    save_tokenizer(vocabulary)
    trained = model if name == "jax" else tmp_path / "trained"
    material.model(trained, vocabulary, ("classify",), material.LABELS)
    if name == "onnx":
        export_onnx(trained, model)
    has_jax = [path.name for path in tmp_path.glob("venv/lib/python*/site-packages/jax")]
    assert has_jax == (["jax"] if name == "jax" else [])
    port = free_port()
    server = image.start(port)
    try:
        assert not image.is_healthy(port)
        deadline = time.monotonic() + 300
        while not image.is_healthy(port):
            assert server.poll() is None and time.monotonic() < deadline
        body = json.dumps({"inputs": "w1 w2", "probabilities": True}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/classify", body, {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request) as response:
            (result,) = json.load(response)["results"]
        assert set(result["probabilities"]) == set(material.LABELS)
        with pytest.raises(urllib.error.HTTPError, match="424"):
            urllib.request.urlopen(urllib.request.Request(request.full_url.replace("classify", "embed"),
                                                          b'{"inputs": "w1"}', dict(request.headers)))  # fmt: skip
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=70) == 0
    finally:
        server.kill()
        server.wait()
