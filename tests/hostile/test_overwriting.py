"""A finished output in the place of another: no verb and no function that writes loses what was there."""

import inspect
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import bert_jax
from bert_jax.command import main as cli
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from tests.hostile.commands import OUTPUTS, TINY, actions_of, train
from tests.hostile.outcomes import LONGEST

ONLY_READ = {
    "bench", "check", "config", "fill-mask", "info", "inspect", "preflight", "score", "search", "serve",
}  # fmt: skip
# The flags that name one file, which is replaced as by any program.
FILES = {"predict --output", "pairs --output", "mine --output", "rerank --output", "index --export"}
QUICK = {"steps": 0, "embedding_init": "random"}


def pretrain(**settings) -> list[str]:
    keys = TINY | QUICK | {"data.corpora": "{root}/corpus"} | settings
    flags = [f"--config.{name}={value}" for name, value in keys.items()]
    return [*train("pretrain")[:3], "--workdir", "{out}", *flags]


def report(*of: str) -> list[str]:
    return ["evaluate", *of, "--report", "{out}", "--json"]


SWEEP = {"sweep": "lr=[0.001]"}
OF_MODEL = ("--model", "{root}/classifier", "--data", "{root}/labelled.jsonl")
OF_INDEX = ("--index", "{root}/indexed", "--data", "{root}/collection")
EMBED = ["embed", "--model", "{root}/masked", "--output", "{out}", "--input"]
# How the material is made that others have not made, and, for each verb: what stands in the place, and the command.
MADE = {
    "sweep": pretrain(**SWEEP),
    "report": report(*OF_MODEL),
    "vectors": [*EMBED, "{root}/lines.txt"],
    "run": pretrain(),
    "indexed": ["index", "{root}/labelled.jsonl", "--output", "{out}"],
}
OVER: dict[str, tuple[str, list[str]]] = {
    "vocab --output": (
        "vocabulary", ["vocab", "--input", "{root}/text.txt", "--size", "500", "--output", "{out}"]),
    "vocab --output, of a model": (
        "classifier",
        ["vocab", "--input", "{root}/text.txt", "--extend", "{root}/masked", "--size", "9", "--output", "{out}"]),
    "prepare --output": (
        "corpus", ["prepare", "--input", "{root}/lines.txt", "--tokenizer", "{root}/vocabulary", "--output", "{out}"]),
    "train --workdir": ("run", pretrain(seed=7)),
    "train --workdir, of a sweep": ("sweep", pretrain(sweep="lr=[0.002]")),
    "train --workdir, a run over a sweep": ("sweep", pretrain()),
    "train --workdir, a sweep over a run": ("run", pretrain(**SWEEP)),
    "export --output": ("classifier", ["export", "{root}/run", "--output", "{out}"]),
    "export --output, of ONNX": (
        "exported", ["export", "{root}/masked", "--format", "onnx", "--output", "{out}"]),
    "export --output, ONNX over a model": (
        "classifier", ["export", "{root}/masked", "--format", "onnx", "--output", "{out}"]),
    "export --output, static over a model": (
        "classifier", ["export", "{root}/masked", "--format", "static", "--output", "{out}"]),
    "import destination": ("classifier", ["import", "{root}/masked", "{out}"]),
    "evaluate --report": ("report", report(*OF_MODEL)),
    "evaluate --report, of two": (
        "report", report("--compare", "bm25", "{root}/masked", "--data", "{root}/collection")),
    "evaluate --report, of an index": ("report", report(*OF_INDEX)),
    "embed --output": ("vectors", [*EMBED, "{root}/text.txt"]),
    "index --output": ("indexed", ["index", "{root}/more.jsonl", "--output", "{out}"]),
}  # fmt: skip
TABLE = ([f"w{n} w{n + 1}" for n in range(60)], [n % 2 for n in range(60)])
PYTHON: dict[str, tuple[str, Callable[[Path, Path], object]]] = {
    "Encoder.save": ("classifier", lambda root, out: bert_jax.load(root / "masked").save(out)),
    "TrainingTask.save": ("classifier", lambda root, out: save_task(root, out)),
    "Index.build": (
        "indexed", lambda root, out: bert_jax.Index.build(str(root / "more.jsonl"), out)),
    "train.workdir": (
        "run",
        lambda root, out: bert_jax.train("pretrain", workdir=out, data={"corpora": root / "corpus"}, steps=1)),
    "finetune.workdir": (
        "run",
        lambda root, out: bert_jax.finetune(root / "masked", *TABLE, workdir=out, data={"max_length": 32})),
    "prepare.output": (
        "corpus", lambda root, out: bert_jax.prepare(root / "lines.txt", root / "vocabulary", out)),
    "train_tokenizer.output": (
        "vocabulary", lambda root, out: bert_jax.train_tokenizer(root / "text.txt", out, size=500)),
    "evaluate.report": (
        "report",
        lambda root, out: bert_jax.evaluate(root / "classifier", root / "labelled.jsonl", report=out)),
    "compare.report": (
        "report",
        lambda root, out: bert_jax.compare("bm25", root / "masked", root / "collection", report=out)),
    "evaluate_index.report": (
        "report",
        lambda root, out: bert_jax.evaluate_index(root / "indexed", root / "collection", report=out)),
}  # fmt: skip
NOT_WRITTEN = {"mine_hard_negatives.output", "Run.workdir", "follow.workdir"}  # a file, and where a result is


