"""The pages for people: their commands and blocks are run as they stand, page by page, on small files and models."""

import argparse
import ast
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from contextlib import ExitStack
from itertools import chain, dropwhile
from pathlib import Path

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax import tasks
from bert_jax.command import main as cli
from bert_jax.hub import families
from bert_jax.hub import model_directory as hub
from bert_jax.hub.layout import Layout
from bert_jax.hub.m3_encoder import make_settings
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.hub.sentence_transformers import EmbedderSettings
from bert_jax.models import blocks
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.predictions import kinds
from bert_jax.text.wordpiece import WordPiece
from bert_jax.training.opened_run import preview_run
from tests.bench.command import make_parser
from tests.serve.processes import serving
from tests.support.fake_hub import running_hub
from tests.support.google_checkpoints import google_shapes, write_google_checkpoint
from tests.support.made_up_language import ENTRIES, join_documents, random_documents
from tests.support.package_order import ORDER
from tests.support.project import ROOT
from tests.support.seeded_arrays import seeded_tensors

FRONT = "README.md"
FOLDERS = ("bert_jax", "configs", "launch", "tests")
GUIDES = (
    "pretrain",
    "finetune",
    "trust",
    "embed",
    "sparse",
    "late_interaction",
    "search",
    "serve",
    "migrate",
    "convert",
    "bench",
    "SKILL",
)
RESULTS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "configs/guides/bench").glob("*.md"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = (
    FRONT,
    "CHANGELOG.md",
    "configs/README.md",
    *(f"configs/guides/{name}.md" for name in GUIDES),
    *RESULTS,
    "launch/README.md",
    "bert_jax/README.md",
    "tests/README.md",
)
# Pages that go on with what others have made, beside those that go on with the front page alone.
NEEDS = {
    "configs/guides/trust.md": ["configs/guides/finetune.md"],
    "configs/guides/search.md": ["configs/guides/embed.md"],
    "configs/guides/serve.md": [f"configs/guides/{name}.md" for name in ("finetune", "embed", "search")],
    "bert_jax/README.md": ["configs/guides/finetune.md"],
}
# Pages whose commands take minutes: CI parses them, and runs those of the other pages.
LONG = (
    *(f"configs/guides/{name}.md" for name in ("finetune", "trust", "late_interaction", "search", "serve")),
    "bert_jax/README.md",
)
TEXT = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}
PROSE = {page: re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S) for page, text in TEXT.items()}


