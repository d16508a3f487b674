"""`bert-jax export --format stablehlo`: programs that JAX runs without this package, with our outputs."""

import json
import subprocess
import sys
from dataclasses import replace

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.command.main import main
from bert_jax.export import stablehlo_program, verification
from bert_jax.export.stablehlo_program import export_program, flatten_weights, output_names
from bert_jax.hub import model_directory as hub
from bert_jax.hub.families import FAMILIES
from bert_jax.hub.layout import Layout
from bert_jax.hub.sentence_transformers import EmbedderSettings, Projection
from bert_jax.inference.batching import pad_batch
from bert_jax.text.wordpiece import WordPiece
from tests.support.cases import long_except
from tests.support.onnx_models import (
    BATCHES,
    CASES,
    SmallModel,
    assert_outputs_are_ours,
    compute_with_jax,
    graph_inputs,
    random_params,
    random_texts,
)
from tests.support.processes import process_environment
from tests.support.small_models import SMALL_CONFIG, SMALL_TEXTS, SMALL_VOCABULARY

CONFIG = SMALL_CONFIG.replace(max_position_embeddings=40, num_hidden_layers=1)
# Both kinds of relative terms, and two kinds of layers: an open length is harder for these than for the others.
ORDINARY = [("mpnet", None), ("deberta-v2", None), ("modernbert", "compare_mean")]
READER = """
import sys
import jax, jax.export
import numpy as np
from safetensors.numpy import load_file

program = jax.export.deserialize(bytearray(open("stablehlo/model.jax_export", "rb").read()))
outputs = jax.jit(program.call)(load_file("stablehlo/model.safetensors"), dict(np.load(sys.argv[1])))
np.savez(sys.argv[2], **outputs)
assert not {"bert_jax", "flax"} & sys.modules.keys()
"""

COMPILE_FOR_TPU = """
import sys
import jax, jax.export
from jax.experimental import topologies

device = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices[0]
here = jax.sharding.SingleDeviceSharding(device)
for path in sys.argv[1:]:
    program = jax.export.deserialize(bytearray(open(path, "rb").read()))
    shapes = [
        jax.ShapeDtypeStruct([d if isinstance(d, int) else 16 for d in value.shape], value.dtype, sharding=here)
        for value in program.in_avals
    ]
    arguments, _ = jax.tree.unflatten(program.in_tree, shapes)
    jax.jit(program.call).lower(*arguments).compile()
    print(device.device_kind)
"""


def save(path, heads=(), labels=(), embedder=None):
    layout = Layout(CONFIG, heads=heads, labels=labels, pooler="classify" in heads, embedder=embedder)
    hub.save_model(path, layout, random_params(layout), WordPiece.from_vocabulary(SMALL_VOCABULARY))
    return path


def export(path, output, *more: str) -> int:
    return main(["export", str(path), "--format", "stablehlo", "--output", str(output), *more])


