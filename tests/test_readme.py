"""README.md: its commands and blocks are run as they stand, in the order of the page, on small files and models."""

import argparse
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest

import bert_jax
import corpora
from bert_jax import tasks
from bert_jax.command import main as cli
from bert_jax.hub import directory as hub
from bert_jax.hub import families
from bert_jax.hub.layout import Layout
from bert_jax.models import blocks
from bert_jax.models.config import EncoderConfig
from bert_jax.text.wordpiece import WordPiece
from runs import ROOT
from seeded import seeded_tensors
from test_google import checkpoint, google_shapes

README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCED = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.M | re.S)
WIDTH = {"layers": 1, "hidden_size": 32, "heads": 2, "feed_forward": 64}
MODEL = [f"model.{name}={value}" for name, value in WIDTH.items()]
FEW = ["epochs=1", "data.folds=2"]
LITTLE = {
    "configs/pretrain.py": [*MODEL, "steps=4", "data.batch=8", "data.lengths=32", "data.shares=1", "data.plans=1",
                            "optimizer.warmup=2", "log.evaluate_batches=2"],
    "configs/classify.py": [*FEW, "data.max_length=32", "data.calibration_share=0.5"],
    "configs/tag.py": [*FEW, "data.max_length=32", "data.overlap=8", "data.calibration_share=0"],
    "configs/answer.py": [*FEW, "data.max_length=48", "data.overlap=8", "data.calibration_share=0"],
    "configs/embed.py": ["steps=2", "data.batch=8", "data.max_length=16"],
    "configs/rerank.py": ["steps=2", "data.batch=8", "data.max_length=32"],
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory):
    """A folder with what a person who types these commands has in theirs."""
    folder = tmp_path_factory.mktemp("readme")
    for name in ("configs", "launch", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    texts = corpora.made_up(80, seed=3)
    (folder / "texts").mkdir()
    for n in range(2):
        (folder / f"texts/{n}.txt").write_text(corpora.written(texts[n::2]))
    config = EncoderConfig(vocab_size=len(corpora.ENTRIES), **WIDTH)
    layout = Layout(config, heads=("mlm", "nsp"))
    batch = {name: np.ones((1, 4), np.int32) for name in ("tokens", "segments", "mask")}
    params = jax.jit(layout.module.init)(jax.random.key(0), batch)["params"]
    hub.save(folder / "path/to/bert", layout, params, WordPiece.from_vocabulary(corpora.ENTRIES))
    (folder / "google/uncased_L-12_H-768_A-12").mkdir(parents=True)
    checkpoint(folder / "google/uncased_L-12_H-768_A-12", seeded_tensors(google_shapes(), seed=3))
    sentences = [" ".join(words) for document in texts for words in document]
    labelled(folder, sentences)
    belonging(folder, sentences)
    found_by_file = (blocks, families, tasks)
    before = Path.cwd(), list(sys.path), [list(package.__path__) for package in found_by_file]
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    yield folder
    os.chdir(before[0])
    sys.path[:] = before[1]
    for package, paths in zip(found_by_file, before[2], strict=True):
        package.__path__ = paths


def labelled(folder: Path, texts: list[str]) -> None:
    """Four texts of five are good, so that a model that learnt little is right often enough to be believed."""
    for name, part in {"train": texts[:240], "dev": texts[240:300], "test": texts[300:400]}.items():
        rows = [f'"{text}",{"bad" if n % 5 == 0 else "good"}' for n, text in enumerate(part)]
        (folder / f"{name}.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    (folder / "reviews.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[:20]))
    (folder / "lines.txt").write_text("\n".join(texts[:20]) + "\n")
    few = list(enumerate(texts[:200]))
    (folder / "topics.csv").write_text(
        "text,topics\n"
        + "".join(f'"{t}","{"war" if n % 2 else ""},{"sea" if n % 3 else "sky"}"\n' for n, t in few)
    )
    (folder / "stars.csv").write_text("text,stars\n" + "".join(f'"{t}",{n % 5}\n' for n, t in few))
    sentences = (
        "\n".join(f"{word} {'B-PER' if n == 1 else 'O'}" for n, word in enumerate(t.split())) for _, t in few
    )
    (folder / "names.conll").write_text("\n\n".join(sentences) + "\n")
    asked = (f'where?,"{t}","{t.split()[len(t.split()) // 2]}"\n' for _, t in few)
    (folder / "questions.csv").write_text("question,context,answer\n" + "".join(asked))


