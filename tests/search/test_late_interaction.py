"""The token vectors of an index: what is found is what MaxSim says of the vectors before they were made bytes."""

import random
from dataclasses import replace

import numpy as np
import pytest

import bert_jax
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.multi_vector_encoder import MultiVectorSettings, QueryExpansion, TokenPooling
from bert_jax.inference.max_sim import NO_TOKENS, max_sim_matrix
from bert_jax.search import fixed_encodings, index_writer, nearest
from bert_jax.search.cache import RowCache
from bert_jax.search.fixed_encodings import Encodings
from bert_jax.search.index import Index
from bert_jax.search.index_manifest import TOKEN_ROWS
from bert_jax.search.late_interaction import TokenQuery, inverse_lengths, to_whole_numbers
from bert_jax.search.ragged_rows import RaggedRows
from bert_jax.search.reranking import open_ranker
from tests.support.indexes import (
    change_index,
    open_with_encoders,
    random_document,
    token_rows,
    token_vectors,
)
from tests.support.small_models import SMALL_TEXTS, write_model

DOCUMENTS = [(f"d{n}", text) for n, text in enumerate(SMALL_TEXTS)]
QUERIES = ["the cat", "mat", "on sat ."]
SETTINGS = MultiVectorSettings(
    max_length=12, expansion=QueryExpansion(6), prompts={"query": "the ", "document": "on "}, skiplist=(".",)
)
ERROR = 0.02  # of a product with a stored vector, at most


