"""The source distribution and the wheel, built as for an index and installed where nothing else is."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata

import bert_jax
from tests.support.environments import PYTHONS, find_python
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


def files(folder: str, pattern: str = "**/*.py") -> set[str]:
    return {str(path.relative_to(ROOT)) for path in (ROOT / folder).glob(pattern)}


CONFIGS = files("configs", "*.py")  # and no notebooks


def test_the_wheel_holds_the_package_and_the_configs_and_no_more(built):
    (wheel,) = built.glob("*.whl")
    inside = zipfile.ZipFile(wheel).namelist()
    package = {name for name in inside if name.startswith("bert_jax/")}
    page = {str(path.relative_to(ROOT)) for path in (ROOT / "bert_jax/serve/page").rglob("*.*")}
    assert package == files("bert_jax") | page | {"bert_jax/py.typed"}
    configs = {name.split("share/bert-jax/")[1] for name in inside if "share/bert-jax/" in name}
    assert configs == CONFIGS
    others = {name.split("/")[0] for name in inside} - {"bert_jax"}
    assert all(".dist-info" in name or ".data" in name for name in others)


def test_the_source_distribution_holds_what_the_wheel_is_built_of(built):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        inside = {name.partition("/")[2] for name in opened.getnames()}
    assert inside >= files("bert_jax") | CONFIGS | {"LICENSE", "README.md", "pyproject.toml"}


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("kind", ["*.whl", pytest.param("*.tar.gz", marks=pytest.mark.long)])
def test_on_every_python_the_installed_command_shows_its_verbs_where_nothing_else_is(
    kind, python, built, tmp_path
):
    program = find_python(python)
    if program is None:
        pytest.skip(f"Python {python} is not on this machine")
    ran(program, "-m", "venv", "--without-pip", tmp_path)
    (archive,) = built.glob(kind)
    ran(
        sys.executable,
        "-m",
        "pip",
        "--python",
        tmp_path / "bin/python",
        "install",
        "--no-deps",
        "--no-compile",
        archive,
    )
    assert "  train " in ran(tmp_path / "bin/bert-jax", cwd=tmp_path)
    assert ran(tmp_path / "bin/bert-jax", "--version", cwd=tmp_path) == f"bert-jax {bert_jax.__version__}\n"
    named = ran(tmp_path / "bin/python", "-c", "import bert_jax; print(len(dir(bert_jax)))", cwd=tmp_path)
    assert int(named) == len(bert_jax.__all__)
    assert (tmp_path / "share/bert-jax/configs/pretrain.py").is_file()


def test_an_index_shows_what_the_project_says_of_itself(built):
    """`Metadata` refuses what an index refuses."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith(".dist-info/METADATA"))
        shown = Metadata.from_email(opened.read(name), validate=True)
    assert str(shown.version) == bert_jax.__version__ == newest_version()
    assert shown.license_expression == "Apache-2.0" and shown.description_content_type == "text/markdown"
    assert shown.description == (ROOT / "README.md").read_text() and shown.keywords
    pythons = [line.rpartition(" ")[2] for line in shown.classifiers if re.search(r":: 3\.\d+$", line)]
    assert pythons == sorted(PYTHONS) and all(f"{python}.0" in shown.requires_python for python in PYTHONS)


def newest_version() -> str:
    """The version of the newest release in the changelog."""
    return re.search(r"^## \[(.*?)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.M)[1]


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
