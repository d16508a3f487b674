"""What docstrings show is what happens."""

import doctest
import importlib.util
import pkgutil
import re

import numpy as np
import pytest

import bert_jax
from bert_jax.inference import encoder as api
from bert_jax.predictions.out_of_scope import OutOfScopeDetector
from tests.support.small_models import write_model

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


# Shown with a `model` whose parameters are drawn at random, of one head after the other.
SHOWN_WITH = {
    "bert_jax.inference.encoder": (("mlm", "nsp"), ()),
    "bert_jax.inference.mask_filler": (("mlm", "nsp"), ()),
    "bert_jax.inference.pseudo_likelihood": (("mlm", "nsp"), ()),
    "bert_jax.inference.text_vectors": (("mlm", "nsp"), ()),
    "bert_jax.inference.layer_states": (("mlm", "nsp"), ()),
    "bert_jax.inference.warm_up": (("mlm", "nsp"), ()),
    "bert_jax.inference.in_distribution": (("classify",), ("bad", "good")),
    "bert_jax.inference.classifier": (("classify",), ("bad", "good")),
    "bert_jax.inference.reranker": (("classify",), ("LABEL_0",)),
    "bert_jax.inference.tagger": (("tag",), ("B-CAT", "O")),
    "bert_jax.inference.question_answerer": (("answer",), ()),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SHOWN_WITH)) for name in examples()]
)
def test_examples_of(name, tmp_path):
    given = {}
    if name in SHOWN_WITH:
        heads, labels = SHOWN_WITH[name]
        write_model(tmp_path, heads=heads, labels=labels)
        given["model"] = model = api.load(tmp_path)
        if name == "bert_jax.inference.in_distribution":
            known = np.linspace(0.9, 1, 99)
            model.scope = OutOfScopeDetector.from_vectors(
                model.pooled(["the cat sat on the mat .", "cats"]), known
            )
    tried = doctest.testmod(importlib.import_module(name), extraglobs=given, optionflags=doctest.ELLIPSIS)
    assert tried.attempted and not tried.failed


def test_what_a_person_calls_shows_an_example():
    """`load` and the answers of a model; load's is README.md's."""
    names = [name for name, value in vars(api.Model).items() if callable(value) and name[0] != "_"]
    without = {
        name for name in names if not re.search(r">>> .*model\.", getattr(api.Model, name).__doc__ or "")
    }
    assert without <= {"save", "run", "tag_words"}
