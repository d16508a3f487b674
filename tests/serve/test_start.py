"""What a server says and needs before it answers."""

from types import SimpleNamespace

import pytest

import bert_jax
from bert_jax.core import progress
from bert_jax.core.errors import BertJaxError
from bert_jax.serve import server
from bert_jax.serve.server import named_directories, open_models
from tests.support.served_models import DOCUMENTS


def test_the_line_of_compiling_says_how_to_start_without(monkeypatch, capsys):
    monkeypatch.setattr(progress, "LINE_AFTER", 0.0)
    monkeypatch.setattr(server, "list_programs", lambda _: ["one", "two", "three"])
    monkeypatch.setattr(server, "compute_once", lambda *_: None)
    model = SimpleNamespace(engine=SimpleNamespace(bank=None))
    pipelines = [SimpleNamespace(model=model, computation="one")]
    server.compile_pipelines(SimpleNamespace(name="minilm", pipelines=lambda: pipelines), set())
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith("compiling minilm (--no-warm-up: at the first requests): 1 of 3 programs")


@pytest.fixture(scope="module")
def exported(served_models, tmp_path_factory):
    """An index of an embedder, and what `export --format onnx --quantize auto` writes of that."""
    from bert_jax.export.onnx_directory import export_onnx

    folder = tmp_path_factory.mktemp("exported")
    export_onnx(served_models["embedder"], folder / "int8", "auto")
    documents = [(document.id, document.text) for document in DOCUMENTS]
    bert_jax.Index.build(documents, folder / "index", model=served_models["embedder"])
    return folder


def test_an_index_is_searched_with_the_exported_model_that_is_served_beside_it(exported):
    computed = {"engine": "onnxruntime", "dtype": "int8"}
    both = [str(exported / "index"), f"small={exported / 'int8'}"]
    opened = open_models(named_directories(both), **computed)
    assert list(opened) == ["index", "small"], "in the order in which they are named"
    assert opened["index"].encoder is opened["small"].model
    assert [hit.id for hit in opened["index"].model.search("mats", retrievers=["vectors"])] == [
        "mats",
        "cats",
    ]
    with pytest.raises(BertJaxError) as refused:
        open_models(named_directories(both[:1]), **computed)
    assert "--quantize auto --output OUT` writes it" in str(refused.value)
    assert str(refused.value).endswith("or after the index for `serve`")
