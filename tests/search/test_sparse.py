"""The sparse leg of an index, with a small model: what is found is what the products of the model's vectors say."""

import json
from io import BytesIO

import numpy as np
import pytest

import bert_jax
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.sparse_encoder import SparseSettings
from bert_jax.inference.sparse_embedder import SparseEmbedder
from bert_jax.search import sparse
from bert_jax.search.index import Index
from bert_jax.search.sparse import unpack_row
from tests.support.indexes import file_contents
from tests.support.small_models import SMALL_TEXTS, write_model

DOCUMENTS = [(f"d{n}", text) for n, text in enumerate(SMALL_TEXTS)]
QUERIES = ["the cat", "mat", "on sat ."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A sparse model with weights for queries, one without, and an index of each."""
    path = tmp_path_factory.mktemp("sparse")
    for name, has_weights in (("learned", True), ("plain", False)):
        settings = SparseSettings(query_weights=has_weights, max_active_dims=6, prompts={"query": "cat "})
        write_model(path / "random", heads=("mlm",), sparse=settings)
        model = SparseEmbedder.load(path / "random")
        model.params["mlm"]["bias"] = model.params["mlm"]["bias"] + 3  # more tokens are active
        if has_weights:
            model.params["query_weights"] = {"weight": np.arange(12, dtype=np.float32)}
        model.with_params(model.params).save(path / name)
        Index.build(DOCUMENTS, path / f"of {name}", sparse_model=path / name)
    return path


def rank_by_products(
    model: SparseEmbedder, documents: list[tuple[str, str]]
) -> list[list[tuple[str, float]]]:
    """The documents of each query whose score is above 0, best first."""
    vectors = model.encode_document([text for _, text in documents])
    scores = model.similarity(model.encode_query(QUERIES), vectors)
    ranked = [
        sorted(
            ((name, score) for (name, _), score in zip(documents, row, strict=True)),
            key=lambda x: (-x[1], x[0]),
        )
        for row in scores.tolist()
    ]
    return [[(name, score) for name, score in row if score > 0] for row in ranked]


def search(index: Index, **how) -> list[list[tuple[str, float]]]:
    found = index.search(QUERIES, 100, ["sparse"], **how)
    return [[(hit.id, hit.score) for hit in hits] for hits in found]


def assert_same(found, expected) -> None:
    assert any(expected)
    for one, other in zip(found, expected, strict=True):
        assert [name for name, _ in one] == [name for name, _ in other]
        np.testing.assert_allclose([s for _, s in one], [s for _, s in other], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["learned", "plain"])
def test_it_finds_what_the_products_of_the_vectors_say(folder, name):
    model = SparseEmbedder.load(folder / name)
    index = Index.open(folder / f"of {name}")
    assert index.retrievers == ["keywords", "sparse"] and index.manifest.sparse_model.max_active_dims == 6
    assert_same(search(index), rank_by_products(model, DOCUMENTS))


def test_after_changes_it_is_that_of_a_fresh_index(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(sparse, "WINDOW", 2)
    model = folder / "plain"
    index = Index.build(DOCUMENTS[:5], tmp_path / "index", sparse_model=model)
    assert index.add(DOCUMENTS[3:]).encoded == 3
    index.remove(["d1"])
    left = [pair for pair in DOCUMENTS if pair[0] != "d1"]
    expected = rank_by_products(SparseEmbedder.load(model), left)
    assert_same(search(index), expected)
    assert main(["index", "--output", str(tmp_path / "index"), "--compact"]) == 0
    Index.build(left, tmp_path / "fresh", sparse_model=model)
    index.refresh()
    assert len(index.segments) == 1
    assert_same(search(index), expected)
    merged, fresh = (file_contents(tmp_path / name / "segments") for name in ("index", "fresh"))
    for name in ("starts", "postings", "weights"):
        (one,), (other,) = (
            [
                np.load(BytesIO(content))
                for file, content in files.items()
                if file.endswith(f"sparse.{name}.npy")
            ]
            for files in (merged, fresh)
        )
        np.testing.assert_allclose(one, other, rtol=1e-5)  # texts were computed in other batches


def test_a_score_is_explained_by_tokens(folder, capsys):
    model = SparseEmbedder.load(folder / "plain")
    (hit, *_), *_ = Index.open(folder / "of plain").search(["the cat"], retrievers=["sparse"])
    words = hit.rankings["sparse"].words
    assert sum(words.values()) == pytest.approx(hit.score, rel=1e-5)
    query = dict(model.decode(model.encode_query("the cat"))[0])
    document = dict(model.decode(model.encode_document(dict(DOCUMENTS)[hit.id]))[0])
    assert words == pytest.approx(
        {token: query[token] * document[token] for token in query if token in document}
    )
    assert main(["search", str(folder / "of plain"), "the cat", "--explain", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["hits"][0]["rankings"]
    assert set(shown) == {"keywords", "sparse", "fusion"} and shown["sparse"]["words"]


def test_the_largest_weights_are_kept(folder):
    (segment,) = Index.open(folder / "of plain").segments
    whole = SparseEmbedder.load(folder / "plain").encode_document([SMALL_TEXTS[0]], max_active_dims=12)
    tokens, weights = unpack_row(segment.rows["sparse.npy"][0])
    assert whole.nnz > 6 == len(tokens)
    np.testing.assert_allclose(np.sort(weights), np.sort(whole.data)[-6:], rtol=1e-5)


def test_other_models_are_refused(folder, tmp_path, capsys):
    write_model(tmp_path / "other", heads=("mlm",))
    write_model(tmp_path / "dense", heads=())
    with pytest.raises(BertJaxError, match="is not the model that"):
        Index.open(folder / "of plain", sparse_model=tmp_path / "other").search("cat")
    with pytest.raises(BertJaxError, match="no vectors because it was built without --model"):
        Index.open(folder / "of plain").search("cat", retrievers=["vectors"])
    with pytest.raises(BertJaxError, match="is not opened by bert_jax.SparseEmbedder"):
        bert_jax.Index.build(DOCUMENTS, tmp_path / "index", sparse_model=tmp_path / "dense")
    assert not (tmp_path / "index").exists()
    Index.build(DOCUMENTS, tmp_path / "words")
    (tmp_path / "x.txt").write_text("cats")
    given = [
        "index",
        str(tmp_path / "x.txt"),
        "--output",
        str(tmp_path / "words"),
        "--sparse-model",
        str(folder / "plain"),
    ]
    assert main(given) == 1
    assert "was built without --sparse-model" in capsys.readouterr().err


def test_a_model_that_was_moved_is_named(folder, tmp_path, capsys):
    write_model(tmp_path / "model", heads=("mlm",))
    SparseEmbedder.load(tmp_path / "model").save(tmp_path / "sparse")
    index = Index.build(DOCUMENTS, tmp_path / "index", sparse_model=tmp_path / "sparse")
    before = search(index)
    (tmp_path / "sparse").rename(tmp_path / "moved")
    with pytest.raises(BertJaxError, match="name its directory with --sparse-model"):
        search(Index.open(tmp_path / "index"))
    assert search(Index.open(tmp_path / "index", sparse_model=tmp_path / "moved")) == before
    assert (
        search(Index.open(tmp_path / "index", sparse_model=SparseEmbedder.load(tmp_path / "moved"))) == before
    )
    assert main(["info", str(tmp_path / "index")]) == 0
    assert "at most 12 tokens of a passage" in capsys.readouterr().out