def fenced(page: str) -> list[tuple[str, str]]:
    """The blocks of a page, each with its language."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", TEXT[page], re.M | re.S)


@pytest.mark.parametrize("page", PAGES)
def test_pages_take_public_names_alone(page):
    """A block that is a file of the package, which its first line names, takes what the package has."""
    private = []
    for language, block in fenced(page):
        is_program = language == "python" and not block.startswith("# bert_jax/")
        for node in ast.walk(ast.parse(block)) if is_program else ():
            if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "bert_jax":
                names = {alias.name for alias in node.names}
                is_public = node.module == "bert_jax.sklearn" or names <= set(bert_jax.__all__)
                private += [] if is_public else [ast.unparse(node)]
            elif isinstance(node, ast.Import):
                private += [alias.name for alias in node.names if alias.name.startswith("bert_jax.")]
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "bert_jax":
                private += [] if node.attr in bert_jax.__all__ else [node.attr]
    assert private == []


WIDTH = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
MODEL = [f"model.{name}={value}" for name, value in WIDTH.items()]
FEW = ["epochs=1", "data.folds=0", "report=False"]
# What makes a command small, by its config and then by its workdir.
LITTLE = {
    "configs/pretrain.py": [*MODEL, "steps=4", "data.batch_size=8", "data.lengths=32", "data.length_ratios=1",
                            "data.dupe_factor=1",
                            "optimizer.warmup_steps=2", "log.max_eval_batches=2"],
    "configs/classify.py": [*FEW, "data.max_length=32"],
    "classify": [*FEW, "data.max_length=32"],
    "configs/tag.py": [*FEW, "data.max_length=32", "data.overlap=8", "data.calibration_ratio=0"],
    "configs/answer.py": [*FEW, "data.max_length=48", "data.overlap=8", "data.calibration_ratio=0"],
    "configs/embed.py": ["steps=2", "data.batch_size=8", "data.max_length=16"],
    "configs/sparse.py": ["steps=2", "data.batch_size=8", "data.max_length=16"],
    "configs/late_interaction.py": ["steps=2", "data.batch_size=8", "data.max_length=16"],
    "configs/rerank.py": ["steps=2", "data.batch_size=8", "data.max_length=32"],
    "runs/half": ["data.batch_size=8", "data.lengths=32"],
    "runs/taught": ["data.batch_size=8", "data.lengths=32"],
    "runs/reviews": ["data.calibration_ratio=0.5", "report=True"],
    "runs/sweep": ["num_seeds=1", "method=finetune"],
}  # fmt: skip
# No later command opens the models of these runs: their config and data are read, and the tests of their tasks train.
NOT_OPENED = {
    f"runs/{name}"
    for name in (
        "half",
        "taught",
        "continued",
        "base-gpu",
        "alibi",
        "topics",
        "stars",
        "faster",
        "sharper",
        "sparse",
    )
}
# Nor are these: a run of the same kind takes the place of theirs.
SAME_KIND = {"runs/base": "runs/tiny", "runs/alike": "runs/search", "runs/docs": "runs/search"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with what a person who types these commands has in theirs."""
    folder = tmp_path_factory.mktemp("readme")
    for name in ("configs", "launch", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    texts = random_documents(80, seed=3)
    (folder / "texts").mkdir()
    for n in range(2):
        (folder / f"texts/{n}.txt").write_text(join_documents(texts[n::2]))
    config = EncoderConfig(vocab_size=len(ENTRIES), **WIDTH)
    layout = Layout(config, heads=("mlm", "nsp"))
    batch = {name: np.ones((1, 4), np.int32) for name in ("input_ids", "token_type_ids", "attention_mask")}
    params = jax.jit(layout.module.init)(jax.random.key(0), batch)["params"]
    hub.save_model(folder / "path/to/bert", layout, params, WordPiece.from_vocabulary(ENTRIES))
    m3 = make_settings(EmbedderSettings(pooling="cls"), 32)
    with_layers = Layout(config, pooler=False, embedder=m3.embedder, m3=m3)
    params = jax.jit(with_layers.init)(jax.random.key(0))
    hub.save_model(folder / "path/to/bge-m3", with_layers, params, WordPiece.from_vocabulary(ENTRIES))
    (folder / "google/uncased_L-12_H-768_A-12").mkdir(parents=True)
    write_google_checkpoint(
        folder / "google/uncased_L-12_H-768_A-12", seeded_tensors(google_shapes(), seed=3)
    )
    sentences = [" ".join(words) for document in texts for words in document]
    labelled(folder, sentences)
    belonging(folder, sentences)
    (folder / "docs").mkdir()
    for n in range(20):
        (folder / f"docs/{n}.md").write_text(f"# {sentences[n]}\n\n" + " ".join(sentences[n : n + 3]))
    settings = (ROOT / "launch/settings.sh").read_text().replace("project= ", "project=mine ")
    (folder / "settings.sh").write_text(settings + "\nruns=gs://b/runs\ncorpus=gs://b/corpus\n")
    found_by_file = (blocks, families, kinds, tasks)
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
    (folder / "nli.csv").write_text(
        "text,pair,label\n"
        + "".join(f'"{t}","{t}",{("entailment", "neutral", "contradiction")[n % 3]}\n' for n, t in few)
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
    pairs = list(zip(texts[:40], texts[40:80], strict=True))
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
    """The words of each command, without what it sets for the shell."""
    lines = [shlex.split(line, comments=True) for line in block.replace("\\\n", " ").splitlines()]
    rest = [list(dropwhile(lambda word: re.match(r"\w+=", word), words)) for words in lines]
    return [words for words in rest if words]


def smaller(words: list[str]) -> list[str]:
    """The command with what makes it small said last, where it counts."""
    little = (LITTLE.get(word.split(":")[0], []) for word in words)
    return [*words, *(f"--config.{setting}" for settings in little for setting in settings)]


def run(words: list[str], capfd) -> None:
    program, *arguments = words
    if words[:2] == ["bert-jax", "serve"]:
        SERVER.start(arguments)
    elif program == "curl":
        SERVER.ask(arguments)
    elif program == "bert-jax" and arguments[0] in ("preflight", "bench"):
        parsed(arguments)  # tests/pod compiles for a slice, tests/command/test_bench*.py measure
    elif program == "bert-jax" and {"--ray", "--vectors"} & set(arguments):
        parsed(arguments)  # tests/cluster has clusters
    elif program in ("kubectl", "ray"):
        files = [arguments[place + 1] for place, word in enumerate(arguments) if word == "-f"]
        assert all(Path(file).is_file() for file in files)
    elif words[:3] == ["python", "-m", "tests.bench"]:
        make_parser().parse_args(words[3:])  # the tests in tests/bench run some of them
    elif words[:2] == ["bert-jax", "train"] and (NOT_OPENED | SAME_KIND.keys()) & {*arguments}:
        train = parsed(smaller(arguments))
        preview_run(*tasks.load_config(train.config, train.overrides), ModelDirectories())
        if train.workdir in SAME_KIND:
            shutil.copytree(SAME_KIND[train.workdir], train.workdir, dirs_exist_ok=True)
    elif program == "bert-jax":
        assert cli.main(smaller(arguments)) == 0, f"{shlex.join(words)}: {capfd.readouterr().err}"
    elif program == "pip":
        extras = re.search(r"\.(?:\[([\w,]+)\])?$", words[-1])[1]
        assert {*filter(None, (extras or "").split(","))} <= set(PROJECT["optional-dependencies"])
    elif program == "launch/local_pod.sh":
        parsed(arguments[1:])  # tests/training/test_processes.py runs several processes
    elif program in ("launch/quickstart.sh", "launch/test.sh", "launch/light.sh", "tests/bench/all.sh"):
        assert os.access(ROOT / program, os.X_OK)  # it is running this test, or installs for minutes
    else:
        of_a_slice = [program, "--settings", "settings.sh", "--dry-run", *arguments]
        ran = subprocess.run(of_a_slice, capture_output=True, text=True)
        assert ran.returncode == 0 and "gcloud" in ran.stdout, f"{shlex.join(words)}: {ran.stderr}"


class Server:
    """The server of a page, which answers until the page starts another or ends."""

    def __init__(self):
        self.stack, self.address = ExitStack(), ""

    def start(self, arguments: list[str]) -> None:
        self.stop()
        assert parsed(arguments).port == 3000
        rest = shlex.split(shlex.join(arguments[1:]).replace("--port 3000", ""))
        self.address = self.stack.enter_context(serving({}, *rest, "--no-warm-up"))

    def ask(self, arguments: list[str]) -> None:
        address = arguments[0].replace("localhost:3000", self.address)
        command = ["curl", "--silent", "--show-error", "--fail-with-body", address, *arguments[1:]]
        ran = subprocess.run(command, capture_output=True, text=True)
        shown = f"{shlex.join(arguments)}: {ran.stdout}{ran.stderr}"
        assert ran.returncode == 0 and json.loads(ran.stdout), shown

    def stop(self) -> None:
        self.stack.close()


SERVER = Server()


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = cli.make_parser(arguments[0])
    return parser.parse_args(arguments[1:])


def take_up(module: str, code: str) -> None:
    """Writes an example that is a file of the package, and lets the package find it."""
    path = Path(module)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    importlib.import_module(str(path.parent).replace("/", ".")).__path__.append(str(path.parent.absolute()))


def run_page(page: str, capfd) -> None:
    try:
        with running_hub():
            run_blocks(page, capfd)
    finally:
        SERVER.stop()


def run_blocks(page: str, capfd) -> None:
    scope = {"__name__": "page"}
    for language, block in fenced(page):
        module = re.match(r"# (bert_jax/\S+\.py)\n", block)
        if language == "sh":
            for words in commands(block):
                run(words, capfd)
        elif block.startswith("# pip install"):
            continue  # other packages: tests/search/test_export.py, tests/serve/test_guide_clients.py, tests/peers
        elif module:
            assert block.count("\n") < 40, "an example to read at a glance"
            take_up(module[1], block)
        elif language == "python":
            exec(compile(block, page, "exec"), scope)
        else:
            assert language == "text"


@pytest.fixture(scope="module")
def run_through(place):
    """Runs a page, and before it those that it goes on with, each once."""
    done: list[str] = []

    def through(page: str, capfd) -> None:
        for name in (FRONT, *NEEDS.get(page, ()), page):
            if name not in done:
                done.append(name)  # a page that fails is not run again by those that need it
                run_page(name, capfd)

    return through


@pytest.mark.ci
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.long] * (page in LONG)) for page in PAGES]
)
def test_every_command_and_block_of(page, run_through, capfd):
    run_through(page, capfd)


