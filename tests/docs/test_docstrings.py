"""What docstrings show is what happens."""

import doctest
import importlib.util
import json
import pkgutil
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bert_jax
from bert_jax.command.main import main
from bert_jax.hub.m3_encoder import make_settings
from bert_jax.hub.multi_vector_encoder import MultiVectorSettings, QueryExpansion
from bert_jax.hub.sentence_transformers import EmbedderSettings
from bert_jax.inference.embedder import Embedder
from bert_jax.inference.load import load
from bert_jax.inference.model_classes import CLASSES
from bert_jax.inference.reranker import Reranker
from bert_jax.inference.sparse_embedder import SparseEmbedder
from bert_jax.inference.text_outcomes import mean_state_vectors
from bert_jax.predictions.out_of_scope import OutOfScopeDetector
from tests.support.small_models import SMALL_CONFIG, SMALL_TEXTS, write_model
from tests.support.static_models import write_model2vec

MODULES = [
    name for _, name, _ in pkgutil.walk_packages(bert_jax.__path__, "bert_jax.") if "__main__" not in name
]


def examples() -> list[str]:
    found = (importlib.util.find_spec(name).origin for name in MODULES)
    return [
        name
        for name, path in zip(MODULES, found, strict=True)
        if ">>> " in open(path, encoding="utf-8").read()
    ]


# Shown with `model` and its directory, DIR, whose parameters are drawn at random.
SHOWN_WITH = {
    "bert_jax.inference.encoder": (("mlm", "nsp"), ()),
    "bert_jax.inference.load": (("mlm", "nsp"), ()),
    "bert_jax.inference.masked_lm": (("mlm", "nsp"), ()),
    "bert_jax.inference.embedder": ((), ()),
    "bert_jax.inference.sparse_embedder": (("mlm",), ()),
    "bert_jax.inference.m3_embedder": ((), ()),
    "bert_jax.inference.multi_vector_embedder": ((), ()),
    "bert_jax.inference.adapters": (("classify",), ("bad", "good")),
    "bert_jax.inference.classifier": (("classify",), ("bad", "good")),
    "bert_jax.inference.reranker": (("classify",), ("LABEL_0",)),
    "bert_jax.inference.tagger": (("tag",), ("B-CAT", "O")),
    "bert_jax.inference.question_answerer": (("answer",), ()),
}


SETTINGS: dict[str, dict] = {
    "bert_jax.inference.multi_vector_embedder": {
        "pooler": False, "multi_vector": MultiVectorSettings(expansion=QueryExpansion(6)),
    },
    "bert_jax.inference.m3_embedder": {
        "pooler": False, "m3": make_settings(EmbedderSettings(), 8), "embedder": EmbedderSettings(),
    },
}  # fmt: skip
OPEN_AS = {
    "bert_jax.inference.embedder": lambda path: Embedder.load(path, pooling="mean"),
    "bert_jax.inference.reranker": Reranker.load,
    "bert_jax.inference.sparse_embedder": SparseEmbedder.load,
}
# Shown in a folder with `model`, an embedder, and the small files that the examples name.
SHOWN_WITH_FILES = {
    "bert_jax.runs.train", "bert_jax.runs.finetune", "bert_jax.runs.evaluate", "bert_jax.runs.corpus",
    "bert_jax.runs.follow",
    "bert_jax.runs.hard_negatives", "bert_jax.runs.training_task",
    "bert_jax.search.index", "bert_jax.search.index_reader",
    "bert_jax.search.vector_shards",
    "bert_jax.inference.static_embedder",
}  # fmt: skip
# Tests of runs train by these functions.
TRAINING = {"bert_jax.runs.finetune", "bert_jax.runs.train", "bert_jax.runs.training_task"}


