"""A config is parsed once in a run; a model directory, its tokenizer and its settings as an embedder are read once."""

from collections import Counter

import pytest

from bert_jax.command.main import main
from bert_jax.core import config as configs
from bert_jax.hub import model_directory, sentence_transformers
from bert_jax.text import tokenizer_directory
from tests.support.tables import write_csv
from tests.support.texts import marked_texts

SHORT = ("steps=4", "data.max_length=16", "data.batch_size=8", "data.batching=padded")


@pytest.fixture
def counts(monkeypatch):
    """(function, the directory that it reads or the class of config) -> the number of calls."""
    counts: Counter[tuple[str, str]] = Counter()

    def count(module, name: str, key) -> None:
        function = getattr(module, name)

        def counted(*given, **named):
            counts[name, key(given)] += 1
            return function(*given, **named)

        monkeypatch.setattr(module, name, counted)

    count(configs, "parse_config", lambda given: given[2].__module__)
    count(model_directory, "read_hf_config", lambda given: str(given[0]))
    count(tokenizer_directory, "_open_tokenizer_json", lambda given: str(given[0].parent))
    count(sentence_transformers, "read_embedder", lambda given: str(given[0]))
    return counts


def train(config: str, init, data, workdir, *settings: str) -> None:
    keys = [f"--config.{key}" for key in (f"init={init}", f"data.train={data}", *SHORT, *settings)]
    assert main(["train", "--config", config, f"--workdir={workdir}", *keys]) == 0


def assert_read_once(counts: Counter, directory) -> None:
    found = {
        name: counts[name, str(directory)]
        for name in ("read_hf_config", "read_embedder", "_open_tokenizer_json")
    }
    assert found == {"read_hf_config": 1, "read_embedder": 1, "_open_tokenizer_json": 1}


@pytest.mark.slow
def test_a_run_with_folds_of_two_methods(encoder_path, tmp_path, counts):
    data = write_csv(tmp_path / "train.csv", marked_texts(60, 0))
    train("classify", encoder_path, data, tmp_path / "run", "data.folds=2")
    assert (tmp_path / "run/folds/contrastive/1").is_dir()
    assert counts["parse_config", "bert_jax.tasks.classify"] == 1
    assert_read_once(counts, encoder_path)
    model = tmp_path / "run/model"
    assert_read_once(counts, model)
    for verb in (["evaluate", f"--data={data}"], ["predict", f"--input={data}"]):
        counts.clear()
        assert main([*verb, f"--model={model}"]) == 0
        assert_read_once(counts, model)
