"""Several adapters on one encoder, mixed in one batch, beside each of them alone."""

import threading

import numpy as np
import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.sentence_transformers import EmbedderSettings
from bert_jax.inference.adapters import LEAST_SLOTS, AdapterEngine
from bert_jax.inference.load import load
from bert_jax.inference.runner import Runner
from bert_jax.text.wordpiece import WordPiece
from tests.support.adapters import write_adapter
from tests.support.cases import long_except
from tests.support.families import FAMILY_CONFIGS, write_released
from tests.support.small_models import SMALL_TEXTS, SMALL_VOCABULARY, write_model

# Kernels of several layers in one, of queries that share keys, and of layers that share parameters.
# Of "deberta" layers project distances, too, for all rows together: it is opened apart.
FAMILIES = ("modernbert", "eurobert", "albert", "deberta")
ADAPTERS = {  # head, labels, settings
    "spam": ("classify", ("no", "yes"), {"rank": 2}),
    "topic": ("classify", ("a", "b", "c", "d"), {"rank": 3, "target_modules": (".*[a-z]", )}),
    "words": ("tag", ("O", "B-X", "I-X"), {"rank": 1, "use_rslora": True}),
    "answers": ("answer", (), {"rank": 2}),
    "dora": ("classify", ("u", "v"), {"rank": 2, "use_dora": True}),
}  # fmt: skip


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    write_model(folder / "base", heads=("classify",), labels=("x", "y", "z"))
    made = {
        name: write_adapter(folder / name, folder / "base", head, labels, seed=seed, **settings)
        for seed, (name, (head, labels, settings)) in enumerate(ADAPTERS.items())
    }
    return {"": folder / "base"} | made


@pytest.fixture(scope="module")
def models(directories):
    return bert_jax.load(directories[""], adapters={name: path for name, path in directories.items() if name})


@pytest.mark.slow
def test_each_adapter_gives_what_it_gives_alone(models, directories):
    assert {name: type(model).__name__ for name, model in models.items()} == {
        "": "Classifier", "spam": "Classifier", "topic": "Classifier", "words": "Tagger", "answers": "QuestionAnswerer",
        "dora": "Classifier",
    }  # fmt: skip
    for name, directory in directories.items():
        alone, ours = load(directory), models[name]
        assert ours.labels == alone.labels and repr(ours) == repr(alone)
        if name == "words":
            assert_same_spans(ours.tag(SMALL_TEXTS), alone.tag(SMALL_TEXTS))
        elif name == "answers":
            given, expected = ours.answer("the cat", SMALL_TEXTS[0]), alone.answer("the cat", SMALL_TEXTS[0])
            assert given.text == expected.text and given.score == pytest.approx(expected.score, abs=1e-5)
        else:
            expected = alone.predict_proba(SMALL_TEXTS)
            np.testing.assert_allclose(ours.predict_proba(SMALL_TEXTS), expected, atol=1e-6)
            np.testing.assert_allclose(ours.encode("the cat"), alone.encode("the cat"), atol=1e-6)


@pytest.mark.slow
def test_one_batch_mixes_adapters_and_the_model_without_one(models, directories, monkeypatch):
    names = ["spam", "", "topic", "words", "dora", "topic", "spam", ""]
    batches = []
    run = Runner.run

    def counted(self, rows, *more, **settings):
        batches.append(len(rows))
        return run(self, rows, *more, **settings)

    monkeypatch.setattr(Runner, "run", counted)
    mixed = models.predict(SMALL_TEXTS, names)
    assert sorted(batches) == [1, 1, 6], "tags have a head of another kind, and DoRA has kernels of its own"
    for text, name, ours in zip(SMALL_TEXTS, names, mixed, strict=True):
        alone = load(directories[name])
        if name == "words":
            assert len(ours["spans"]) == len(alone.tag(text))
        else:
            label = alone.classify(text)
            assert ours["label"] == label.label and ours["score"] == pytest.approx(label.score, abs=2e-6)


def test_the_encoder_is_in_memory_once(models):
    engines = [model.engine for name, model in models.items() if name != "dora"]
    assert all(isinstance(engine, AdapterEngine) for engine in engines)
    (bank,) = {id(engine.bank): engine.bank for engine in engines}.values()
    for params in bank.stacked.values():
        words = params["encoder"]["embeddings"]["words"]
        assert words is bank.device_params["encoder"]["embeddings"]["words"]


