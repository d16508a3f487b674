"""A finished output in the place of another: no verb that writes loses what was there, and no method that saves."""

import os
import shutil
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
    "prepare --output": (
        "corpus", ["prepare", "--input", "{root}/lines.txt", "--tokenizer", "{root}/vocabulary", "--output", "{out}"]),
    "train --workdir": ("run", pretrain(seed=7)),
    "train --workdir, of a sweep": ("sweep", pretrain(sweep="lr=[0.002]")),
    "train --workdir, a run over a sweep": ("sweep", pretrain()),
    "train --workdir, a sweep over a run": ("run", pretrain(**SWEEP)),
    "export --output": ("classifier", ["export", "{root}/run", "--output", "{out}"]),
    "export --output, of ONNX": (
        "exported", ["export", "{root}/masked", "--format", "onnx", "--output", "{out}"]),
    "import destination": ("classifier", ["import", "{root}/masked", "{out}"]),
    "evaluate --report": ("report", report(*OF_MODEL)),
    "embed --output": ("vectors", [*EMBED, "{root}/text.txt"]),
    "index --output": ("indexed", ["index", "{root}/more.jsonl", "--output", "{out}"]),
}  # fmt: skip


@pytest.fixture(scope="module")
def root(small, tmp_path_factory):
    root = shutil.copytree(small, tmp_path_factory.mktemp("finished") / "root")
    (root / "more.jsonl").write_text('{"id": 0, "text": "another"}\n')
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


def save_task(root: Path, out: Path) -> None:
    data = {"train": root / "labelled.jsonl", "folds": 0, "max_length": 32}
    task = bert_jax.open_task("classify", init=root / "masked", method="finetune", data=data, epochs=1)
    task.save(out, task.initial_params())


@pytest.mark.slow
@pytest.mark.parametrize("save", [lambda root, out: bert_jax.load(root / "masked").save(out), save_task])
def test_a_method_saves_over_no_finished_output(save, root, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(root / "classifier", out)
    before = content(out)
    with pytest.raises(BertJaxError, match=str(out)):
        save(root, out)
    assert content(out) == before and os.listdir(tmp_path) == ["out"]


def test_the_table_holds_every_verb_that_writes():
    places = {*OUTPUTS, "--export"} - {"--profile"}
    for verb in cli.VERBS:
        flags = [] if verb in ONLY_READ else [
            action.option_strings[-1] if action.option_strings else action.dest
            for action in actions_of(verb, [verb])
        ]  # fmt: skip
        written = {f"{verb} {flag}" for flag in flags if flag in places}
        assert written or verb in ONLY_READ, verb
        assert written <= {*OVER, *FILES}, verb


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
