"""Vocabularies learned from text, and words added to a model's."""

import json
import random

import numpy as np
import pytest
from flax.traverse_util import unflatten_dict
from safetensors.numpy import load_file

from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.hub import model_directory as hub
from bert_jax.hub.layout import Layout
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.text.text_source import TextSource
from bert_jax.text.tokenizer_directory import open_tokenizer
from bert_jax.text.vocabulary_training import train_vocabulary


def made_up_text(seed: int) -> str:
    """Words of syllables, some far commoner than others, so that there is something to learn."""
    rng = random.Random(seed)
    syllables = ["ka", "lo", "mi", "tor", "ban", "shi", "wu", "gré", "pel", "sun"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 5))) for _ in range(400)]
    weights = [1 / (i + 1) for i in range(len(words))]
    lines = (" ".join(rng.choices(words, weights, k=12)).capitalize() + "." for _ in range(3000))
    return "\n\n".join(lines)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(made_up_text(0))
    return path


def vocab(*arguments) -> int:
    return main(["vocab", *map(str, arguments)])


@pytest.mark.slow
@pytest.mark.parametrize("cased", [False, True])
def test_wordpiece_has_bert_special_ids_and_is_deterministic(text, tmp_path, capsys, monkeypatch, cased):
    flags = ["--input", text, "--size", 600, *["--cased"] * cased]
    assert vocab(*flags, "--output", tmp_path / "a") == 0
    output = capsys.readouterr().out
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    assert vocab(*flags, "--output", tmp_path / "b") == 0
    assert (tmp_path / "a" / "vocab.txt").read_bytes() == (tmp_path / "b" / "vocab.txt").read_bytes()
    tokenizer = open_tokenizer(tmp_path / "a")
    special = tokenizer.special
    assert (special.pad, special.unk, special.cls, special.sep, special.mask) == (0, 100, 101, 102, 103)
    assert tokenizer.tokens([1, 99]) == ["[unused0]", "[unused98]"] and tokenizer.size == 600
    entries = (tmp_path / "a" / "vocab.txt").read_text().split("\n")
    assert any("Ka" in entry for entry in entries) == cased
    assert (tokenizer.ids(["KALO"]) == tokenizer.ids(["kalo"])) != cased
    assert "tokens per word" in output and "0.000% of the tokens unknown" in output and "UTF-8" not in output
    broken = tmp_path / "broken.txt"
    broken.write_bytes(b"\xff\n" + text.read_bytes())
    assert vocab("--input", broken, "--size", 600, "--output", tmp_path / "c") == 0
    assert "1 line of broken UTF-8" in capsys.readouterr().out


def test_sentencepiece_is_deterministic(text, tmp_path, capsys):
    flags = ["--input", text, "--size", 200, "--kind", "sentencepiece"]
    assert vocab(*flags, "--output", tmp_path / "a") == vocab(*flags, "--output", tmp_path / "b") == 0
    assert (tmp_path / "a" / "spiece.model").read_bytes() == (tmp_path / "b" / "spiece.model").read_bytes()
    tokenizer = open_tokenizer(tmp_path / "a")
    special = tokenizer.special
    assert (special.pad, special.unk, special.cls, special.sep, special.mask) == (0, 1, 2, 3, 4)
    assert tokenizer.ids(["Kalo"]) == tokenizer.ids(["kalo"]) and "unknown" in capsys.readouterr().out


@pytest.mark.parametrize("error", [BertJaxError("x.jsonl row 2 is not JSON; mend it"), KeyboardInterrupt()])
def test_an_error_in_the_text_is_told_as_it_is(error, tmp_path):
    class Failing:
        def documents(self):
            yield "Ka lo mi.\n" * 9
            raise error

    with pytest.raises(type(error)) as caught:
        train_vocabulary(Failing(), tmp_path / "out", kind="sentencepiece", size=50)
    assert caught.value is error and not (tmp_path / "out").exists()


@pytest.fixture
def model(text, tmp_path):
    """A model directory, and its tensors."""
    train_vocabulary(TextSource([text]), tmp_path / "model", size=400)
    config = EncoderConfig(
        vocab_size=400, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12,
        max_position_embeddings=16, tie_word_embeddings=False,
    )  # fmt: skip
    layout = Layout(config, heads=("mlm", "nsp"))
    rng = np.random.default_rng(0)
    flat = {name: rng.normal(size=shape).astype(np.float32) for name, shape in layout.shapes().items()}
    hub.save_model(tmp_path / "model", layout, unflatten_dict(flat, sep="/"))
    return tmp_path / "model", load_file(tmp_path / "model" / "model.safetensors")


@pytest.mark.slow
def test_new_words_have_the_mean_of_their_old_pieces(model, tmp_path, capsys):
    directory, tensors = model
    (tmp_path / "domain.txt").write_text("Kaloshimitor wubanpel kalo.\n\n" * 9 + "Torwutorwu rare.\n\n" * 2)
    flags = ["--input", tmp_path / "domain.txt", "--extend", directory, "--output", tmp_path / "out"]
    assert vocab(*flags) == 0
    assert "words added" in capsys.readouterr().out
    before, now = open_tokenizer(directory), open_tokenizer(tmp_path / "out")
    added = now.tokens(range(400, now.size))
    assert {"kaloshimitor", "wubanpel"} <= set(added) and "torwutorwu" not in added
    assert now.tokens(range(400)) == before.tokens(range(400))
    written = load_file(tmp_path / "out" / "model.safetensors")
    assert written.keys() == tensors.keys()
    per_entry = {f"cls.predictions.{name}" for name in ("bias", "decoder.weight")}
    per_entry.add("bert.embeddings.word_embeddings.weight")
    for name in per_entry:
        assert np.array_equal(written[name][:400], tensors[name])
        for i, word in enumerate(added, 400):
            assert now.ids([word]) == [[i]]
            np.testing.assert_allclose(
                written[name][i], tensors[name][before.ids([word])[0]].mean(axis=0), rtol=1e-6
            )
    for name in tensors.keys() - per_entry:
        assert np.array_equal(written[name], tensors[name])
    assert json.loads((tmp_path / "out" / "config.json").read_text())["vocab_size"] == now.size