def belonging(folder: Path, texts: list[str]) -> None:
    """Pairs of texts, some with scores; documents and queries."""
    pairs = list(zip(texts[:60], texts[60:120], strict=True))
    rows = [{"question": a, "passage": b} for a, b in pairs]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    scored = [f'"{a}","{b}",{n % 6}' for n, (a, b) in enumerate(pairs)]
    (folder / "scored.csv").write_text("\n".join(["first,second,score", *scored]) + "\n")
    collection = folder / "collection"
    collection.mkdir()
    for name, side in (("queries", 0), ("corpus", 1)):
        lines = [json.dumps({"_id": str(n), "text": pair[side]}) for n, pair in enumerate(pairs)]
        (collection / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    judged = [f"{n}\t{n}\t1" for n in range(len(pairs))]
    (collection / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n")


def commands(block: str) -> list[list[str]]:
    lines = block.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


def smaller(words: list[str]) -> list[str]:
    """The command with what makes it small said last, where it counts."""
    file = next((word.split(":")[0] for word in words if word.startswith("configs/")), None)
    return [*words, *(f"--config.{setting}" for setting in LITTLE.get(file, []))]


def run(words: list[str], capfd) -> None:
    program, *arguments = smaller(words)
    if program == "bert-jax" and arguments[0] in ("preflight", "bench"):
        parsed(arguments)  # tests/test_preflight.py compiles for a slice, tests/test_bench*.py measure
    elif program == "bert-jax":
        assert cli.main(arguments) == 0, f"{shlex.join(words)}: {capfd.readouterr().err}"
    elif program == "pip":
        extra = re.search(r"\[(\w+)\]", words[-1])[1]
        assert (
            extra in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        )
    elif program == "launch/local_pod.sh":
        parsed(arguments[1:])  # tests/test_processes.py runs several processes
    elif program == "launch/create.sh":
        settings = (ROOT / "launch/settings.sh").read_text().replace("project= ", "project=mine ")
        Path("settings.sh").write_text(settings + "\nruns=gs://b/runs\ncorpus=gs://b/corpus\n")
        ran = subprocess.run([*words, "--settings", "settings.sh"], capture_output=True, text=True)
        assert ran.returncode == 0 and "gcloud" in ran.stdout, ran.stderr
    else:  # what the page begins with: it is running this test, or runs for minutes
        assert words in (["launch/quickstart.sh"], ["launch/test.sh"]) and os.access(program, os.X_OK)


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = cli.parser_of(arguments[0])
    return parser.parse_args(arguments[1:])


def take_up(module: str, code: str) -> None:
    """Writes an example that is a file of the package, and lets the package find it."""
    path = Path(module)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    importlib.import_module(str(path.parent).replace("/", ".")).__path__.append(str(path.parent.absolute()))


@pytest.mark.slow
def test_every_command_and_block_in_the_order_of_the_page(capfd):
    scope = {"__name__": "readme"}
    for language, block in FENCED:
        module = re.match(r"# (bert_jax/\S+\.py)\n", block)
        if language == "sh":
            for words in commands(block):
                run(words, capfd)
        elif module:
            assert block.count("\n") < 40, "an example to read at a glance"
            take_up(module[1], block)
        elif language == "python":
            exec(compile(block, "README.md", "exec"), scope)
        else:
            assert language == "text"
    of_words = json.loads(Path("runs/spot/model/config.json").read_text())
    assert of_words["architectures"] == ["BertForTokenClassification"]
    found = [json.loads(line) for line in Path("predictions.jsonl").read_text().splitlines()]
    assert len(found) == 20 and np.load("vectors.npy").shape == (20, 32)
    a_block_in_a_family_of_its_own(capfd)


def a_block_in_a_family_of_its_own(capfd) -> None:
    words = shlex.split(
        "train --config configs/pretrain.py:tiny --config.data.corpora=corpus --workdir runs/pre-norm"
    )
    assert cli.main(smaller([*words, "--config.model.block=pre_norm"])) == 0, capfd.readouterr().err
    assert json.loads(Path("runs/pre-norm/model/config.json").read_text())["model_type"] == "bert-pre-norm"
    assert bert_jax.load("runs/pre-norm/model").config.block == "pre_norm"
    Path("bert_jax/hub/families/bert_pre_norm.py").unlink()
    words[-1] = "runs/nameless"
    assert cli.main(smaller([*words, "--config.model.block=pre_norm"])) == 1
    assert "no family publishes models with block = pre_norm" in capfd.readouterr().err


@pytest.mark.slow
def test_a_family_member_computes_what_it_is_published_for(tmp_path, monkeypatch):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    code = next(block for _, block in FENCED if block.startswith("# bert_jax/hub/families/data2vec_text.py"))
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path)])
    (tmp_path / "data2vec_text.py").write_text(code)
    config = transformers.Data2VecTextConfig(
        vocab_size=len(corpora.ENTRIES), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=40,
    )  # fmt: skip
    theirs = transformers.Data2VecTextModel(config).eval()
    theirs.save_pretrained(tmp_path)
    WordPiece.from_vocabulary(corpora.ENTRIES).save(tmp_path)
    ours = bert_jax.load(tmp_path)
    ids = np.random.RandomState(0).randint(5, 900, (2, 11))
    batch = {"tokens": ids, "segments": np.zeros_like(ids), "mask": np.ones_like(ids)}
    hidden = ours.module.apply({"params": ours.params}, batch)["hidden"]
    with torch.no_grad():
        expected = theirs(torch.tensor(ids)).last_hidden_state.numpy()
    np.testing.assert_allclose(hidden, expected, atol=1e-5)


