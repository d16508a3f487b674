"""Sparse encoders: what `sentence-transformers` saved we open, what we save it opens, with the same vectors."""

import json
import shutil
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from flax.traverse_util import unflatten_dict
from safetensors.numpy import load_file, save_file

import bert_jax
from bert_jax.hub.model_directory import atomic_model_directory, resolve_directory, save_model
from bert_jax.hub.sparse_encoder import ACTIVATIONS, POOLINGS, SparseSettings, read_sparse
from bert_jax.inference.sparse_embedder import SparseEmbedder
from bert_jax.text.tokenizer_directory import open_tokenizer
from tests.support.cases import long_except, mark_long
from tests.support.families import FAMILY_CONFIGS, family_layout
from tests.support.small_models import SMALL_TEXTS, load_error, write_model
from tests.support.vocabularies import SENTENCES, write_sentencepiece

TEXTS = [*SMALL_TEXTS, "", "the cat " * 20]
OLD = "sentence_transformers.sparse_encoder.models."
PLAIN = SparseSettings(max_length=12)
ROUTED = SparseSettings(max_length=12, query_weights=True, prompts={"query": "the ", "document": "on "})


@pytest.fixture(scope="module")
def sparse_encoder():
    """The class, whose import takes seconds."""
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SparseEncoder

    return lambda path: SparseEncoder(str(path), device="cpu")


def write_sparse_model(path, settings=PLAIN):
    return write_model(path, heads=("mlm",), pooler=False, sparse=settings)


def assert_same_vectors(ours, theirs, texts=TEXTS, **settings):
    for encode in ("encode", "encode_query", "encode_document"):
        expected = getattr(theirs, encode)(texts, show_progress_bar=False, **settings).to_dense().numpy()
        vectors = getattr(ours, encode)(texts, **settings).toarray()
        vectors, rest = np.split(vectors, [expected.shape[1]], axis=1)
        assert not rest.any()  # of rows without a token, which its queries do not have
        np.testing.assert_allclose(vectors, expected, atol=1e-5, err_msg=encode)
        assert vectors.any(axis=0).sum() > 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*were truncated|.*was truncated")
