"""Directories of every layout, good and hostile. What needs torch to be written is in hub/test_torch_pickle.py."""

import json
import shutil

import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from safetensors.numpy import load_file, save_file

from bert_jax.core.errors import BertJaxError
from bert_jax.hub import model_directory as hub
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.load import load
from bert_jax.text.wordpiece import WordPiece
from tests.support.small_models import (
    SMALL_CONFIG,
    SMALL_VOCABULARY,
    edit_config,
    load_error,
    trees_equal,
    write_model,
)


@pytest.fixture
def directory(tmp_path):
    write_model(tmp_path)
    return tmp_path


def edit_tensors(path, change):
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "heads", "labels"),
    [
        ("bert", (), ()), ("bert", ("tag",), ("O", "B", "I")), ("roberta", ("mlm",), ()),
        ("roberta", ("classify",), ("no", "yes")), ("xlm-roberta", ("answer",), ()),
    ],
)  # fmt: skip
def test_what_is_saved_opens_the_same(tmp_path, family, heads, labels):
    layout, params = write_model(tmp_path, heads=heads, labels=labels, family=family)
    model = load(tmp_path)
    assert model.layout.heads == heads and model.labels == labels
    assert model.config == SMALL_CONFIG
    assert trees_equal(model.params, params)


def test_a_padded_embedding_leaves_no_trace_in_the_files(tmp_path):
    layout, params = write_model(tmp_path / "padded", SMALL_CONFIG.replace(vocab_multiple=128))
    assert params["encoder"]["embeddings"]["words"].shape[0] == 128
    tensors = load_file(tmp_path / "padded" / "model.safetensors")
    assert tensors["bert.embeddings.word_embeddings.weight"].shape[0] == len(SMALL_VOCABULARY)
    assert tensors["cls.predictions.bias"].shape == (len(SMALL_VOCABULARY),)
    again = Encoder.from_directory(hub.ModelDirectory.open(tmp_path / "padded", vocab_multiple=8))
    assert again.params["mlm"]["bias"].shape == (16,)
    assert "vocab_multiple" not in (tmp_path / "padded" / "config.json").read_text()


@pytest.mark.slow
def test_sharded_directory(directory):
    whole = load(directory)
    tensors = load_file(directory / "model.safetensors")
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, held in parts.items():
        save_file({name: tensors[name] for name in held}, directory / file)
    (directory / "model.safetensors").unlink()
    index = {"weight_map": {name: file for file, held in parts.items() for name in held}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    assert trees_equal(load(directory).params, whole.params)
    (directory / "model-00002-of-00002.safetensors").unlink()
    assert "model-00002-of-00002.safetensors" in load_error(directory)


def test_names_of_the_first_published_models(directory):
    whole = load(directory)

    def age(tensors):
        for name in list(tensors):
            old = name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")
            tensors[f"module.{old}"] = tensors.pop(name)

    edit_tensors(directory, age)
    (directory / "config.json").rename(directory / "bert_config.json")
    assert trees_equal(load(directory).params, whole.params)


def test_half_precision_files_open_as_float32(directory):
    import ml_dtypes

    whole = load(directory)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        edit_tensors(
            directory, lambda tensors, d=dtype: tensors.update({k: v.astype(d) for k, v in tensors.items()})
        )
        words = load(directory).params["encoder"]["embeddings"]["words"]
        assert words.dtype == np.float32
        np.testing.assert_allclose(words, whole.params["encoder"]["embeddings"]["words"], rtol=0.01)


def test_untied_decoder(tmp_path):
    layout, params = write_model(tmp_path, SMALL_CONFIG.replace(tie_word_embeddings=False), heads=("mlm",))
    assert "cls.predictions.decoder.weight" in load_file(tmp_path / "model.safetensors")
    assert trees_equal(load(tmp_path).params, params)


@pytest.mark.slow
def test_a_new_head_keeps_the_encoder_and_drops_the_others(directory):
    old = load(directory)
    model = load(directory, head="classify", labels=["no", "yes", "maybe"])
    assert model.layout.heads == ("classify",) and model.labels == ("no", "yes", "maybe")
    assert trees_equal(model.params["encoder"], old.params["encoder"]) and trees_equal(
        model.params["pooler"], old.params["pooler"]
    )
    assert model.params["classify"]["dense"]["kernel"].shape == (8, 3)
    other = load(directory, head="classify", labels=["no", "yes", "maybe"], seed=1)
    assert not trees_equal(other.params["classify"], model.params["classify"])
    model.save(directory / "new")
    assert trees_equal(load(directory / "new").params, model.params)
    # A second new head on top of the first, of another size.
    assert load(directory / "new", head="tag", labels=["O"]).params["tag"]["dense"]["kernel"].shape == (8, 1)
    again = load(directory / "new", head="classify", labels=["a", "b"])
    assert again.params["classify"]["dense"]["kernel"].shape == (8, 2)


def test_missing_left_over_and_misshapen_tensors_are_listed(directory):
    def spoil(tensors):
        tensors["bert.encoder.layer.1.output.dense.bias"] = np.zeros(9, np.float32)
        del tensors["bert.encoder.layer.0.intermediate.dense.bias"]
        tensors["something.else"] = np.zeros(1, np.float32)

    edit_tensors(directory, spoil)
    message = load_error(directory)
    assert "bert.encoder.layer.0.intermediate.dense.bias" in message
    assert "something.else" in message
    assert "bert.encoder.layer.1.output.dense.bias" in message
    assert "missing" in load_error(directory, head="classify", labels=["a", "b"]), (
        "no head excuses an encoder"
    )


def test_half_a_pooler_is_not_passed_over(tmp_path):
    write_model(tmp_path, heads=("mlm",))
    edit_tensors(tmp_path, lambda tensors: tensors.pop("bert.pooler.dense.bias"))
    assert "bert.pooler.dense.bias" in load_error(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 10**15}, "hidden_size = 1000000000000000"),
        ({"num_hidden_layers": 900_000_000}, "900000000"),
        ({"vocab_size": 900_000_000}, "[900000000, 8]"),
        ({"intermediate_size": -1}, "intermediate_size = -1"),
        ({"num_attention_heads": 3}, "hidden_size"),
        ({"hidden_act": "gelo"}, 'did you mean "gelu"?'),
        ({"model_type": "bart"}, 'did you mean "bert"?'),
        ({"position_embedding_type": "relative_key"}, "'absolute'"),
        ({"is_decoder": True}, "is_decoder = True"),
        ({"architectures": ["BertForMultipleChoice"]}, "BertForMultipleChoice"),
        ({"architectures": ["BertForTokenClassification"], "id2label": {"1": "a"}}, "labels"),
    ],
)  # fmt: skip
def test_absurd_configs(directory, changes, message):
    edit_config(directory, **changes)
    assert message in load_error(directory, tokenizer=False)


