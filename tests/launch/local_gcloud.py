"""A `gcloud` whose slice is this machine: a folder for each host, in which the commands of the scripts really run.

`LOCAL_CLOUD` names a folder. `hosts` there is their number, `faults.json` a list of (host, file, text, other text):
what is changed in a host's copy of the code once it is set up. `bucket` is what hosts see as ./runs.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

HERE = Path(os.environ.get("LOCAL_CLOUD", "."))
PROGRAMS = {
    "bert-jax": '#!/bin/sh\nexec "$(dirname "$0")/python" -m bert_jax "$@"\n',
    # Instead of a mount, ./runs is a link.
    "mountpoint": '#!/bin/sh\n[ -L "$2" ]\n',
    "gcsfuse": f"#!/bin/sh\nrmdir runs && ln -s {HERE}/bucket runs\n",
}


def make_host(folder: Path) -> None:
    """Make a host with a Python that sees the packages of this one, before its own."""
    code = folder / "bert-jax"
    code.mkdir(parents=True)
    environment = code / ".venv"
    venv.create(environment, with_pip=False)
    (packages,) = environment.glob("lib/python*/site-packages")
    (own,) = Path(sys.executable).parent.parent.glob("lib/python*/site-packages")
    (packages / "packages.pth").write_text(f"{own}\n")
    for name, text in PROGRAMS.items():
        (environment / "bin" / name).write_text(text)
        (environment / "bin" / name).chmod(0o755)


def copy(archive: str) -> None:
    for folder in HERE.glob("host-*"):
        shutil.copy(archive, folder)


def run(host: int, command: str) -> int:
    folder = HERE / f"host-{host}"
    programs = folder / "bert-jax/.venv/bin"
    environment = os.environ | {
        "HOME": str(folder),
        "PATH": f"{programs}:/usr/bin:/bin",
        "JAX_PLATFORMS": "cpu",
    }
    if "on_host.sh setup" in command:
        # The installed packages are those of this machine.
        with tarfile.open(folder / "bert-jax.tar.gz") as code:
            texts = [code.extractfile(name).read() for name in ("pyproject.toml", "launch/constraints.txt")]
        (programs.parent / ".installed-tpu").write_bytes(b"".join(texts))
    code = subprocess.run(["bash", "-c", command], cwd=folder, env=environment).returncode
    if "on_host.sh setup" in command:
        for index, name, text, other in json.loads((HERE / "faults.json").read_text()):
            file = folder / "bert-jax" / name
            if index == host:
                assert text in file.read_text(), name
                file.write_text(file.read_text().replace(text, other))
    return code


def main(words: list[str]) -> int:
    flags = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
    count, made = int((HERE / "hosts").read_text()), (HERE / "host-0").exists()
    match words[2:4]:
        case ["tpu-vm", "create"]:
            for index in range(count):
                make_host(HERE / f"host-{index}")
        case ["tpu-vm", "delete"]:
            for index in range(count):
                (HERE / f"host-{index}").rename(HERE / f"deleted-{index}")
        case ["tpu-vm", "describe"] if not made:
            print("NOT_FOUND", file=sys.stderr)
            return 1
        case ["tpu-vm", "describe"]:
            addresses = "ipAddress" in flags["format"]
            print(";".join(["localhost"] * count) if addresses else "READY")
        case ["tpu-vm", "scp"]:
            copy(words[4])
        case ["tpu-vm", "ssh"]:
            return run(int(flags["worker"]), flags["command"])
        case _:
            raise SystemExit(f"not a command of this cloud: {words}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