@pytest.mark.parametrize(
    ("pooling", "activation", "query_weights"),
    long_except(
        product(POOLINGS, ACTIVATIONS, (False, True)), [("max", "relu", False), ("sum", "log1p_relu", True)]
    ),
)
def test_both_programs_open_what_the_other_saved(
    pooling, activation, query_weights, sparse_encoder, tmp_path
):
    settings = SparseSettings(
        max_length=12, pooling=pooling, activation=activation, query_weights=query_weights, frozen=query_weights,
        prompts={"query": "the ", "document": "on "}, max_active_dims=11,
    )  # fmt: skip
    write_sparse_model(tmp_path / "ours", settings)
    ours, theirs = bert_jax.load(tmp_path / "ours"), sparse_encoder(tmp_path / "ours")
    assert type(ours) is SparseEmbedder and theirs.max_active_dims == 11
    assert_same_vectors(ours, theirs)
    assert_same_vectors(ours, theirs, max_active_dims=3)
    theirs.save(str(tmp_path / "theirs"))  # in its newest layout
    again = bert_jax.load(tmp_path / "theirs")
    assert again.layout.sparse == settings
    assert_same_vectors(again, theirs)
    again.save(tmp_path / "again")
    assert_same_vectors(again, sparse_encoder(tmp_path / "again"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*were truncated|.*was truncated")
def test_a_masked_language_model_is_opened_as_its_library_does(sparse_encoder, tmp_path):
    write_model(tmp_path, heads=("mlm",), pooler=False)
    ours = SparseEmbedder.load(tmp_path)
    assert type(bert_jax.load(tmp_path)) is bert_jax.MaskedLM and ours.directory is None
    theirs = sparse_encoder(tmp_path)
    theirs.max_seq_length = ours.max_seq_length
    assert_same_vectors(ours, theirs)


BERT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 66,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("convention", "family", "config"),
    [
        ("xlm-roberta", "xlm-roberta", BERT | {"type_vocab_size": 1}),
        mark_long(("albert", "albert", FAMILY_CONFIGS["albert"])),
        mark_long(("deberta", "deberta-v2", FAMILY_CONFIGS["deberta-v2"] | {"legacy": False})),
    ],
)
@pytest.mark.filterwarnings("ignore:.*were truncated|.*was truncated")
def test_a_sentencepiece_vocabulary_with_an_added_token(convention, family, config, sparse_encoder, tmp_path):
    """Padding may have another id than 0, and the embedding has rows without a token."""
    write_sentencepiece(tmp_path / "vocabulary", convention)
    tokenizer = open_tokenizer(tmp_path / "vocabulary")
    tokenizer.rust.add_tokens(["<extra>"])
    tokenizer.save(tmp_path / "added")
    tokenizer = open_tokenizer(tmp_path / "added")
    layout = family_layout(family, config | {"vocab_size": tokenizer.size + 5}, ("mlm",))
    layout = replace(layout, sparse=replace(ROUTED, max_length=60))
    random = np.random.RandomState(0)
    params = {name: 0.3 * random.standard_normal(shape) for name, shape in layout.shapes().items()}
    with atomic_model_directory(tmp_path / "saved") as new:
        save_model(new, layout, unflatten_dict(params, sep="/"), tokenizer)
    texts = [*SENTENCES, "one <extra> two", ""]
    with pytest.warns(UserWarning, match="embedding rows have no token"):
        ours = bert_jax.load(tmp_path / "saved")
    theirs = sparse_encoder(tmp_path / "saved")
    assert_same_vectors(ours, theirs, texts)
    decoded = [dict(row) for row in theirs.decode(theirs.encode_query(texts))]
    for row, expected in zip(ours.decode(ours.encode_query(texts)), decoded, strict=True):
        assert dict(row) == pytest.approx(expected, abs=1e-5)
    without = {f"[{row}]" for row in range(tokenizer.size, layout.config.vocab_size)}
    assert without & set(dict(ours.decode(ours.encode(SENTENCES[0]))[0]))


def rewrite(file, change):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def test_old_and_new_keys_and_places_are_read(tmp_path):
    _, params = write_sparse_model(tmp_path / "a", ROUTED)
    old = tmp_path / "a"
    # The first layout of a Router: its modules are in config.json, and the model's files are in a folder.
    new, files = (
        tmp_path / "b",
        ("config.json", "model.safetensors", "vocab.txt", "sentence_bert_config.json"),
    )
    shutil.copytree(old, new)
    (new / "document_0_MLMTransformer").mkdir()
    for file in [*files, "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]:
        if (new / file).exists():
            (new / file).rename(new / "document_0_MLMTransformer" / file)

    def move(router):
        router["types"]["document_0_MLMTransformer"] = router["types"].pop("")
        router["structure"]["document"][0] = "document_0_MLMTransformer"

    (new / "router_config.json").rename(new / "config.json")
    rewrite(new / "config.json", move)
    (new / "1_SpladePooling/config.json").write_text(
        '{"pooling_strategy": "sum", "embedding_dimension": null}'
    )
    first, second = bert_jax.load(old), bert_jax.load(new)
    assert second.layout.sparse.pooling == "sum" and second.layout.sparse.max_length == 12
    assert second.tokenizer.fingerprint == first.tokenizer.fingerprint
    np.testing.assert_array_equal(second.params["query_weights"]["weight"], params["query_weights"]["weight"])
    assert (second.encode_query(TEXTS[:8]) != first.encode_query(TEXTS[:8])).nnz == 0
    second.save(tmp_path / "c")
    assert read_sparse(tmp_path / "c") == second.layout.sparse


@pytest.mark.slow
def test_weights_of_queries_by_token(sparse_encoder, tmp_path, monkeypatch):
    write_sparse_model(tmp_path / "m", ROUTED)
    folder = tmp_path / "m/query_0_SparseStaticEmbedding"
    (folder / "model.safetensors").unlink()
    (folder / "idf.json").write_text('{"the": 0.5, "cat": 2, "##s": 1.5}')
    (folder / "config.json").write_text('{"path": "query_0_SparseStaticEmbedding/idf.json"}')
    monkeypatch.chdir(tmp_path / "m")  # where the library looks for it
    ours = bert_jax.load(tmp_path / "m")
    assert ours.decode(ours.encode_query(["cats on cats"])) == [[("cat", 2), ("##s", 1.5), ("the", 0.5)]]
    assert_same_vectors(ours, sparse_encoder(tmp_path / "m"), TEXTS[:8])
    (folder / "idf.json").write_text('{"dog": 1}')
    assert "a weight for 'dog', which is not in the vocabulary" in load_error(tmp_path / "m")
    (folder / "idf.json").unlink()
    assert "idf.json is missing" in load_error(tmp_path / "m")


def test_a_tensor_for_fewer_entries_is_filled_and_for_more_refused(tmp_path):
    write_sparse_model(tmp_path, ROUTED)
    file = tmp_path / "query_0_SparseStaticEmbedding/model.safetensors"
    weights = load_file(file)["weight"]
    save_file({"weight": weights[:10]}, file)
    assert bert_jax.load(tmp_path).params["query_weights"]["weight"].tolist() == [*weights[:10], 0, 0]
    save_file({"weight": np.ones(13, np.float32)}, file)
    assert "query_weights.weight is [13] where the config asks for [12]" in load_error(tmp_path)


def set_first_type(name):
    return lambda modules: modules[0].update(type=OLD + name)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("modules.json", lambda m: m.append({"type": OLD + "SparseAutoEncoder", "path": "2_CSR"}),
         "is a sparse encoder with the modules Transformer, SpladePooling, SparseAutoEncoder; supported are"),
        ("modules.json", lambda m: m[1].update(path="../elsewhere"), "names a folder outside"),
        ("modules.json", set_first_type("SparseStaticEmbedding"), "supported are Transformer and SpladePooling"),
        ("1_SpladePooling/config.json", lambda c: c.update(pooling_strategy="mean"), 'no pooling_strategy of'),
        ("1_SpladePooling/config.json", lambda c: c.update(activation_function="log"), 'no activation_function of'),
        ("config.json", lambda c: c.update(architectures=["BertModel"]), "has no masked language model"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_in_a_line(file, change, message, tmp_path):
    write_sparse_model(tmp_path)
    if file == "config.json":
        tensors = load_file(tmp_path / "model.safetensors")
        save_file({n: t for n, t in tensors.items() if n.startswith("bert.")}, tmp_path / "model.safetensors")
    rewrite(tmp_path / file, change)
    assert message in load_error(tmp_path)


def test_queries_of_another_network_are_refused(tmp_path):
    write_sparse_model(tmp_path, ROUTED)
    rewrite(tmp_path / "router_config.json", lambda router: router["structure"].update(query=[""]))
    assert "is a sparse encoder with the modules" in load_error(tmp_path)


def test_the_folders_of_a_router_are_fetched_from_the_hub(tmp_path, monkeypatch):
    from huggingface_hub.utils import filter_repo_objects

    needed = {
        "modules.json",
        "document_0_Transformer/model.safetensors",
        "query_0_SparseStaticEmbedding/config.json",
    }

    def snapshot_download(name, allow_patterns, ignore_patterns):
        for file in filter_repo_objects(
            needed | {"onnx/config.json"}, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns
        ):
            (tmp_path / file).parent.mkdir(exist_ok=True)
            (tmp_path / file).touch()
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    resolve_directory("some/model")
    assert {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()} == needed


def test_a_head_for_another_use_leaves_the_weights_of_queries_out(tmp_path):
    write_sparse_model(tmp_path / "a", ROUTED)
    model = bert_jax.load(tmp_path / "a", head="classify", labels=["a", "b"])
    model.save(tmp_path / "b")
    assert type(bert_jax.load(tmp_path / "b")) is bert_jax.Classifier
    assert not (tmp_path / "b/modules.json").exists()