def write_embedder(path, settings=SETTINGS):
    write_model(path, heads=(), pooler=False, multi_vector=settings)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A multi-vector embedder, and an index with its token vectors."""
    path = tmp_path_factory.mktemp("late interaction")
    Index.build(DOCUMENTS, path / "index", multi_vector_model=write_embedder(path / "model"))
    return path


def rank_by_max_sim(query: str, texts: dict) -> dict:
    """The MaxSim of texts with a query in float32, of those that have tokens, best first."""
    (scores,) = max_sim_matrix([token_vectors(query)], [*map(token_vectors, texts.values())])
    kept = [(name, score) for name, score in zip(texts, scores.tolist(), strict=True) if score > NO_TOKENS]
    return dict(sorted(kept, key=lambda pair: -pair[1]))


def passages_of(index: Index) -> dict[tuple[str, int], str]:
    return {
        segment.document_position(n): segment.search_text(n)
        for segment in index.segments
        for n in range(len(segment.order))
        if segment.live is None or segment.live[n]
    }


@pytest.mark.slow
def test_after_changes_it_finds_what_max_sim_of_all_passages_says(tmp_path, monkeypatch):
    path = tmp_path / "index"
    monkeypatch.setattr(index_writer, "ROWS", 7)
    change_index(path, [random_document(f"a{n}", random.Random(n)) for n in range(40)])
    change_index(path, [random_document(f"b{n}", random.Random(100 + n)) for n in range(30)], ["a3", "a17"])
    change_index(path, [random_document(f"a{n}", random.Random(200 + n)) for n in range(5)])
    for compact in (False, True):
        if compact:
            change_index(path, compact=True)
        index = open_with_encoders(path)
        assert len(index.segments) == (1 if compact else 3)
        texts = passages_of(index)
        for query in ("w1 w2 w30", "w59 w4"):
            hits = index.search(query, 1000, ["late_interaction"])
            expected = rank_by_max_sim(query, texts)
            found = {(hit.id, hit.start): hit.score for hit in hits}
            assert len(found) == len(hits) == len(texts) > 200
            assert found == pytest.approx(expected, abs=ERROR * len(query.split()))
            assert [*found.values()] == sorted(found.values(), reverse=True)
    monkeypatch.setattr(nearest, "TOKEN_CANDIDATES", 60)
    few = open_with_encoders(path).search("w1 w2 w30", 10, ["late_interaction"])
    best = [*rank_by_max_sim("w1 w2 w30", texts)][:10]
    assert len({(hit.id, hit.start) for hit in few} & {*best}) >= 9  # of candidates alone


def test_scores_do_not_depend_on_what_else_is_scored():
    rng = np.random.default_rng(0)
    rows = [to_whole_numbers(rng.normal(size=(rng.integers(0, 90), 96))) for _ in range(60)]
    vectors = rng.normal(size=(32, 96)).astype(np.float32)
    query = TokenQuery(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), ["x"] * 32)
    joined, numbers = RaggedRows.join(rows), np.arange(60)
    scores = query.score(joined, numbers)
    assert [query.score(joined, numbers[n : n + 1])[0] for n in numbers] == scores.tolist()
    order = rng.permutation(60)
    np.testing.assert_array_equal(
        query.score(RaggedRows.join([rows[n] for n in order]), numbers), scores[order]
    )
    tokens = [
        row / np.maximum(np.linalg.norm(row.astype(np.float32), axis=1, keepdims=True), 1) for row in rows
    ]
    # The query's numbers are whole, too, and finer than those of the passages.
    np.testing.assert_allclose(scores, max_sim_matrix([query.vectors], tokens)[0], atol=2e-3)
    assert (scores == NO_TOKENS).sum() == sum(not len(row) for row in rows)


def test_a_token_of_the_stored_vectors_is_as_precise_as_its_numbers():
    vectors = np.random.default_rng(0).normal(size=(500, 128)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    stored = to_whole_numbers(vectors).astype(np.float32)
    products = ((stored * inverse_lengths(stored)[:, None]) @ vectors.T) - vectors @ vectors.T
    assert 1e-4 < products.std() < 1e-3  # with one scale for all, 1/127, it would be 0.0023


def encode_by_definition(tokens: np.ndarray, is_query: bool) -> np.ndarray:
    encodings = Encodings(tokens.shape[1])
    planes = encodings.planes.reshape(-1, fixed_encodings.REPETITIONS, fixed_encodings.PLANES)
    signs = encodings.signs.reshape(-1, fixed_encodings.REPETITIONS, fixed_encodings.WIDTH)
    parts = []
    for repetition in range(fixed_encodings.REPETITIONS):
        sides = [[float(token @ plane) > 0 for plane in planes[:, repetition].T] for token in tokens]
        codes = [sum(side << n for n, side in enumerate(of_token)) for of_token in sides]
        for cell in range(fixed_encodings.CELLS):
            inside = [token for token, code in zip(tokens, codes, strict=True) if code == cell]
            if is_query:
                vector = np.sum(inside, 0) if inside else np.zeros(tokens.shape[1])
            elif inside:
                vector = np.mean(inside, 0)
            else:  # the cells that differ in the fewest hyperplanes, and of these the first
                nearest = min(codes, key=lambda code: ((code ^ cell).bit_count(), code))
                vector = tokens[codes.index(nearest)]
            parts.append(vector @ signs[:, repetition] / fixed_encodings.WIDTH**0.5)
    return np.concatenate(parts)


def test_fixed_dimensional_encodings_are_those_of_their_definition():
    rng = np.random.default_rng(1)
    passages = [rng.normal(size=(count, 24)).astype(np.float32) for count in (1, 7, 40)]
    query = rng.normal(size=(9, 24)).astype(np.float32)
    stored = [to_whole_numbers(tokens) for tokens in passages]
    units = [row / np.linalg.norm(row.astype(np.float64), axis=1, keepdims=True) for row in stored]
    found = Encodings(24).encode_passages([*stored, stored[0][:0]]) / fixed_encodings.WIDTH**0.5
    expected = np.stack([encode_by_definition(tokens, False) for tokens in units])
    np.testing.assert_allclose(found[:3], expected, atol=1e-5)
    assert not found[3].any()
    own = Encodings(24).encode_query(query) * (fixed_encodings.REPETITIONS * fixed_encodings.WIDTH**0.5)
    np.testing.assert_allclose(own, encode_by_definition(query, True), atol=1e-4)


def test_the_product_of_encodings_is_near_max_sim():
    """Of passages whose tokens are few and far from each other, so that a cell holds one of them."""
    rng = np.random.default_rng(2)
    units = [
        tokens / np.linalg.norm(tokens, axis=1, keepdims=True) for tokens in rng.normal(size=(400, 3, 64))
    ]
    query = np.concatenate([units[0][:2], units[1][:1]]).astype(np.float32)
    encodings = Encodings(64)
    products = encodings.encode_passages([*map(to_whole_numbers, units)]) @ encodings.encode_query(query)
    scores = max_sim_matrix([query], units)[0]
    assert np.argsort(-scores)[:2].tolist() == np.argsort(-products)[:2].tolist() == [0, 1]
    np.testing.assert_allclose(products[:2], scores[:2], atol=0.5)
    assert np.corrcoef(products, scores)[0, 1] > 0.5


def expected_scores(path, query: str, documents=DOCUMENTS, **settings) -> dict[str, float]:
    model = bert_jax.MultiVectorEmbedder.load(path)
    vectors = model.encode_document([text for _, text in documents], **settings)
    (scores,) = model.similarity(model.encode_query(query), vectors)
    return dict(zip([name for name, _ in documents], scores.tolist(), strict=True))


def found_scores(hits) -> dict[str, float]:
    return {hit.id: hit.score for hit in hits}


@pytest.mark.slow
def test_an_index_of_a_model_finds_what_the_model_says(folder, tmp_path):
    index = Index.open(folder / "index")
    assert index.retrievers == ["keywords", "late_interaction"]
    for query in QUERIES:
        found = found_scores(index.search(query, 100, ["late_interaction"]))
        assert found == pytest.approx(expected_scores(folder / "model", query), abs=ERROR)
    index = Index.build(DOCUMENTS[:5], tmp_path / "index", multi_vector_model=folder / "model")
    assert index.add(DOCUMENTS[3:]).encoded == 3
    index.remove("d1")
    left = [pair for pair in DOCUMENTS if pair[0] != "d1"]
    assert main(["index", "--output", str(tmp_path / "index"), "--compact"]) == 0
    index.refresh()
    found = found_scores(index.search("the cat", 100, ["late_interaction"]))
    assert found == pytest.approx(expected_scores(folder / "model", "the cat", left), abs=ERROR)
    embedder = bert_jax.load(folder / "model")
    loaded = Index.open(tmp_path / "index", multi_vector_model=embedder)
    assert found_scores(loaded.search("the cat", 100, ["late_interaction"])) == found
    loaded.remove([name for name, _ in left])
    assert loaded.search("the cat", 100, ["late_interaction"]) == []


@pytest.mark.slow
def test_a_reranker_gives_the_same_scores_from_stored_vectors_and_without(folder, tmp_path, monkeypatch):
    stored = Index.open(folder / "index")
    Index.build(DOCUMENTS, tmp_path / "words")
    Index.build(DOCUMENTS, tmp_path / "other", multi_vector_model=folder / "model", pool_factor=2)
    expected = expected_scores(folder / "model", "the cat")
    model = bert_jax.load(folder / "model")
    for reranker in (folder / "model", model, model.with_params(model.params)):
        found = stored.search("the cat", 100, ["keywords"], reranker=reranker)
        assert found_scores(found) == pytest.approx({hit.id: expected[hit.id] for hit in found}, abs=ERROR)
        plain = Index.open(tmp_path / "words").search("the cat", 100, ["keywords"], reranker=reranker)
        assert [(hit.id, hit.score) for hit in found] == [(hit.id, hit.score) for hit in plain]
    pooled = Index.open(tmp_path / "other").search("the cat", 100, ["keywords"], reranker=model)
    expected = expected_scores(folder / "model", "the cat", pool_factor=2)
    assert found_scores(pooled) == pytest.approx({hit.id: expected[hit.id] for hit in pooled}, abs=ERROR)
    another = bert_jax.load(write_embedder(tmp_path / "another", replace(SETTINGS, skiplist=())))
    factors = [
        open_ranker(Index.open(tmp_path / "other"), one).encoder.pool_factor for one in (model, another)
    ]
    # Passages are pooled as those of the index if they are by this model, and else as the model does.
    assert factors == [2, None]
    some = stored.search("the cat", 100, ["keywords"], reranker=model, rerank_top=2)
    assert ["reranker" in hit.rankings for hit in some[:3]] == [True, True, False]

    def encode(*_):
        raise AssertionError("stored vectors are computed again")

    for encoder in stored.rankers.values():
        monkeypatch.setattr(encoder, "encode_documents", encode)
    assert stored.search("the cat", 100, ["keywords"], reranker=model)
    assert stored.search("zebra", 100, ["keywords"], reranker=model) == []
    assert main(["search", str(folder / "index"), "the cat", "--rerank", str(folder / "model")]) == 0


@pytest.mark.slow
def test_a_score_is_explained_by_the_words_that_tokens_matched(folder, capsys):
    index = Index.open(folder / "index")
    hit = next(hit for hit in index.search("cat", 100, ["late_interaction"]) if hit.id == "d0")
    words = hit.rankings["late_interaction"].words
    assert sum(words.values()) == pytest.approx(hit.score, rel=1e-5)
    model = bert_jax.load(folder / "model")
    stored = index.segments[0].rows[TOKEN_ROWS][0].astype(np.float32)
    query, document = model.encode_query("cat"), stored / np.linalg.norm(stored, axis=1, keepdims=True)
    names = ["[CLS]", "on", *dict(DOCUMENTS)["d0"].split(), "[SEP]"]
    encoder, text = index.encoder_of(TOKEN_ROWS), "The mat, sat. The CAT sat!"
    assert encoder.passage_words(dict(DOCUMENTS)["d0"], stored) == names
    (rows,) = encoder.encode_documents([text])
    words_of_text = [
        "[CLS]",
        "on",
        "The",
        "mat",
        ",",
        "sat",
        "The",
        "CAT",
        "sat",
        "!",
        "[SEP]",
    ]  # "." is skipped
    assert encoder.passage_words(text, rows) == words_of_text
    asked = ["[CLS]", "the", "cat", "[SEP]", "[MASK]", "[MASK]"]
    expected: dict[str, float] = {}
    for name, of_token in zip(asked, query @ document.T, strict=True):
        match = f"{name} → {names[of_token.argmax()]}"
        expected[match] = expected.get(match, 0) + float(of_token.max())
    assert words == pytest.approx(expected, abs=ERROR)
    assert (
        not index.search("cat", 1, ["late_interaction"], explain=False)[0].rankings["late_interaction"].words
    )
    assert main(["search", str(folder / "index"), "cat", "--explain", "--rerank", str(folder / "model")]) == 0
    shown = capsys.readouterr().out
    assert shown.count("late_interaction: rank") == shown.count("reranker: rank") > 0 and "cat → " in shown
    assert main(["info", str(folder / "index")]) == 0
    assert "vectors of 8 for each token" in capsys.readouterr().out


@pytest.mark.slow
def test_pooled_vectors_are_explained_by_the_words_of_their_tokens(folder, tmp_path):
    index = Index.build(DOCUMENTS, tmp_path / "index", multi_vector_model=folder / "model", pool_factor=3)
    assert index.manifest.pool_factor == 3
    hits = index.search("cat", 100, ["late_interaction"])
    matched = {match.split(" → ")[1] for hit in hits for match in hit.rankings["late_interaction"].words}
    assert any("+" in words for words in matched)
    stored, text = index.segments[0].rows[TOKEN_ROWS][0], dict(DOCUMENTS)["d0"]
    groups = [set(words.split("+")) for words in index.encoder_of(TOKEN_ROWS).passage_words(text, stored)]
    assert "[CLS]" in groups[0] and not any("[CLS]" in group for group in groups[1:])  # it is never pooled
    assert set.union(*groups) == {"[CLS]", "on", *text.split(), "[SEP]"}
    expected = expected_scores(folder / "model", "cat", pool_factor=3)
    assert found_scores(hits) == pytest.approx(expected, abs=ERROR)


def test_what_does_not_fit_is_refused_in_a_line(folder, tmp_path, capsys):
    Index.build(DOCUMENTS, tmp_path / "words")
    with pytest.raises(
        BertJaxError, match="no token vectors because it was built without --multi-vector-model"
    ):
        Index.open(tmp_path / "words").search("cat", retrievers=["late_interaction"])
    other = write_embedder(tmp_path / "other", MultiVectorSettings(max_length=10))
    with pytest.raises(BertJaxError, match="is not the model that"):
        Index.open(folder / "index", multi_vector_model=other).search("cat")
    write_model(tmp_path / "dense", heads=())
    with pytest.raises(BertJaxError, match="is not opened by bert_jax.MultiVectorEmbedder"):
        Index.build(DOCUMENTS, tmp_path / "index", multi_vector_model=tmp_path / "dense")
    unequal = write_embedder(tmp_path / "unequal", MultiVectorSettings(normalize=False))
    pooled = write_embedder(tmp_path / "pooled", MultiVectorSettings(pooling=TokenPooling(normalize=False)))
    for path in (unequal, pooled):
        with pytest.raises(BertJaxError, match="token vectors of different lengths"):
            Index.build(DOCUMENTS, tmp_path / "index", multi_vector_model=path)
        with pytest.raises(BertJaxError, match="token vectors of different lengths"):
            Index.open(tmp_path / "words").search("cat", reranker=path)
    (tmp_path / "x.txt").write_text("cats")
    add = ["index", str(tmp_path / "x.txt"), "--output"]
    for given, message in (
        (
            [tmp_path / "words", "--multi-vector-model", folder / "model"],
            "was built without --multi-vector-model",
        ),
        ([tmp_path / "new", "--pool-factor", "2"], "add --multi-vector-model DIR"),
        ([folder / "index", "--pool-factor", "2"], "was built with --pool-factor none, not 2"),
    ):
        assert main([*add, *map(str, given)]) == 1
        assert message in capsys.readouterr().err
    assert not (tmp_path / "index").exists() and not (tmp_path / "new").exists()


def test_token_vectors_that_were_computed_are_kept_for_the_next_attempt(tmp_path):
    texts = ["w1 w2", "?", "w3", "w1 w2 w4 w5"]
    RowCache(tmp_path, "passages", "model").get_or_compute(texts, token_rows)
    RowCache(tmp_path, "passages", "model").get_or_compute(
        ["..."], token_rows
    )  # of which no token is compared
    again = RowCache(tmp_path, "passages", "model").get_or_compute([*texts[::-1], "..."], pytest.fail)
    for row, expected in zip(again[np.arange(5)], token_rows([*texts[::-1], "..."]), strict=True):
        np.testing.assert_array_equal(row, expected)
        assert row.dtype == np.int8