class LastLines(doctest.OutputChecker):
    """What is shown stands at the end: a run first prints what it does."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        last = got.splitlines(keepends=True)[-want.count("\n") or len(got) :]
        return super().check_output(want, "".join(last), optionflags)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    write_model(folder / "model", replace(SMALL_CONFIG, max_position_embeddings=128))
    write_model2vec(folder / "static")
    write_model(folder / "classifier", SMALL_CONFIG, ("classify",), ("bad", "good"))
    rows = [f"{text},{label}\n" for text, label in zip(SMALL_TEXTS, ["bad", "good"] * 4, strict=True)]
    (folder / "train.csv").write_text("text,label\n" + "".join(rows) * 3)
    (folder / "text.txt").write_text("\n\n".join(f"{text}\n{text} ." for text in SMALL_TEXTS) + "\n")
    (folder / "lines.txt").write_text("\n".join(SMALL_TEXTS) + "\n")
    flags = ["--model", folder / "model", "--input", folder / "lines.txt", "--output", folder / "vectors"]
    assert main(["embed", *map(str, flags)]) == 0
    texts = ["Cats land on their feet.", "Fish swim.", "Dogs bark."]
    bert_jax.Index.build(list(zip("abc", texts, strict=True)), folder / "index")
    (folder / "collection").mkdir()
    for name, rows in (
        ("corpus", zip("abc", texts, strict=True)),
        ("queries", [("q", "where do cats land?")]),
    ):
        lines = [json.dumps({"_id": key, "text": text}) + "\n" for key, text in rows]
        (folder / f"collection/{name}.jsonl").write_text("".join(lines))
    (folder / "run/folds").mkdir(parents=True)
    (folder / "run/finished.json").touch()
    measured = [("train", 10, 2.5, 900.0), ("train", 20, 2.25, 950.0), ("validation", 20, 2.375, None)]
    lines = [
        {"step": step, "kind": kind, "loss": loss, "time": {"tokens_per_second": speed}}
        for kind, step, loss, speed in measured
    ]
    (folder / "run/metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "collection/qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t1\n")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] * (name in TRAINING)) for name in sorted(SHOWN_WITH_FILES)],
)
def test_examples_with_files_of(name, written, tmp_path, monkeypatch):
    shown = doctest.DocTestFinder().find(
        importlib.import_module(name), extraglobs={"bert_jax": bert_jax, "Path": Path}
    )
    shown = [test for test in shown if test.examples]
    runner = doctest.DocTestRunner(LastLines(), optionflags=doctest.ELLIPSIS)
    for number, test in enumerate(shown):  # each finds the files as they were
        monkeypatch.chdir(shutil.copytree(written, tmp_path / str(number)))
        assert not runner.run(test).failed
    assert shown


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in SHOWN_WITH))
        for name in examples()
        if name not in SHOWN_WITH_FILES
    ],
)
def test_examples_of(name, tmp_path):
    given = {}
    if name in SHOWN_WITH:
        heads, labels = SHOWN_WITH[name]
        write_model(tmp_path, heads=heads, labels=labels, **SETTINGS.get(name, {}))
        model = OPEN_AS[name](tmp_path) if name in OPEN_AS else load(tmp_path)
        given |= {"model": model, "DIR": tmp_path, "bert_jax": bert_jax}
        if name == "bert_jax.inference.classifier":
            known = np.linspace(0.9, 1, 99)
            vectors = mean_state_vectors(model, ["the cat sat on the mat .", "cats"])
            model.scope = OutOfScopeDetector.from_vectors(vectors, known)
    tried = doctest.testmod(importlib.import_module(name), extraglobs=given, optionflags=doctest.ELLIPSIS)
    assert tried.attempted and not tried.failed


@pytest.mark.parametrize("of_use", CLASSES.values(), ids=list(CLASSES))
def test_what_a_person_calls_shows_an_example(of_use):
    names = [name for name, value in vars(of_use).items() if callable(value) and name[0] != "_"]
    without = {name for name in names if ">>> " not in (getattr(of_use, name).__doc__ or "")}
    assert without <= {"push_to_hub", "get_embedding_dimension", "get_sentence_embedding_dimension"}
