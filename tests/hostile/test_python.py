"""What Python entry points say to arguments that they cannot take: one line, and never a traceback of a library's."""

import io
import json
import warnings
from collections.abc import Iterator
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.sentence_transformers import CROSS_ENCODER, EmbedderSettings, write_embedder
from tests.hostile import material
from tests.hostile.outcomes import LONGEST


@pytest.fixture(scope="module")
def models(small, tmp_path_factory):
    """Each as the class for it, by the name of its use; and their directories."""
    root = tmp_path_factory.mktemp("models")
    vocabulary = small / "vocabulary"
    paths = {
        "tag": material.model(root / "tagger", vocabulary, ("tag",), ("O", "B-X")),
        "answer": material.model(root / "finder", vocabulary, ("answer",)),
        "classify": small / "classifier",
        "labels": material.model(root / "labels", vocabulary, ("classify",), ("a", "b")),
        "number": material.model(root / "number", vocabulary, ("classify",), ("LABEL_0",)),
        "rank": material.model(root / "reranker", vocabulary, ("classify",), ("LABEL_0",)),
        "embed": material.model(root / "embedder", vocabulary),
        "plain": material.model(root / "encoder", vocabulary),
        "mlm": small / "masked",
    }
    write_embedder(paths["embed"], EmbedderSettings(prompts={"query": "w1 ", "document": "w2 "}), 32)
    for name, keys in {
        "rank": CROSS_ENCODER, "labels": {"problem_type": "multi_label_classification"},
    }.items():  # fmt: skip
        config = paths[name] / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | keys))
    return {name: bert_jax.load(path) for name, path in paths.items()} | {
        "path": small / "masked",
        "paths": paths,
    }


# The class that opens each, and those that say which class does.
CLASSES = {
    "tag": bert_jax.Tagger, "answer": bert_jax.QuestionAnswerer, "classify": bert_jax.Classifier,
    "labels": bert_jax.Classifier, "number": bert_jax.Classifier, "rank": bert_jax.Reranker,
    "embed": bert_jax.Embedder, "plain": bert_jax.Encoder, "mlm": bert_jax.MaskedLM,
}  # fmt: skip
ALSO = {("number", bert_jax.Reranker), ("rank", bert_jax.Classifier)}  # one score, of a text or of a pair
NO_TEXTS = (
    None, 3, 2.5, True, b"w1", {"w1": 1}, {"w1"}, [None], [3], [["w1", 3]], [("w1", "w2", "w3")], [b"w1"], ["w1", None],
    np.zeros(3), np.zeros((2, 2)), np.array("w1"), np.array([["w1", "w2"]]), object(), len, range(3), [["w1"]], (),
)  # fmt: skip
NO_NUMBERS = ("x", None, float("nan"), float("inf"), -1, 0, 2.5, [1], np.zeros(2), 10**30, True)
NO_PATHS = (None, 3, "", [], b"masked", {}, np.zeros(2), io.StringIO())
NO_NAMES = (3, "nowhere", [], {}, np.zeros(2), b"cls", object())
NO_FLAGS = ("no", 1, 0.0, [], np.zeros(2), object(), None)  # None leaves some of them to the method
# Vectors that cannot be compared with those of 32 numbers; the last is compared with texts.
NO_VECTORS = (
    np.zeros(3), np.zeros((2, 2)), np.zeros((1, 1, 32)), np.array(1.0), np.zeros((2, 0)), np.ones(32, complex),
    np.full(32, np.nan), np.full((1, 32), 1e30), [[float("inf")] * 32], [[1j] * 32],
    np.ones(32, bool), [[0.5] * 32, [0.5]], [np.zeros(3)], [np.zeros(32), "w1"], [[["w1"]]], jnp.zeros(3),
)  # fmt: skip
# Arguments of sentence-transformers' encode that have one possible value here.
REFUSED = {
    "output_value": ("token_embeddings", None, 3, np.zeros(2)),
    "precision": ("int8", "float16", None, 16, np.zeros(2)),
    "convert_to_numpy": (False, 1, None, "yes", np.zeros(2)),
    "convert_to_tensor": (True, 0, None, "no", np.zeros(2)),
    "device": ("cpu", 0, [], np.zeros(2), object()),
}
# Methods that read texts, with a model that has each.
OF_TEXTS = (
    ("hidden_states", "mlm"), ("attentions", "mlm"), ("tokenize", "mlm"), ("fill_mask", "mlm"),
    ("pseudo_log_likelihood", "mlm"), ("encode", "plain"), ("encode", "mlm"), ("encode", "embed"),
    ("encode_query", "embed"), ("encode_document", "embed"), ("predict", "classify"), ("predict_proba", "classify"),
    ("classify", "classify"), ("predict", "labels"), ("classify", "labels"), ("predict", "number"), ("tag", "tag"),
    ("predict", "rank"),
)  # fmt: skip