def test_the_directory_of_a_run_names_its_model(directory, tmp_path):
    shutil.copytree(directory, tmp_path / "run" / "model")
    with pytest.raises(BertJaxError, match="run has no config.json; the model of that run is .*run/model"):
        load(tmp_path / "run")


@pytest.mark.slow
def test_another_models_tokenizer(directory):
    WordPiece.from_vocabulary([*SMALL_VOCABULARY, *map(str, range(100))]).save(directory)
    assert "111" in load_error(directory)


def test_a_tokenizer_without_special_tokens(tmp_path):
    write_model(tmp_path, words=None)
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat"]))
    assert "[MASK]" in load_error(tmp_path)


def test_cased_weights_with_a_lower_casing_tokenizer_are_pointed_out(tmp_path):
    words = [*SMALL_VOCABULARY[:5], "The", "Cat", "the", "cat", "Mat", "mat", "."]
    write_model(tmp_path, words=None)
    WordPiece.from_vocabulary(words, do_lower_case=True).save(tmp_path)
    with pytest.warns(UserWarning, match="cased"):
        load(tmp_path)


def test_what_is_no_model_directory(tmp_path):
    assert "config.json" in load_error(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert "JSON" in load_error(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    assert "list" in load_error(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert "weights" in load_error(tmp_path)
    assert "is not a directory" in load_error(tmp_path / "config.json")


def test_a_name_that_is_no_path_says_how_to_get_one():
    assert "--local-dir" in load_error("some/model")


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_a_model_of_the_hub_is_fetched_without_its_other_formats(weights, tmp_path, monkeypatch):
    from huggingface_hub.utils import filter_repo_objects

    needed = {"config.json", "vocab.txt", "modules.json", "1_Pooling/config.json", weights}
    needed.add("2_Dense/pytorch_model.bin")
    others = {
        "pytorch_model.bin",
        "onnx/config.json",
        "openvino/openvino_tokenizer.json",
        "flax_model.msgpack",
    }
    fetched = set()

    def snapshot_download(name, allow_patterns, ignore_patterns):
        assert name == "some/model"
        for file in filter_repo_objects(
            needed | others, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns
        ):
            fetched.add(file)
            (tmp_path / file).parent.mkdir(exist_ok=True)
            (tmp_path / file).touch()
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    assert hub.resolve_directory("some/model") == tmp_path
    assert fetched == needed


def test_a_failed_save_leaves_nothing(directory, tmp_path, monkeypatch):
    model = load(directory)

    def fail(tensors, path, **_):
        path.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(hub, "save_file", fail)
    with pytest.raises(BertJaxError, match="No space"):
        model.save(tmp_path / "new")
    assert not any(path.name.startswith((".new", "new")) for path in tmp_path.iterdir())


@pytest.mark.slow
def test_info(directory, capsys):
    from bert_jax.command.main import main

    assert main(["info", str(directory)]) == 0
    text = capsys.readouterr().out
    assert "bert, 2 layers of 8 with 2 heads" in text and "odd" not in text
    assert "WordPiece, 12 entries, lower-cases" in text
    assert main(["info", str(directory), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    parameters = flatten_dict(load(directory).params, sep="/").values()
    assert facts["parameters"]["all"] == sum(x.size for x in parameters)
    assert facts["heads"] == ["mlm", "nsp"] and facts["pooling"] == "pooler"
    assert facts["sequence_length"] == facts["sizes"]["max_position_embeddings"]
    edit_tensors(directory, lambda tensors: tensors.pop("cls.predictions.bias"))
    assert main(["info", str(directory)]) == 0
    assert "odd         the weights in" in capsys.readouterr().out
    shutil.rmtree(directory)
    assert main(["info", str(directory)]) == 1
    assert "is not a directory" in capsys.readouterr().err
