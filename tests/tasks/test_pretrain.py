"""Pre-training that continues from a model: its sizes, what its directory keeps, and the settings of a TPU."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.hub import model_directory as hub
from bert_jax.hub.layout import Layout
from bert_jax.hub.sentence_transformers import EmbedderSettings, Projection
from bert_jax.inference.embedder import Embedder
from bert_jax.inference.masked_lm import MaskedLM
from bert_jax.runs.train import run_values
from bert_jax.tasks import load_config, read_config
from bert_jax.training.workdir import Workdir
from tests.support.made_up_language import ENTRIES
from tests.support.pretraining_runs import make_corpus
from tests.support.project import ROOT
from tests.support.small_models import write_model
from tests.support.tiny_encoder import ENCODER_CONFIG, TOKENIZER
from tests.support.tiny_pretraining import Batches, tiny_pretraining

PRETRAIN = f"{ROOT}/configs/pretrain.py"
EMBEDS = EmbedderSettings(
    pooling="cls", max_length=30, prompts={"query": "w1 "}, default_prompt="query", projection=Projection(8)
)
ROWS = ("data.batch_size=8", "data.lengths=24", "data.length_ratios=1", "data.dupe_factor=1")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    """The directory of an embedder without the masked-word head, whose dropout rate is 0.2."""
    directory = tmp_path_factory.mktemp("embedder") / "model"
    layout = Layout(ENCODER_CONFIG.replace(hidden_dropout_prob=0.2), embedder=EMBEDS)
    params = jax.device_get(jax.jit(layout.init)(jax.random.key(0)))
    hub.save_model(directory, layout, params, TOKENIZER)
    return directory


def test_sizes_are_those_of_init_and_the_schedule_is_that_of_a_model_that_knows_something(embedder):
    _, config = load_config(f"{PRETRAIN}:base,laptop", [f"init={embedder}"])
    assert config.model == ENCODER_CONFIG.replace(hidden_dropout_prob=0.2, vocab_size=30522)
    optimizer = config.optimizer
    assert (config.first_step, config.steps, optimizer.learning_rate, optimizer.warmup_steps) == (
        0,
        -1,
        2e-5,
        0.1,
    )
    assert config.data.sentence_objective == "none" and config.checkpoints.best_metric == "mlm_loss"
    # Who names a value has it, also from Python.
    _, config = load_config(PRETRAIN, [f"init={embedder}", "steps=7", "model.hidden_dropout_prob=0.3"])
    assert (config.steps, config.model.hidden_dropout_prob) == (7, 0.3)
    keys = {"init": embedder, "steps": 7, "model.hidden_dropout_prob": 0.3}
    assert read_config(run_values(PRETRAIN, keys), ())[1] == config
    # A run that continues a schedule, or takes the sizes alone, has the published one.
    for more in ("first_step=5", "from_scratch=true"):
        _, config = load_config(PRETRAIN, [f"init={embedder}", more])
        assert config.model.hidden_size == 32
        assert (config.steps, config.optimizer.warmup_steps) == (1_000_000, 10_000)
    _, config = load_config(f"{ROOT}/configs/electra.py:small", [f"init={embedder}"])
    assert config.model.hidden_size == 32 and config.family == "" and config.steps == -1


def test_what_contradicts_init_is_refused(embedder, corpus, capsys, tmp_path):
    def output(*settings: str, init=embedder) -> str:
        keys = [f"--config.{key}" for key in (f"init={init}", f"data.corpora={corpus}", *ROWS, *settings)]
        assert main(["train", "--config", PRETRAIN, "--workdir", str(tmp_path / "run"), *keys]) == 1
        return capsys.readouterr().err

    # Also the value that it has without `init`.
    assert "other sizes than the config; set --config.model.hidden_size=32" in output("model.hidden_size=768")
    other, words = tmp_path / "other", ENTRIES[:-1]
    write_model(other, ENCODER_CONFIG.replace(vocab_size=len(words)), words=words)
    assert f"prepare it again with --tokenizer {other}" in output(init=other)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("warmup", "reached"), [(20, False), (5, True)])
def test_a_run_says_that_it_ends_within_its_warm_up(warmup, reached):
    task, config = tiny_pretraining(steps=20, warmup_steps=warmup)
    schedule = dict(task.facts(SimpleNamespace(config=config), None))["schedule"]
    assert ("the run of 20 steps does not reach; --config.optimizer.warmup_steps=0.1" in schedule) != reached


@pytest.mark.slow
def test_an_embedder_stays_one_and_becomes_a_masked_lm(embedder, corpus, tmp_path, capsys):
    keys = [f"--config.{key}" for key in (f"init={embedder}", f"data.corpora={corpus}", *ROWS)]
    flags = ["train", "--config", PRETRAIN, "--workdir", str(tmp_path / "run"), *keys]
    assert main([*flags, "--dry-run"]) == 0
    out, notes = capsys.readouterr()
    assert "masked words may make the embedder in" in notes
    out = " ".join(out.split())
    assert f"starts from {embedder} with random values for mlm, on" in out
    assert "3.0 passes over the corpora" in out, "as many steps as follow from the corpus"
    assert "a learning rate of 2e-05 after 85 steps of warm-up" in out
    assert "in float32, with random numbers of threefry2x32 and 1,000 rows of word embeddings" in out
    last = ["--config.steps=3", "--config.optimizer.learning_rate=0.01", "--config.checkpoints.best_metric="]
    assert main([*flags, *last]) == 0
    assert f"starts from {embedder} with random values for mlm\n" in capsys.readouterr().err
    before, after = Embedder.load(embedder), Embedder.load(tmp_path / "run/model")
    assert after.embedder == before.embedder == EMBEDS
    assert MaskedLM.load(tmp_path / "run/model").fill_mask("w1 [MASK]")
    for part in ("projection", "pooler"):  # no loss reads them
        jax.tree.map(np.testing.assert_array_equal, before.params[part], after.params[part])
    assert not np.allclose(before.encode("w1 w2"), after.encode("w1 w2"))
    sentence_transformers = pytest.importorskip("sentence_transformers")
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "run/model"), device="cpu")
    np.testing.assert_allclose(theirs.encode(["w1 w2 w3"]), after.encode(["w1 w2 w3"]), atol=1e-5)


def test_on_a_tpu_the_fast_settings_hold_unless_others_are_named(embedder):
    def settings(device: str, *overrides: str, config=f"{PRETRAIN}:base") -> tuple:
        _, config = load_config(config, overrides, device)
        return config.prng_impl, config.model.dtype, config.model.padded_vocab, config.mesh.shard_optimizer

    plain, fast = ("threefry2x32", "float32", 30522, False), ("rbg", "bfloat16", 30592, True)
    assert settings("cpu") == plain and settings("gpu") == (plain[0], "auto", *plain[2:])
    assert settings("tpu") == settings("tpu", config=f"{ROOT}/configs/electra.py") == fast
    assert settings("tpu", f"init={embedder}") == fast
    named = ["prng_impl=threefry2x32", "model.dtype=float32", "model.vocab_multiple=1"]
    assert settings("tpu", *named, "mesh.shard_optimizer=False") == plain


def test_a_run_of_a_tpu_is_not_resumed_with_other_random_numbers(tmp_path):
    task, config = tiny_pretraining(prng_impl="rbg")
    directory = Workdir(tmp_path)
    directory.record_or_check(config, Batches(), task.layouts)
    with pytest.raises(BertJaxError, match="prng_impl was rbg and is threefry2x32; put them back"):
        directory.record_or_check(replace(config, prng_impl="threefry2x32"), Batches(), task.layouts)