@pytest.mark.parametrize("page", LONG)
def test_commands_of_a_long_page_can_be_typed(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    adds_tasks = page == "bert_jax/README.md"  # which trains tasks that are not in the package
    blocks = [block for language, block in fenced(page) if language == "sh"]
    for program, *words in chain.from_iterable(map(commands, blocks)):
        arguments = parsed(words) if program == "bert-jax" else None
        if arguments and words[0] == "train" and not adds_tasks:
            tasks.load_config(arguments.config, arguments.overrides)


@pytest.mark.ci
def test_what_the_front_page_leaves(run_through, capfd):
    run_through(FRONT, capfd)
    predicted = [json.loads(line) for line in Path("predictions.jsonl").read_text().splitlines()]
    assert len(predicted) == 20 and np.load("vectors.npy").shape == (20, 32)


@pytest.mark.long
def test_examples_become_a_part_of_the_package(run_through, capfd):
    run_through("bert_jax/README.md", capfd)
    of_words = json.loads(Path("runs/spot/model/config.json").read_text())
    assert of_words["architectures"] == ["BertForTokenClassification"]
    lines = [json.loads(line) for line in Path("runs/rdrop/metrics.jsonl").read_text().splitlines()]
    assert {line["kind"] for line in lines if "consistency_loss" in line} == {"train"}
    of_block = json.loads(Path("runs/pre-norm/model/config.json").read_text())
    assert of_block["model_type"] == "bert-pre-norm"
    assert bert_jax.load("runs/pre-norm/model").config.block == "pre_norm"
    grades = [json.loads(line)["grade"] for line in Path("grades.jsonl").read_text().splitlines()]
    assert len(grades) == 20 and {type(grade) for grade in grades} == {int}
    Path("bert_jax/hub/families/bert_pre_norm.py").unlink()
    words = shlex.split(
        "train --config configs/pretrain.py:tiny --config.data.corpora=corpus --workdir runs/nameless"
    )
    assert cli.main(smaller([*words, "--config.model.block=pre_norm"])) == 1
    assert "pre_norm" in capfd.readouterr().err


@pytest.mark.slow
def test_a_family_member_computes_what_it_is_published_for(tmp_path, monkeypatch):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    file = "# bert_jax/hub/families/data2vec_text.py"
    code = next(block for _, block in fenced("bert_jax/README.md") if block.startswith(file))
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path)])
    (tmp_path / "data2vec_text.py").write_text(code)
    config = transformers.Data2VecTextConfig(
        vocab_size=len(ENTRIES), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=40,
    )  # fmt: skip
    theirs = transformers.Data2VecTextModel(config).eval()
    theirs.save_pretrained(tmp_path)
    WordPiece.from_vocabulary(ENTRIES).save(tmp_path)
    ours = bert_jax.load(tmp_path)
    ids = np.random.RandomState(0).randint(5, 900, (2, 11))
    batch = {"input_ids": ids, "token_type_ids": np.zeros_like(ids), "attention_mask": np.ones_like(ids)}
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
        assert re.search(r"pre-trained here: [+-][\d.]+ points \(95% interval", ran.stdout)
        assert re.search(r"1  0\.\d+  reference.jsonl", ran.stdout), "the search has found something"
    assert re.search(r"0 new, 0 changed, [1-9]\d* unchanged", ran.stdout + ran.stderr)
    assert (ran.stdout + ran.stderr).count("already finished, at step 600") == 1
    assert (tmp_path / "runs/quickstart/pretrained/curves.png").is_file()
    assert (tmp_path / "runs/quickstart/result.png").is_file()