def calls():
    """(name, call of the models)"""
    for n, wrong in enumerate(NO_TEXTS):
        for method, name in OF_TEXTS:
            yield (
                f"{method} of {name} {n}",
                lambda m, p=(method, name), wrong=wrong: used(getattr(m[p[1]], p[0])(wrong)),
            )
        yield (
            f"in_distribution_p_value {n}",
            lambda m, wrong=wrong: m["classify"].in_distribution_p_value(wrong),
        )
        yield f"similarity {n}", lambda m, wrong=wrong: m["embed"].similarity(wrong, "w1")
        yield f"similarity with {n}", lambda m, wrong=wrong: m["embed"].similarity(["w1"], wrong)
        yield f"rank {n}", lambda m, wrong=wrong: m["rank"].rank(wrong, ["w1 w2"])
        yield f"rank documents {n}", lambda m, wrong=wrong: m["rank"].rank("w1", wrong)
        yield f"tag_words {n}", lambda m, wrong=wrong: used(m["tag"].tag_words(wrong))
        yield f"answer {n}", lambda m, wrong=wrong: used(m["answer"].answer(wrong, "w1 w2"))
        yield f"answer of {n}", lambda m, wrong=wrong: used(m["answer"].answer("w1", wrong))
        yield f"tokenizer {n}", lambda m, wrong=wrong: m["mlm"].tokenizer.encode(wrong)
    for n, wrong in enumerate(NO_NUMBERS):
        yield f"top_k {n}", lambda m, wrong=wrong: m["mlm"].fill_mask("w1 [MASK]", top_k=wrong)
        yield f"steps {n}", lambda m, wrong=wrong: m["mlm"].fill_mask("w1 [MASK]", steps=wrong)
        yield f"top_k of rank {n}", lambda m, wrong=wrong: m["rank"].rank("w1", ["w2"], top_k=wrong)
        yield f"longest {n}", lambda m, wrong=wrong: m["answer"].answer("w1", "w2", longest=wrong)
        yield f"min_precision {n}", lambda m, wrong=wrong: m["classify"].classify("w1", min_precision=wrong)
        yield (
            f"min_precision of a label {n}",
            lambda m, wrong=wrong: m["classify"].classify(
                "w1", min_precision={m["classify"].labels[0]: wrong}
            ),
        )
        yield (
            f"min_precision of rank {n}",
            lambda m, wrong=wrong: m["rank"].rank("w1", ["w2"], min_precision=wrong),
        )
        for method in ("encode", "encode_query", "encode_document"):
            for name in ("batch_size", "truncate_dim"):
                yield (
                    f"{name} of {method} {n}",
                    lambda m, p=(method, name), wrong=wrong: getattr(m["embed"], p[0])("w1", **{p[1]: wrong}),
                )
        yield (
            f"batch_size of predict {n}",
            lambda m, wrong=wrong: m["rank"].predict([("w1", "w2")], batch_size=wrong),
        )
        yield f"layers {n}", lambda m, wrong=wrong: m["mlm"].hidden_states("w1", layers=wrong)
        yield f"layers of attentions {n}", lambda m, wrong=wrong: m["mlm"].attentions("w1", layers=wrong)
        yield f"lengths of warm_up {n}", lambda m, wrong=wrong: m["plain"].warm_up([wrong])
        yield f"texts of warm_up {n}", lambda m, wrong=wrong: m["plain"].warm_up([4], texts=wrong)
        yield f"seed {n}", lambda m, wrong=wrong: bert_jax.load(m["path"], head="answer", seed=wrong)
        yield f"max_length {n}", lambda m, wrong=wrong: m["mlm"].tokenizer.encode(["w1"], max_length=wrong)
        yield f"ids {n}", lambda m, wrong=wrong: m["mlm"].tokenizer.decode([wrong])
    for n, wrong in enumerate(NO_PATHS):
        yield f"load {n}", lambda m, wrong=wrong: bert_jax.load(wrong)
        for name, of_use in CLASSES.items():
            yield f"load of {name} {n}", lambda m, of_use=of_use, wrong=wrong: of_use.load(wrong)
        yield f"save {n}", lambda m, wrong=wrong: m["mlm"].save(wrong)
    for n, wrong in enumerate(NO_NAMES):
        yield f"head {n}", lambda m, wrong=wrong: bert_jax.load(m["path"], head=wrong)
        yield f"labels {n}", lambda m, wrong=wrong: bert_jax.load(m["path"], head="classify", labels=wrong)
        yield (
            f"label {n}",
            lambda m, wrong=wrong: bert_jax.load(m["path"], head="classify", labels=["a", wrong]),
        )
        for name in ("dtype", "attention", "remat", "engine"):
            yield f"{name} {n}", lambda m, name=name, wrong=wrong: bert_jax.load(m["path"], **{name: wrong})
            yield (
                f"{name} of a class {n}",
                lambda m, name=name, wrong=wrong: bert_jax.MaskedLM.load(m["path"], **{name: wrong}),
            )
            yield (
                f"{name} of an embedder {n}",
                lambda m, name=name, wrong=wrong: bert_jax.Embedder.load(
                    m["path"], pooling="mean", **{name: wrong}
                ),
            )
        yield f"pooling {n}", lambda m, wrong=wrong: m["mlm"].encode(["w1"], pooling=wrong)
        yield f"pooling of encode {n}", lambda m, wrong=wrong: m["embed"].encode("w1", pooling=wrong)
        yield f"pooling of load {n}", lambda m, wrong=wrong: bert_jax.Embedder.load(m["path"], pooling=wrong)
        for method in ("encode", "encode_query", "encode_document"):
            for name in ("prompt_name", "long_texts"):
                yield (
                    f"{name} of {method} {n}",
                    lambda m, p=(method, name), wrong=wrong: getattr(m["embed"], p[0])("w1", **{p[1]: wrong}),
                )
            if not isinstance(wrong, str):
                yield (
                    f"prompt of {method} {n}",
                    lambda m, method=method, wrong=wrong: getattr(m["embed"], method)("w1", prompt=wrong),
                )
        for method in ("classify", "predict", "predict_proba"):
            yield (
                f"long_texts of {method} {n}",
                lambda m, method=method, wrong=wrong: getattr(m["classify"], method)("w1", long_texts=wrong),
            )
        yield (
            f"long_texts of rank {n}",
            lambda m, wrong=wrong: m["rank"].rank("w1", ["w2"], long_texts=wrong),
        )
        yield (
            f"long_texts of its predict {n}",
            lambda m, wrong=wrong: m["rank"].predict(("w1", "w2"), long_texts=wrong),
        )
    for n, wrong in enumerate(NO_FLAGS):
        for name in ("normalize_embeddings", "show_progress_bar"):
            yield (
                f"{name} {n}",
                lambda m, name=name, wrong=wrong: m["embed"].encode(["w1"], **{name: wrong}),
            )
        yield (
            f"normalize_embeddings of an encoder {n}",
            lambda m, wrong=wrong: m["plain"].encode(["w1"], normalize_embeddings=wrong),
        )
        yield (
            f"show_progress_bar of predict {n}",
            lambda m, wrong=wrong: m["rank"].predict([("w1", "w2")], show_progress_bar=wrong),
        )
        yield (
            f"return_documents {n}",
            lambda m, wrong=wrong: m["rank"].rank("w1", ["w2"], return_documents=wrong),
        )
        yield (
            f"may_be_missing {n}",
            lambda m, wrong=wrong: m["answer"].answer("w1", "w2", may_be_missing=wrong),
        )
        yield f"tokenizer of load {n}", lambda m, wrong=wrong: bert_jax.load(m["path"], tokenizer=wrong)
        yield (
            f"tokenizer of a class {n}",
            lambda m, wrong=wrong: bert_jax.MaskedLM.load(m["path"], tokenizer=wrong),
        )
    for n, wrong in enumerate(NO_VECTORS):
        yield f"vectors {n}", lambda m, wrong=wrong: m["embed"].similarity(wrong, np.ones((2, 32)))
        yield f"vectors with {n}", lambda m, wrong=wrong: m["embed"].similarity("w1", wrong)
    for name, values in REFUSED.items():
        for n, wrong in enumerate(values):
            yield f"{name} {n}", lambda m, name=name, wrong=wrong: m["embed"].encode("w1", **{name: wrong})
    for name in CLASSES:
        for of_use in dict.fromkeys(CLASSES.values()):
            if of_use not in (CLASSES[name], bert_jax.Encoder) and (name, of_use) not in ALSO:
                yield (
                    f"{of_use.__name__} opens {name}",
                    lambda m, name=name, of_use=of_use: of_use.load(m["paths"][name]),
                )
    yield "labels twice", lambda m: bert_jax.load(m["path"], head="classify", labels=["a", "a"])
    yield "two lengths", lambda m: used(m["answer"].answer(["w1", "w2"], ["w3"]))
    yield "two streams", lambda m: used(m["answer"].answer(iter(["w1", "w2"]), iter(["w3"])))
    yield "no mask", lambda m: m["mlm"].fill_mask("w1")
    yield "no word", lambda m: m["mlm"].pseudo_log_likelihood("")
    yield "no pooler", lambda m: without_pooler(m["plain"]).encode("w1", pooling="pooler")
    yield "no prompts", lambda m: bert_jax.Embedder.load(m["path"], pooling="mean").encode("w1", "query")
    yield "no scope", lambda m: m["classify"].in_distribution_p_value("w1")
    yield "no labels", lambda m: m["number"].classify("w1")
    yield (
        "no labels of pairs",
        lambda m: bert_jax.Classifier.load(m["paths"]["rank"]).classify(("w1", "w2")),
    )
    yield "no probability", lambda m: m["number"].predict_proba("w1")
    yield "no list of documents", lambda m: m["rank"].rank("w1", "w2")
    yield "no pair", lambda m: m["rank"].predict("w1")
    yield "no pairs", lambda m: m["rank"].predict(["w1", "w2", "w3"])
    yield "texts for pairs", lambda m: m["rank"].predict(("w1", "w2", "w3"))
    yield "no pairs in a stream", lambda m: used(m["rank"].predict(iter(["w1", "w2"])))
    yield "no tokenizer", lambda m: bert_jax.load(m["path"], tokenizer=False).encode("w1")
    for n, wrong in enumerate(("", " ", ["w1", ""], iter(["w1", "\n"]), ("w1", " "), [("", "w1")])):
        for method in ("predict", "predict_proba", "classify"):
            yield (
                f"blank text {n} of {method}",
                lambda m, p=method, wrong=wrong: used(getattr(m["classify"], p)(wrong)),
            )
    for n, wrong in enumerate(({}, {"nowhere": 0.9}, {3: 0.9}, [0.9], "w1=0.9")):
        yield (
            f"min_precisions {n}",
            lambda m, wrong=wrong: m["classify"].classify("w1", min_precision=wrong),
        )
    yield "lengths of warm_up", lambda m: m["plain"].warm_up(4)
    yield "words to tag", lambda m: m["tag"].tag([("w1", "w2")])
    yield "a text of words", lambda m: m["tag"].tag_words("w1 w2")