@pytest.fixture(scope="module")
def root(small, tmp_path_factory):
    root = shutil.copytree(small, tmp_path_factory.mktemp("finished") / "root")
    (root / "more.jsonl").write_text('{"id": 0, "text": "another"}\n')
    (root / "collection" / "qrels").mkdir(parents=True)
    for name, count in (("corpus", 9), ("queries", 3)):
        rows = [{"_id": str(n), "text": f"w{n} w{n + 1}"} for n in range(count)]
        (root / "collection" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = "query-id\tcorpus-id\tscore\n0\t0\t1\n1\t1\t1\n2\t2\t1\n"
    (root / "collection" / "qrels" / "test.tsv").write_text(judged)
    for name, command in MADE.items():
        assert main(fill_in(command, root, root / name)) == 0
    return root


def content(folder: Path) -> dict[str, bytes]:
    """All that somebody would miss; locks, and the vectors that are kept for an attempt that was refused, are not."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def fill_in(words: list[str], root: Path, out: Path) -> list[str]:
    return [word.replace("{root}", str(root)).replace("{out}", str(out)) for word in words]


@pytest.mark.ci
@pytest.mark.parametrize("name", OVER)
def test_a_verb_writes_over_no_finished_output(name, root, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(root / OVER[name][0], out)
    before = content(out)
    assert main(fill_in(OVER[name][1], root, out)) == 1
    complaints = [line for line in capsys.readouterr().err.splitlines() if line.startswith("bert-jax ")]
    assert len(complaints) == 1 and len(complaints[0]) < LONGEST
    assert str(out) in complaints[0] or "another source" in complaints[0]
    assert content(out) == before and os.listdir(tmp_path) == ["out"]


@pytest.mark.ci
@pytest.mark.parametrize("name", PYTHON)
def test_a_function_writes_over_no_finished_output(name, root, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(root / PYTHON[name][0], out)
    before = content(out)
    with pytest.raises(BertJaxError) as refused:
        PYTHON[name][1](root, out)
    assert str(out) in str(refused.value) and content(out) == before and os.listdir(tmp_path) == ["out"]


def save_task(root: Path, out: Path) -> None:
    data = {"train": root / "labelled.jsonl", "folds": 0, "max_length": 32}
    task = bert_jax.open_task("classify", init=root / "masked", method="finetune", data=data, epochs=1)
    task.save(out, task.initial_params())


def test_the_tables_hold_every_verb_and_function_that_writes():
    places = {*OUTPUTS, "--export"} - {"--profile"}
    for verb in cli.VERBS:
        flags = [] if verb in ONLY_READ else [
            action.option_strings[-1] if action.option_strings else action.dest
            for action in actions_of(verb, [verb])
        ]  # fmt: skip
        written = {f"{verb} {flag}" for flag in flags if flag in places}
        assert written or verb in ONLY_READ, verb
        assert written <= {*OVER, *FILES}, verb
    functions = set()
    for owner in (getattr(bert_jax, name) for name in bert_jax.__all__):
        methods = vars(owner) if inspect.isclass(owner) else {"": owner}
        for name, method in methods.items():
            function = getattr(method, "__func__", method)
            taken = inspect.signature(function).parameters if inspect.isfunction(function) else ()
            if name in ("save", "build") and "path" in taken:
                functions.add(f"{owner.__name__}.{name}")
            functions |= {
                f"{owner.__name__}.{key}" for key in ("output", "workdir", "report") if key in taken
            }
    assert functions == {*PYTHON, *NOT_WRITTEN}


def spellings(folder: Path, link: Path) -> list[str]:
    link.symlink_to(folder)
    name = folder.name
    return [
        name,
        f"./{name}",
        f"{name}/",
        f"../{folder.parent.name}/{name}",
        str(folder),
        str(link),
        f"{name}/new",
    ]


@pytest.mark.ci
@pytest.mark.parametrize(
    "source, command",
    [
        ("run", ["export", "{place}", "--output", "{out}"]),
        ("classifier", ["export", "{place}", "--format", "onnx", "--output", "{out}"]),
        ("classifier", ["export", "{place}", "--format", "static", "--output", "{out}"]),
        ("classifier", ["import", "{place}", "{out}"]),
    ],
)
def test_an_output_is_not_its_source(source, command, root, tmp_path, monkeypatch, capsys):
    place = tmp_path / source
    shutil.copytree(root / source, place)
    monkeypatch.chdir(tmp_path)
    before = content(place)
    for out in [*spellings(place, tmp_path / "link"), f"{source}/model"]:
        assert main([word.format(place=source, out=out) for word in command]) == 1, out
        assert (
            f"{out} is in {source}, which it is made from; name a directory elsewhere"
            in capsys.readouterr().err
        )
        assert content(place) == before, out


@pytest.mark.slow
@pytest.mark.parametrize("part", ["model", "report"])
def test_a_run_replaces_only_what_a_run_wrote(part, root, tmp_path, capsys):
    """Such as the model of somebody who trains in the directory that it lies in."""
    finished, of = root / "classifier", ["--config.init=" + str(tmp_path / "model")]
    shutil.copytree(finished, tmp_path / "model" if part == "model" else tmp_path / "elsewhere")
    if part == "report":
        of = [f"--config.init={finished}"]
        (tmp_path / "report").mkdir()
        (tmp_path / "report" / "report.md").write_text("years of work")
    before = content(tmp_path)
    words = [
        word for word in train("classify") if not word.startswith(("--workdir", "{out}", "--config.init"))
    ]
    words = [word for word in words if "report" not in word]
    for more in ([], ["--config.num_seeds=2"]):
        command = [*fill_in(words, root, tmp_path), *of, "--workdir", str(tmp_path), *more]
        assert main(command) == 1
        assert f"{tmp_path / part} is not empty" in capsys.readouterr().err
        assert content(tmp_path) == before