TYPED = [
    (page, line) for page in PAGES for line in sorted(set(re.findall(r"`(bert-jax [^`]+)`", PROSE[page])))
]


@pytest.mark.parametrize(("page", "written"), TYPED)
def test_commands_within_the_text_can_be_typed(page, written):
    verb, *words = shlex.split(written)[1:]
    parser = cli.make_parser(verb)
    if verb == "bench" and words:  # these stand in full
        parser.parse_args(words)
    known = {flag for action in parser._actions for flag in action.option_strings}
    flags = {word.split("=")[0] for word in words if word.startswith("--")}
    assert verb == "bench" or {flag for flag in flags if not flag.startswith("--config.")} <= known


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page):
    """Files within the text, and the pages and headings that links lead to."""
    names = re.findall(r"`([\w./]+/[\w.]*)", PROSE[page])
    paths = {ROOT / name for name in names if name.split("/")[0] in FOLDERS}
    # `runs/` is a room of the package, and the folder of a person's runs.
    rooms = [name for name in names if name.split("/")[0] in ORDER]
    paths |= {ROOT / "bert_jax" / name for name in rooms if name.endswith(".py") or name[:5] != "runs/"}
    if page == "bert_jax/README.md":
        modules = set(re.findall(r"`(\w+\.py)`", PROSE[page]))
        assert len(modules) >= 10 and modules <= {file.name for file in (ROOT / "bert_jax").rglob("*.py")}
    for target, heading in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", PROSE[page]):
        paths.add(path := (ROOT / page).parent / target)
        if heading:
            titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.M)
            slugs = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
            assert heading in slugs  # as GitHub makes them
    assert paths and not [path for path in paths if not path.exists()]