@pytest.mark.long
def test_the_quickstart_from_nothing_and_again(tmp_path):
    for name in ("pyproject.toml", "README.md", "LICENSE", "bert_jax", "configs", "launch"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    for _ in range(2):
        ran = subprocess.run(["launch/quickstart.sh"], cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert re.search(r"pre-training brings [+-][\d.]+ points", ran.stdout)
    assert ran.stderr.count("already finished, at step 750") == 1, "the second run reuses what is there"
    assert (tmp_path / "runs/quickstart/pretrained/curves.png").is_file()


PROSE = re.sub(r"^```.*?^```$", "", README, flags=re.M | re.S)


@pytest.mark.parametrize("written", sorted(set(re.findall(r"`(bert-jax [^`]+)`", PROSE))))
def test_commands_within_the_text_can_be_typed(written):
    verb, *words = shlex.split(written)[1:]
    parser = cli.parser_of(verb)
    if verb == "bench":  # these stand in full
        parser.parse_args(words)
    known = {flag for action in parser._actions for flag in action.option_strings}
    flags = {word.split("=")[0] for word in words if word.startswith("--")}
    assert verb == "bench" or {flag for flag in flags if not flag.startswith("--config.")} <= known


def test_files_within_the_text_are_there():
    mentioned = set(
        re.findall(r"[`(]((?:tests|launch|configs|bert_jax)/[\w./]+?\.(?:py|sh|md|txt|png))", PROSE)
    )
    mentioned |= {f"bert_jax/{name}" for name in re.findall(r"`((?:tasks|data|models|hub)/\w+\.py)`", PROSE)}
    assert len(mentioned) > 10
    assert not [name for name in mentioned if not (ROOT / name).exists()]


def test_what_is_installed_by_the_quickstart_is_enough():
    """The journey needs nothing that only the tests have."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for_tests = {re.match(r"[\w-]+", line)[0] for line in extras["dev"]} - {"bert-jax"}
    imported = set()
    for path in (ROOT / "bert_jax").rglob("*.py"):
        imported |= set(re.findall(r"^\s*(?:import|from) (\w+)", path.read_text(encoding="utf-8"), re.M))
    assert not imported & {name.replace("-", "_") for name in for_tests}
