"""The notebooks: each runs as a script on little data with a tiny model, and is written as a page and for Jupyter."""

import ast
import importlib.util
import json
import os
import re
import runpy
import string
import subprocess
import sys
from pydoc_data import topics
from types import SimpleNamespace

import jax
import matplotlib.pyplot as plt
import pytest

import bert_jax
from bert_jax.hub import model_directory as hub
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.text.wordpiece import WordPiece
from bert_jax.training.run_config import RunConfig
from bert_jax.training.state import init_random_params
from bert_jax.training.task import Task
from tests.support.minilm import MINILM
from tests.support.project import LAUNCH, ROOT

spec = importlib.util.spec_from_file_location("notebooks", LAUNCH / "notebooks.py")
notebooks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(notebooks)
SCRIPTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(notebooks.SOURCES.glob("*.py"))}
LITTLE = {
    "PAIRS": "40",
    "STEPS": "4",
    "MODULES": "20",
    "MINUTES": "0.01",
    "PYTHONPATH": str(ROOT),
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
}
# What each leaves at its end.
LEFT = {
    "embedder": "report-published/recall.png",
    "pretrain": "run/model/model.safetensors",
    "search": "report/quality.png",
    "serving": "engines.png",
    "tickets": "report/confusion.png",
    "tpu": "page.md",
}
PUBLISHED = {"serving": MINILM}  # int8 changes a classifier of random values too much to be written
IN_CI = {"search"}  # the others take a minute or more


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A tiny encoder that reads letters."""
    letters = string.ascii_lowercase + string.digits + string.punctuation
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = EncoderConfig(vocab_size=len(tokens), **sizes)
    layout = hub.Layout(config, heads=("mlm", "nsp"))
    params = jax.jit(lambda: init_random_params(Task(layout), RunConfig()))()
    directory = tmp_path_factory.mktemp("start") / "model"
    hub.save_model(directory, layout, jax.device_get(params), WordPiece.from_vocabulary(tokens))
    return directory


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.ci if name in IN_CI else pytest.mark.long) for name in SCRIPTS],
)
def test_a_notebook_runs_as_a_script(name, start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few_words = {topic: text[:400] for topic, text in topics.topics.items()}
    monkeypatch.setattr(topics, "topics", few_words)
    for key, value in {**LITTLE, "START": PUBLISHED.get(name, str(start))}.items():
        monkeypatch.setenv(key, value)
    runpy.run_path(str(notebooks.SOURCES / f"{name}.py"), run_name="__main__")
    plt.close("all")
    assert (tmp_path / name / LEFT[name]).is_file()


@pytest.fixture
def tpu_page(tmp_path, monkeypatch):
    """Return the page that the notebook for TPUs writes, given what its commands print."""

    def run(**printed):
        def answer(command, **options):
            verb = next(word for word in ("-c", "check", "preflight", "bench") if word in command)
            error = "Traceback:\nRuntimeError: no TPU compiler"
            return SimpleNamespace(stdout=json.dumps(printed[verb]) if verb in printed else "", stderr=error)

        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(subprocess, "run", answer)
        exec(compile(SCRIPTS["tpu"], "tpu.py", "exec"), {"__name__": "__main__"})
        plt.close("all")
        return (tmp_path / "tpu/page.md").read_text()

    return run


PREDICTED = {"phases": [{"seconds": {"least": 0.0497, "serial": 0.0911}}]}


def test_the_notebook_for_tpus_shows_kernels_and_steps_beside_their_prediction(tpu_page):
    case = {"values": 0.009, "gradients": 0.011, "seconds": 0.00123, "xla_seconds": 0.002, "fault": None}
    text = tpu_page(
        **{"-c": ["tpu", "TPU v5 lite", 1, "0.12.0", "0.12.0", "0.1.0"]},
        check={"short, dropout": case, "splash, a window": case | {"fault": "its values differ"}},
        preflight=PREDICTED,
        bench={"figures": {"32 x 512": {"seconds": 0.0712}}},
    )
    assert "| short, dropout | 0.9% | 1.1% | 1.23 | 2.00 | right |" in text
    assert "its values differ" in text
    assert "on v5e:1x1, 32 rows" in text
    assert "- predicted, serial: 91.1 ms\n- measured: 71.2 ms" in text


def test_without_a_tpu_its_checks_are_skipped_and_it_says_so(tpu_page):
    text = tpu_page(**{"-c": ["cpu", "cpu", 1, "0.12.0", "0.12.0", "0.1.0"]}, preflight=PREDICTED)
    assert "There is no TPU: the kernels and the step are skipped" in text
    assert "- predicted, least: 49.7 ms" in text and "measured" not in text


def test_a_check_that_fails_on_a_tpu_stands_on_the_page_beside_the_others(tpu_page):
    machine = ["tpu", "TPU v5 lite", 8, "0.12.0", "0.12.0", "0.1.0"]
    text = tpu_page(**{"-c": machine}, bench={"figures": {"256 x 512": {"seconds": 0.08}}})
    assert text.count("failed: RuntimeError: no TPU compiler") == 2
    assert "on v5e:2x4, 256 rows" in text and "- measured: 80.0 ms" in text


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The pages and the notebooks that launch/notebooks.py writes, with an address."""
    folder = tmp_path_factory.mktemp("written")
    environment = os.environ | {"NOTEBOOKS_ADDRESS": "https://hosted.example/blob/"}
    subprocess.run([sys.executable, LAUNCH / "notebooks.py", folder], env=environment, check=True)
    return folder


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_notebook_for_jupyter_has_the_cells_of_the_script(name, written):
    notebook = json.loads((written / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    cells = notebook["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    demanded = {"cell_type", "id", "metadata", "source"}
    assert all(cell.keys() == demanded | {"outputs", "execution_count"} for cell in code)
    assert all(cell.keys() == demanded for cell in cells if cell not in code)
    assert {cell["cell_type"] for cell in cells} == {"code", "markdown"}
    together = "\n".join(cell["source"] for cell in code)
    assert ast.dump(ast.parse(together)) == ast.dump(ast.parse(SCRIPTS[name]))
    assert cells[0]["source"].startswith("# ")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_page_leads_to_its_notebook_and_to_pages_that_are_there(name, written):
    page = (written / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"[Open it in a hosted notebook](https://hosted.example/blob/{name}.ipynb)")
    links = re.findall(r"\]\((?!https:)([^)#]+)", page)
    assert len(links) > 2 and not [link for link in links if link.endswith(".py")]
    missing = [
        link
        for link in links
        if not any((folder / link).is_file() for folder in (written, notebooks.SOURCES))
    ]
    assert missing == []


def test_without_an_address_a_page_has_no_link_to_a_hosted_notebook():
    assert notebooks.make_page("tickets", [], None) == "[Download tickets.ipynb](tickets.ipynb)\n"


def test_a_page_of_a_notebook_that_was_run_shows_what_it_printed_and_its_pictures(tmp_path):
    cells = notebooks.split_cells(
        "# %% [markdown]\n# # One\n#\n# Two.\n# %%\nx = 1\n# %%\nprint(x + 1)\n"
        "import matplotlib.pyplot as plt\nplt.figure('Three')\n"
    )
    page = notebooks.make_page("small", cells, tmp_path)
    assert "# One\n\nTwo.\n\n```python\nx = 1\n```\n\n```python" in page
    assert page.endswith("```text\n2\n```\n\n![Three](small-1.png)\n")
    assert (tmp_path / "small-1.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_notebook_takes_public_names_alone(name):
    tree = ast.parse(SCRIPTS[name])
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    used = {node.attr for node in attributes if ast.unparse(node.value) == "bert_jax"}
    assert used <= {*bert_jax.__all__}
    assert not [
        node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and "bert_jax" in node.module
    ]


def test_the_first_code_installs_the_package_only_where_it_is_missing(tmp_path, monkeypatch):
    first = {
        next(text for kind, text in notebooks.split_cells(script) if kind == "code")
        for script in SCRIPTS.values()
    }
    commands = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", lambda command, **options: commands.append(command))
    for code in first:
        exec(code, {})
    assert commands == []
    (tmp_path / "bert_jax-0.1.0-py3-none-any.whl").touch()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for code in first:
        exec(code, {})
    assert len(commands) == len(first)
    assert all("bert_jax-0.1.0-py3-none-any.whl" in " ".join(command) for command in commands)