@pytest.mark.slow
def test_jax_alone_computes_the_vectors_of_an_embedder(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(verification, "TEXTS", verification.TEXTS[1:3])  # few programs to compile
    settings = EmbedderSettings(projection=Projection(5, activation="tanh"), max_length=30)
    path, output = save(tmp_path / "model", ("mlm",), embedder=settings), tmp_path / "exported"
    assert export(path, output) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{output}/stablehlo/model.jax_export: last_hidden_state, sentence_embedding; the")
    assert float(said.split()[-1]) < 1e-5
    model = bert_jax.load(path)
    batch = pad_batch(model.tokenizer.encode(SMALL_TEXTS), model.tokenizer.special.pad)
    np.savez(tmp_path / "batch.npz", **{name: values.astype(np.int32) for name, values in batch.items()})
    command = [sys.executable, "-c", READER, tmp_path / "batch.npz", tmp_path / "outputs.npz"]
    elsewhere = {name: value for name, value in process_environment().items() if name != "PYTHONPATH"}
    subprocess.run(command, cwd=output, env=elsewhere, check=True)
    outputs = np.load(tmp_path / "outputs.npz")
    np.testing.assert_allclose(outputs["sentence_embedding"], model.encode(SMALL_TEXTS), atol=1e-6)
    assert outputs["last_hidden_state"].shape == (*batch["input_ids"].shape, CONFIG.hidden_size)

    files = {str(file.relative_to(output)) for file in output.rglob("*") if file.is_file()}
    beside = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    of_program = {f"stablehlo/{name}" for name in ("model.jax_export", "model.safetensors", "program.json")}
    assert files == beside - {"model.safetensors"} | of_program | {"hashes.json"}
    assert main(["check", str(output)]) == 0
    program = (output / "stablehlo/model.jax_export").read_bytes()
    assert b"bert_jax" not in program  # no paths of source files
    described = json.loads((output / "stablehlo/program.json").read_text())
    assert described["jax"] == jax.__version__ and described["max_length"] == 40
    assert described["inputs"] == ["input_ids", "attention_mask", "token_type_ids"] and described[
        "platforms"
    ] == ["cpu", "cuda", "tpu"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "head"),
    long_except(
        [(name, head) for name in CASES for head in (None, *FAMILIES[CASES[name][0]].heads)], ORDINARY
    ),
)
def test_hidden_states_and_logits_are_ours(case, head):
    model = SmallModel.of_case(case)
    texts, weights, layout = random_texts(model.layout), flatten_weights(model.params), model.with_head(head)
    with_head = replace(model, layout=replace(model.layout, heads=layout.heads))
    expected = compute_with_jax(with_head, texts)
    program, read = export_program(layout, weights)
    assert program.platforms == ("cpu", "cuda", "tpu") and read.keys() < weights.keys()
    call = jax.jit(program.call)
    for numbers in BATCHES[:2]:
        inputs = graph_inputs(layout, [texts[number] for number in numbers])
        found = call(read, {name: values.astype(np.int32) for name, values in inputs.items()})
        assert_outputs_are_ours(head, {name: found[name] for name in output_names(layout)}, expected, numbers)


@pytest.mark.long
def test_programs_that_are_written_on_a_cpu_compile_for_a_tpu(tmp_path):
    pytest.importorskip("libtpu", reason="the TPU compiler is in the extra `preflight`")
    for case, head in ORDINARY:
        model = SmallModel.of_case(case)
        program, _ = export_program(model.with_head(head), flatten_weights(model.params))
        (tmp_path / case).write_bytes(program.serialize())
    command = [sys.executable, "-c", COMPILE_FOR_TPU, *(str(path) for path in tmp_path.iterdir())]
    slices = {
        "TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }  # fmt: skip
    ran = subprocess.run(command, env=process_environment() | slices, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout.splitlines()[-3:] == ["TPU v5 lite"] * 3


@pytest.mark.slow
def test_a_program_with_other_outputs_is_refused(tmp_path, capsys, monkeypatch):
    path = save(tmp_path / "model", ("answer",))
    monkeypatch.setattr(verification, "PAIRS", verification.PAIRS[:1])
    monkeypatch.setattr(
        stablehlo_program.jnp, "moveaxis", lambda values, *_: (values[..., 1], values[..., 0])
    )
    assert export(path, tmp_path / "exported") == 1
    said = capsys.readouterr().err
    assert "exported is not written: outputs of the program differ by up to" in said and said.count("\n") == 1
    assert not (tmp_path / "exported").exists()


def test_bad_commands_are_refused_in_a_line(tmp_path, capsys, monkeypatch):
    path = save(tmp_path / "model")
    for more, said in (
        (("--step", "3"), "then the model to --format stablehlo"),
        (("--quantize", "avx2"), "--quantize writes an ONNX file"),
    ):
        assert export(path, tmp_path / "exported", *more) == 1
        assert said in capsys.readouterr().err
    (path / "stablehlo").mkdir()
    (path / "model.safetensors").rename(path / "stablehlo/model.jax_export")
    assert export(path, tmp_path / "exported") == 1
    assert "holds only a StableHLO program, from which weights are not read" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    assert export(path, tmp_path / "exported") == 1
    assert "install what is missing with pip install flatbuffers" in capsys.readouterr().err
    assert not (tmp_path / "exported").exists()