# No texts at all, lists of words, and values that these calls can take.
RIGHT = {
    "tokenizer 21", "answer 21", "answer of 21", "similarity 21", "similarity with 21", "rank documents 21",
    "tag_words 10", "tag_words 20", "tag_words 21", "seed 4", "seed 5", "steps 5", "max_length 1", "ids 5", "ids 10",
    "label 1", "layers 1", "min_precision 1", "min_precision of rank 1", "top_k of rank 1", "batch_size of predict 1",
    "show_progress_bar 6", "show_progress_bar of predict 6", "may_be_missing 6",
    *(f"{name} {n}" for name in ("layers", "layers of attentions") for n in (4, 5, 7)),
    *(f"{name} of {method} 1" for name in ("batch_size", "truncate_dim")
      for method in ("encode", "encode_query", "encode_document")),
}  # fmt: skip


def without_pooler(model: bert_jax.Encoder) -> bert_jax.Encoder:
    return bert_jax.Encoder(replace(model.layout, pooler=False), model.params, model.tokenizer)


def used(results):
    return list(results) if isinstance(results, Iterator) else results


@pytest.mark.parametrize("name", [name for name, _ in calls()])
def test_a_wrong_argument_is_one_line(models, name):
    call = dict(calls())[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name in RIGHT:
            call(models)
            return
        with pytest.raises(BertJaxError) as raised:
            call(models)
    message = str(raised.value)
    assert "\n" not in message and 0 < len(message) < LONGEST


@pytest.mark.parametrize("load", [bert_jax.load, *(of_use.load for of_use in CLASSES.values())])
def test_an_argument_that_there_is_not_is_named(load, models):
    with pytest.raises(TypeError, match="dtpye"):
        load(models["path"], dtpye="float32")


def test_every_class_is_tried():
    of_use = {value for value in map(bert_jax.__getattr__, bert_jax.__all__) if hasattr(value, "load")}
    assert of_use == {*CLASSES.values()} and len(of_use) == 7


def test_one_directory_in_the_classes_that_open_it(models):
    """What every class computes of a model is what its own class computes, and vectors need no more than an encoder."""
    for name, of_use in CLASSES.items():
        assert type(models[name]) is of_use and type(of_use.load(models["paths"][name])) is of_use
        plain = bert_jax.Encoder.load(models["paths"][name])
        np.testing.assert_array_equal(plain.encode("w1 w2"), bert_jax.Encoder.encode(models[name], "w1 w2"))
    pair = ("w1", "w2 w3")
    for name, of_use in ALSO:
        other = of_use.load(models["paths"][name])
        assert other.predict(pair) == pytest.approx(models[name].predict(pair), abs=1e-6)


def test_an_embedder_with_another_pooling_is_saved_with_it(models, tmp_path):
    for name, pooling in (("mlm", "cls"), ("embed", "cls"), ("classify", "mean")):
        opened = bert_jax.Embedder.load(models["paths"][name], pooling=pooling)
        vector = opened.encode("w1 w2")
        np.testing.assert_array_equal(opened.with_params(opened.params).encode("w1 w2"), vector)
        state = bert_jax.Encoder.encode(models[name], "w1 w2", pooling=pooling, normalize_embeddings=True)
        np.testing.assert_allclose(vector, state, atol=1e-6)
        opened.save(tmp_path / name)
        saved = bert_jax.load(tmp_path / name)
        assert type(saved) is bert_jax.Embedder and saved.prompts == opened.prompts
        np.testing.assert_array_equal(saved.encode("w1 w2"), vector)


def test_texts_at_the_edge_have_results(models):
    """No text, one, a pair, a stream, columns, and texts of nothing that the vocabulary knows."""
    embed, rank, classify, labels = (models[name] for name in ("embed", "rank", "classify", "labels"))
    odd = ["", " ", "\0", "\ud800", "é" * 40, "w1\n\tw2"]
    for method in (embed.encode, embed.encode_query, embed.encode_document):
        assert method([]).shape == (0, 32) and method([], truncate_dim=3).shape == (0, 3)
        assert method("w1").shape == (32,) and method(("w1", "w2")).shape == (32,)
        assert np.isfinite(method(odd, show_progress_bar=False)).all()
        np.testing.assert_allclose(np.stack(list(method(iter(odd), batch_size=2))), method(odd), atol=1e-5)
    assert [*embed.encode(iter([]))] == [] == classify.predict([]) == classify.classify([])
    assert classify.predict_proba([]).shape == (0, 2) == labels.predict([]).shape
    assert rank.predict([]).shape == (0,) and rank.rank("w1", []) == []
    odd = odd[2:]  # a classifier refuses blank texts
    assert {*classify.predict(odd)} <= {*material.LABELS} and labels.predict(odd).shape == (len(odd), 2)
    np.testing.assert_allclose(classify.predict_proba(odd).sum(-1), 1, atol=1e-5)
    assert models["number"].predict([]).shape == (0,) and isinstance(models["number"].predict("w1"), float)
    pairs = [("w1", "w2"), ["w1", "w3 w4"]]
    scores = rank.predict(pairs)
    assert scores.shape == (2,) and [*rank.predict(iter(pairs))] == pytest.approx(scores, abs=1e-6)
    assert rank.predict([*pairs[0]]) == rank.predict([np.array(pairs[0])])[0] == rank.predict(pairs[0])
    ranked = rank.rank("w1", np.array(["w2", "w3 w4"]), top_k=9, return_documents=True)
    assert {one["corpus_id"]: one["score"] for one in ranked} == pytest.approx(
        dict(enumerate(scores)), abs=1e-6
    )
    assert [one["text"] for one in ranked] == [["w2", "w3 w4"][one["corpus_id"]] for one in ranked]


def test_vectors_of_every_shape_are_compared(models):
    embed, texts = models["embed"], ["w1 w2", "w3", "w4 w5 w6"]
    vectors = embed.encode(texts)
    cosines = embed.similarity(texts, texts)
    np.testing.assert_allclose(np.diag(cosines), 1, atol=1e-6)
    for side in (vectors, [*vectors], [*embed.encode(iter(texts))], 7 * vectors, jnp.array(vectors), iter(texts),
                 tuple(texts), np.array(texts), vectors.tolist(), tuple(vectors), iter(vectors)):  # fmt: skip
        np.testing.assert_allclose(embed.similarity(side, vectors), cosines, atol=1e-5)
    rounded = jnp.array(vectors, jnp.bfloat16)
    for side in (rounded, np.asarray(rounded), [*rounded]):
        np.testing.assert_allclose(embed.similarity(vectors, side), cosines, atol=2e-2)
    with pytest.raises(BertJaxError, match="embeddings2 must hold texts or real numbers, not complex64"):
        embed.similarity(vectors, vectors.astype(np.complex64))
    with pytest.raises(BertJaxError, match="embeddings1 is no array or list of vectors of one size"):
        embed.similarity([[0.5], [0.5, 1.0]], vectors)
    np.testing.assert_allclose(embed.similarity(vectors[0], "w3"), cosines[:1, 1:2], atol=1e-5)
    short = embed.encode(texts, truncate_dim=8)
    assert embed.similarity(short, short[:2]).shape == (3, 2)
    assert embed.similarity(np.zeros(32), texts).tolist() == [[0, 0, 0]]
    assert embed.similarity(np.zeros((0, 32)), texts).shape == (0, 3)
    assert embed.similarity([], texts).shape == (0, 3)
