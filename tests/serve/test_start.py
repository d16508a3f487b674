"""What a server says and needs before it answers."""

import threading
import time
from types import SimpleNamespace

import pytest

import bert_jax
from bert_jax.core import progress
from bert_jax.core.errors import BertJaxError
from bert_jax.inference.engines.jax import CPU_SHAPES
from bert_jax.serve import server
from bert_jax.serve.server import named_directories, open_models
from tests.support.served_models import DOCUMENTS


def test_the_line_of_compiling_says_how_to_start_without(monkeypatch, capsys):
    monkeypatch.setattr(progress, "LINE_AFTER", 0.0)
    monkeypatch.setattr(server, "list_programs", lambda _: ["one", "two", "three"])
    monkeypatch.setattr(server, "compute_once", lambda *_: None)
    engine = SimpleNamespace(bank=None, shapes=CPU_SHAPES)
    pipelines = [SimpleNamespace(model=SimpleNamespace(engine=engine), computation="one")]
    with server.compiled_models([SimpleNamespace(name="minilm", pipelines=lambda: pipelines)], [engine]):
        pass
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith("compiling minilm (--no-warm-up: at the first requests): 1 of 3 programs")


@pytest.mark.parametrize("waits", [True, False])
def test_programs_for_other_numbers_of_rows_follow_while_it_answers(monkeypatch, waits):
    """Unless the server stops before."""
    computed, answers = [], threading.Event()

    def compute(model, program):
        if len(computed) >= len(lengths):
            answers.wait(10)
        computed.append((program.length, program.rows))

    monkeypatch.setattr(server, "compute_once", compute)
    engine = SimpleNamespace(bank=None, shapes=CPU_SHAPES)
    lengths = CPU_SHAPES.row_lengths(range(1, 65), 64)
    model = SimpleNamespace(engine=engine, config=SimpleNamespace(max_position_embeddings=64))
    pipeline = SimpleNamespace(
        model=model, computation="one", truncated=SimpleNamespace(max_length=64), extra_shapes=({},)
    )
    with server.compiled_models([SimpleNamespace(name="minilm", pipelines=lambda: [pipeline])], [engine]):
        assert sorted(computed) == [(length, engine.shapes.row_counts(length)[0]) for length in lengths]
        assert all(len(engine.shapes.row_counts(length)) == 1 for length in lengths)
        if not waits:
            threading.Timer(0.1, answers.set).start()
        else:
            answers.set()
            while engine.shapes != CPU_SHAPES:
                time.sleep(0.01)
    everything = [(length, rows) for length in lengths for rows in CPU_SHAPES.row_counts(length)]
    if waits:
        assert sorted(computed) == sorted(everything)
    else:
        assert len(computed) == len(lengths) + 1 and engine.shapes.fixed


@pytest.fixture(scope="module")
def exported(served_models, tmp_path_factory):
    """An index of an embedder, and what `export --format onnx --quantize auto` writes of that."""
    from bert_jax.export.onnx_directory import export_onnx

    folder = tmp_path_factory.mktemp("exported")
    export_onnx(served_models["embedder"], folder / "int8", "auto")
    documents = [(document.id, document.text) for document in DOCUMENTS]
    bert_jax.Index.build(documents, folder / "index", model=served_models["embedder"])
    return folder


@pytest.mark.slow
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