def test_what_assistants_read_leads_to_every_guide_that_is_there():
    """llms.txt: a title, a summary, and sections of links (https://llmstxt.org)."""
    file = ROOT / "configs/guides/llms.txt"
    text = file.read_text(encoding="utf-8")
    assert re.match(r"# .+\n\n> .+\n\n", text)
    lines = [
        line for line in text.partition("\n## ")[2].splitlines()[1:] if line and not line.startswith("## ")
    ]
    linked = {file.parent / re.fullmatch(r"- \[.+?\]\((.+?)\): .+", line)[1] for line in lines}
    assert not [path for path in linked if not path.is_file()]
    guides = {path for path in file.parent.glob("*.md") if path.name != "bench.md"}
    assert guides <= linked


def test_the_skill_says_when_it_is_used():
    """By the frontmatter of Agent Skills: a name of small letters, and a description of at most 1,024 characters."""
    ((name, description),) = re.findall(
        r"\A---\nname: ([a-z-]{1,64})\ndescription: (.+)\n---\n", TEXT["configs/guides/SKILL.md"]
    )
    assert (
        name == "bert-jax"
        and "Use when" in description
        and len(description) <= 1024
        and ": " not in description
    )


def test_every_page_is_among_those_that_are_run():
    pages = {path.relative_to(ROOT) for name in FOLDERS for path in (ROOT / name).rglob("*.md")}
    pages |= {path.relative_to(ROOT) for path in ROOT.glob("*.md")}
    assert {*map(str, pages)} == set(PAGES)


def test_the_front_page_and_those_of_results_are_short():
    words = {page: len(TEXT[page].split()) for page in (FRONT, "configs/guides/bench.md", *RESULTS)}
    assert words.pop(FRONT) < 1_900 and TEXT[FRONT].count("\n") < 200
    assert max(words.values()) < 1_000


def test_the_loop_of_your_own_is_that_which_learns():
    """tests/runs/test_train.py runs it long enough to see that."""
    code = (ROOT / "tests/examples/custom_loop.py").read_text(encoding="utf-8").partition("\n\n")[2]
    blocks = [block for _, block in fenced("bert_jax/README.md")]
    assert code.replace('"model"', '"path/to/bert"') in blocks


def test_the_drawing_shows_every_room_in_its_place():
    drawing = next(block for language, block in fenced("bert_jax/README.md") if language == "text")
    rooms = [name for name in ORDER if (ROOT / "bert_jax" / name).is_dir()]
    shown = re.findall(r"│ (?:  )*(\w+)/(?:\w+/)? ", drawing)
    assert list(dict.fromkeys(shown)) == rooms