@pytest.mark.slow
@pytest.mark.parametrize("family", long_except(FAMILIES, ("modernbert",)))
def test_every_form_of_kernel_has_adapters(family, tmp_path):
    write_released(tmp_path / "base", family, FAMILY_CONFIGS[family] | {"vocab_size": 12}, ("mlm",))
    WordPiece.from_vocabulary(SMALL_VOCABULARY).save(tmp_path / "base")
    paths = {
        name: write_adapter(tmp_path / name, tmp_path / "base", "tag", ("O", "B-X"), seed=seed, rank=2)
        for seed, name in enumerate("ab")
    }
    models = bert_jax.load(tmp_path / "base", adapters=paths)
    assert isinstance(models["a"].engine, AdapterEngine) == (family != "deberta")
    for name, path in paths.items():
        alone = load(path)
        np.testing.assert_allclose(models[name].encode(SMALL_TEXTS), alone.encode(SMALL_TEXTS), atol=1e-5)
        assert_same_spans(models[name].tag(SMALL_TEXTS), alone.tag(SMALL_TEXTS))


def assert_same_spans(ours, expected) -> None:
    for own, theirs in zip(ours, expected, strict=True):
        assert [(span.label, span.text) for span in own] == [(span.label, span.text) for span in theirs]
        np.testing.assert_allclose([span.score for span in own], [span.score for span in theirs], atol=1e-5)


@pytest.mark.slow
def test_embedders_share_batches_too(tmp_path):
    write_model(tmp_path / "base", heads=(), embedder=EmbedderSettings())
    path = write_adapter(tmp_path / "adapter", tmp_path / "base", "", rank=2)
    models = bert_jax.load(tmp_path / "base", adapters={"mine": path})
    assert type(models["mine"]).__name__ == "Embedder"
    vectors = models.predict(SMALL_TEXTS[:2], ["mine", ""])
    for vector, directory, text in zip(vectors, (path, tmp_path / "base"), SMALL_TEXTS, strict=False):
        np.testing.assert_allclose(vector, load(directory).encode(text), atol=1e-6)


@pytest.mark.slow
def test_adapters_come_and_go(directories):
    models = bert_jax.load(directories[""], adapters={"first": directories["spam"]})
    before = models["first"].predict_proba(SMALL_TEXTS)
    expected = {name: load(directories[name]).predict_proba(SMALL_TEXTS) for name in ("spam", "topic")}
    for number in range(LEAST_SLOTS + 1):  # more than there are slots
        models.add(f"spam {number}", directories["spam"])
    models.remove("spam 3")
    models.add("topic", directories["topic"])
    np.testing.assert_allclose(models["first"].predict_proba(SMALL_TEXTS), before, atol=1e-6)
    for name in ("spam 0", "spam 8", "topic"):
        given = models[name].predict_proba(SMALL_TEXTS)
        np.testing.assert_allclose(given, expected[name.split()[0]], atol=1e-6)
    with pytest.raises(BertJaxError, match='no adapter "spam 3"'):
        models["spam 3"]


@pytest.mark.slow
def test_batches_are_computed_while_adapters_come_and_go(directories):
    models = bert_jax.load(directories[""], adapters={"first": directories["spam"]})
    expected, ended, wrong = models["first"].predict_proba(SMALL_TEXTS), threading.Event(), []

    def compute():
        while not ended.is_set():
            try:
                given = models["first"].predict_proba(SMALL_TEXTS)
                wrong.extend([] if np.allclose(given, expected, atol=1e-6) else ["others' numbers"])
            except Exception as error:
                wrong.append(repr(error))

    thread = threading.Thread(target=compute)
    thread.start()
    for number in range(LEAST_SLOTS):
        models.add("other", directories[("topic", "words", "answers")[number % 3]])
        models.remove("other")
    ended.set()
    thread.join()
    assert wrong == [] and models.bank.slots > LEAST_SLOTS, "no slot is used again at once"


WRONG = {
    "a name twice": (lambda m, d: m.add("spam", d["topic"]), 'two adapters are called "spam"'),
    "no name": (lambda m, d: m.add("", d["topic"]), "an adapter needs a name"),
    "no adapter": (lambda m, d: m.add("base", d[""]), "is not the directory of an adapter"),
    "the model itself": (lambda m, d: m.remove(""), "is the model itself"),
    "an unknown name": (
        lambda m, d: m.predict(["the cat"], ["spma"]),
        'no adapter "spma"; did you mean "spam"',
    ),
    "too few names": (lambda m, d: m.predict(["the cat"], []), "there are 1 texts, but 0 names"),
    "no directories": (lambda m, d: bert_jax.load(d[""], adapters=["spam"]), "must be directories by name"),
    "a head": (lambda m, d: bert_jax.load(d[""], adapters={}, head="tag"), "have heads of their own"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_arguments_are_said_in_one_line(fault, models, directories):
    call, message = WRONG[fault]
    with pytest.raises(BertJaxError) as error:
        call(models, directories)
    assert message in str(error.value) and "\n" not in str(error.value)
