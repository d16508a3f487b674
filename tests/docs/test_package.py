"""The source distribution and the wheel, built as for an index and installed where nothing else is."""

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support.project import ROOT

pytestmark = pytest.mark.slow
BUILT = ("pyproject.toml", "README.md", "LICENSE", "bert_jax", "configs", "launch", "tests")


def ran(*command, **kwargs) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """dist/ with both; the wheel is built from what the source distribution holds."""
    source = tmp_path_factory.mktemp("source")
    for name in BUILT:
        if (ROOT / name).is_dir():  # without what Python writes for other tests meanwhile
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    ran(sys.executable, "-m", "build", source)
    return source / "dist"


@pytest.fixture(scope="module")
def environment(built, tmp_path_factory) -> Path:
    """A virtual environment with the wheel alone, not even what it needs."""
    place = tmp_path_factory.mktemp("environment")
    ran(sys.executable, "-m", "venv", place)
    ran(place / "bin/pip", "install", "--no-deps", "--no-index", *built.glob("*.whl"))
    return place


def files(folder: str) -> set[str]:
    return {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*.py")}


def test_the_wheel_holds_the_package_and_the_configs_and_no_more(built):
    (wheel,) = built.glob("*.whl")
    inside = zipfile.ZipFile(wheel).namelist()
    package = {name for name in inside if name.startswith("bert_jax/")}
    page = {str(path.relative_to(ROOT)) for path in (ROOT / "bert_jax/serve/page").rglob("*.*")}
    assert package == files("bert_jax") | page | {"bert_jax/py.typed"}
    configs = {name.split("share/bert-jax/")[1] for name in inside if "share/bert-jax/" in name}
    assert configs == files("configs")
    others = {name.split("/")[0] for name in inside} - {"bert_jax"}
    assert all(".dist-info" in name or ".data" in name for name in others)


def test_the_source_distribution_holds_what_the_wheel_is_built_of(built):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        inside = {name.partition("/")[2] for name in opened.getnames()}
    assert inside >= files("bert_jax") | files("configs") | {"LICENSE", "README.md", "pyproject.toml"}


@pytest.mark.long
def test_the_installed_command_shows_its_verbs_where_nothing_else_is(environment, tmp_path):
    shown = ran(environment / "bin/bert-jax", cwd=tmp_path)
    assert "  train " in shown
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert ran(environment / "bin/bert-jax", "--version", cwd=tmp_path) == f"bert-jax {version}\n"
    ran(environment / "bin/python", "-c", "import bert_jax; assert bert_jax.__version__", cwd=tmp_path)
    assert (environment / "share/bert-jax/configs/pretrain.py").is_file()


@pytest.mark.long
def test_the_installed_package_trains_with_the_configs_that_came_with_it(built, tmp_path):
    """In a folder that holds nothing but texts; gigabytes are installed."""
    ran(sys.executable, "-m", "venv", tmp_path / "venv")
    (wheel,) = built.glob("*.whl")
    ran(tmp_path / "venv/bin/pip", "install", "-c", ROOT / "launch/constraints.txt", f"{wheel}[train]")
    program = tmp_path / "venv/bin/bert-jax"
    (tmp_path / "text.txt").write_text(
        "\n\n".join(f"A sheep of {n}. It ate {n * n} leaves." for n in range(400))
    )
    ran(program, "vocab", "--input", "text.txt", "--output", "vocab", "--size", "200", cwd=tmp_path)
    ran(program, "prepare", "--input", "text.txt", "--tokenizer", "vocab", "--output", "corpus", cwd=tmp_path)
    ran(
        program, "train", "--config", "configs/pretrain.py:tiny", "--config.data.corpora=corpus", "--workdir", "run",
        "--config.steps=3", "--config.data.batch_size=4", "--config.data.lengths=32", "--config.data.length_ratios=1",
        cwd=tmp_path,
    )  # fmt: skip
    assert (tmp_path / "run/model/model.safetensors").is_file()
