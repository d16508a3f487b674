"""Replaced-token detection: ELECTRA and DeBERTa-v3 beside torch, what is drawn, and what learns from what."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax.command.export import export_checkpoint
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.hub import model_directory as hub
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.hub.published_form import to_hf_tensors
from bert_jax.tasks import load_config
from bert_jax.tasks.electra import (
    DELTA,
    GENERATOR,
    ReplacedTokenTask,
    get_embeddings,
    replace_embeddings,
    sample_tokens,
)
from bert_jax.training import warm_start
from tests.support.gradients import assert_loss_and_gradients_close
from tests.support.pretraining_runs import assert_resumes, checkpoint_arrays, logged_metrics, make_corpus
from tests.support.project import ROOT
from tests.support.seeded_arrays import seeded_batch

pytestmark = pytest.mark.usefixtures("shared_steps")

WEIGHT = 50.0
VOCABULARY = 61
SHARED = {"vocab_size": VOCABULARY, "max_position_embeddings": 30}
ELECTRA = SHARED | {"embedding_size": 8, "type_vocab_size": 2}
DEBERTA = SHARED | {
    "hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 40, "type_vocab_size": 0,
    "position_biased_input": False, "relative_attention": True, "pos_att_type": "p2c|c2p", "position_buckets": 8,
    "share_att_key": True, "norm_rel_ebd": "layer_norm", "legacy": False,
}  # fmt: skip
SIZES = {
    "tied": (
        ("ElectraForPreTraining", ELECTRA | {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
                                             "intermediate_size": 40}),
        ("ElectraForMaskedLM", ELECTRA | {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 1,
                                          "intermediate_size": 20}),
    ),
    "disentangled": (
        ("DebertaV2Model", DEBERTA | {"num_hidden_layers": 2}),
        ("DebertaV2ForMaskedLM", DEBERTA | {"num_hidden_layers": 1}),
    ),
}  # fmt: skip


class Torch:
    """The two models of transformers, the embeddings that they share, and DeBERTa-v3's head, which it lacks."""

    def __init__(self, sharing, root):
        torch = pytest.importorskip("torch")
        from safetensors.numpy import load_file, save_file

        from tests.support.transformers_models import save_transformers_model

        self.torch, self.sharing = torch, sharing
        (kind, config), (generator, smaller) = SIZES[sharing]
        self.discriminator = save_transformers_model(kind, root, seed=3, **config)
        self.generator = save_transformers_model(generator, root / GENERATOR, seed=4, **smaller)
        self.head = {}
        if sharing == "tied":
            self.generator.electra.embeddings = shared = self.discriminator.electra.embeddings
            self.generator.generator_lm_head.weight = shared.word_embeddings.weight
            self.generator.save_pretrained(root / GENERATOR)
            return
        random = np.random.RandomState(5)
        sizes = {"dense.weight": (24, 24), "dense.bias": 24, "LayerNorm.weight": 24, "LayerNorm.bias": 24,
                 "classifier.weight": (1, 24), "classifier.bias": 1}  # fmt: skip
        head = {name: 0.3 * random.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
        self.head = {name: torch.from_numpy(value).requires_grad_() for name, value in head.items()}
        tensors = load_file(root / "model.safetensors")
        tensors = {f"deberta.{name}": value for name, value in tensors.items()}
        save_file(tensors | {f"mask_predictions.{k}": v for k, v in head.items()}, root / "model.safetensors")
        published = json.loads((root / "config.json").read_text())
        published["architectures"] = ["DebertaV2ForPreTraining"]
        (root / "config.json").write_text(json.dumps(published))

    def losses(self, batch, tokens, replaced):
        """(the generator's, the discriminator's) and the gradients of both by published names, summed with WEIGHT."""
        from tests.support.transformers_models import transformers_inputs, transformers_mlm_labels

        torch = self.torch
        mlm = self.generator(
            **self.outcomes(transformers_inputs(batch)), labels=transformers_mlm_labels(batch)
        ).loss
        seen = self.outcomes(transformers_inputs(batch | {"input_ids": tokens}))
        labels = torch.from_numpy(replaced.astype(np.int64))
        if self.sharing == "tied":
            told = self.discriminator(**seen, labels=labels).loss
        else:
            table = self.discriminator.embeddings.word_embeddings.weight
            theirs = self.generator.deberta.embeddings.word_embeddings.weight
            self.delta = (table.detach() - theirs.detach()).requires_grad_()
            words = {"embeddings.word_embeddings.weight": theirs.detach() + self.delta}
            hidden = torch.func.functional_call(self.discriminator, words, (), seen).last_hidden_state
            logits = self.told(hidden)
            real = torch.from_numpy(batch["attention_mask"]) > 0
            told = torch.nn.functional.binary_cross_entropy_with_logits(logits[real], labels[real].float())
        (mlm + WEIGHT * told).backward()
        gradients = {f"generator {name}": p.grad for name, p in self.generator.named_parameters()}
        own = {name: p.grad for name, p in self.discriminator.named_parameters()}
        if self.sharing == "disentangled":
            own["embeddings.word_embeddings.weight"] = self.delta.grad
            own = {f"deberta.{name}": gradient for name, gradient in own.items()}
            own |= {f"mask_predictions.{name}": value.grad for name, value in self.head.items()}
        return (mlm.item(), told.item()), {n: g.numpy() for n, g in (gradients | own).items()}

    def outcomes(self, arrays):
        return arrays if self.sharing == "tied" else {k: v for k, v in arrays.items() if "type" not in k}

    def told(self, hidden):
        functional, head = self.torch.nn.functional, self.head
        states = hidden + hidden[:, :1]
        states = functional.layer_norm(states, (24,), head["LayerNorm.weight"], head["LayerNorm.bias"], 1e-7)
        states = functional.gelu(functional.linear(states, head["dense.weight"], head["dense.bias"]))
        return functional.linear(states, head["classifier.weight"], head["classifier.bias"])[..., 0]


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """sharing -> the task, a batch, and of it losses and their gradients, here and in torch."""
    found = {}

    def of(sharing):
        if sharing not in found:
            found[sharing] = compute(sharing, tmp_path_factory.mktemp(sharing))
        return found[sharing]

    return of


def compute(sharing, root):
    theirs = Torch(sharing, root)
    layouts = [hub.ModelDirectory.open(root / name).layout for name in ("", GENERATOR)]
    task = ReplacedTokenTask(
        layouts[0], generator=layouts[1], weight=WEIGHT, disentangled=sharing == "disentangled"
    )
    params, missing = warm_start.read_initial_params(hub.ModelDirectories(), str(root), task, seed=0)
    assert not missing
    batch = seeded_batch(4, 19, VOCABULARY, 2, targets=5, seed=1)

    def losses(params, batch):
        outputs = task.outputs(params, batch)
        return jnp.stack([loss.mean for loss in task.losses(outputs, batch).values()]), outputs

    @jax.jit
    def run(params, batch):
        values, pull, outputs = jax.vjp(lambda params: losses(params, batch), params, has_aux=True)
        return values, jax.vmap(pull)(jnp.eye(2))[0], outputs

    drawn = run(params, batch)[2]["drawn"]
    real = batch["target_weights"] > 0
    batch["targets"][0, 0], batch["target_weights"][0, 0] = drawn[0, 0], 1.0  # drawn as it was: not replaced
    values, gradients, outputs = jax.device_get(run(params, batch))
    np.testing.assert_array_equal(outputs["drawn"], drawn)
    tokens, replaced = batch["input_ids"].copy(), np.zeros_like(batch["input_ids"])
    for row, column in np.argwhere(real | (batch["target_weights"] > 0)):
        place = batch["target_positions"][row, column]
        tokens[row, place] = drawn[row, column]
        replaced[row, place] = drawn[row, column] != batch["targets"][row, column]
    assert 0 < replaced.sum() < real.sum()
    np.testing.assert_array_equal(outputs["replaced"], replaced)
    each = [jax.tree.map(lambda gradient, n=n: gradient[n], gradients) for n in range(2)]
    return task, values, each, theirs.losses(batch, tokens, replaced)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", SIZES)
def test_losses_and_gradients_equal_transformers(computed, sharing):
    task, values, gradients, ((mlm, told), expected) = computed(sharing)
    np.testing.assert_allclose(values, [mlm, WEIGHT * told], rtol=1e-5)
    both = jax.tree.map(np.add, *gradients)
    own = {name.removesuffix(DELTA): table for name, table in get_embeddings(both["discriminator"]).items()}
    of_discriminator = replace_embeddings(both["discriminator"], own)
    if sharing == "tied":
        of_discriminator = task.split_params(both)[""]
    ours = {
        f"generator {name}": value for name, value in to_hf_tensors(task.generator, both[GENERATOR]).items()
    }
    ours |= to_hf_tensors(task.layout, of_discriminator)
    ours = {name: value for name, value in ours.items() if name in expected}
    assert_loss_and_gradients_close((sum(values), ours), (mlm + WEIGHT * told, expected))


@pytest.mark.slow
@pytest.mark.parametrize("sharing", SIZES)
def test_the_discriminator_teaches_the_generator_through_tied_embeddings_alone(computed, sharing):
    _, _, (of_generator, of_discriminator), _ = computed(sharing)
    size = jax.tree.map(lambda gradient: float(np.abs(gradient).max()), of_discriminator[GENERATOR])
    tables = size["encoder"].pop("embeddings")
    assert max(jax.tree.leaves(size)) == 0
    if sharing == "tied":
        projection = tables.pop("projection")
        assert max(jax.tree.leaves(projection)) == 0 and min(jax.tree.leaves(tables)) > 0
    else:
        assert max(jax.tree.leaves(tables)) == 0
        assert np.abs(get_embeddings(of_discriminator["discriminator"])["words_delta"]).max() > 0
    assert max(float(np.abs(g).max()) for g in jax.tree.leaves(of_generator["discriminator"])) == 0


@pytest.mark.slow
def test_scores_are_of_real_tokens():
    random = np.random.RandomState(0)
    logits, replaced = random.standard_normal((3, 7)), random.rand(3, 7) < 0.4
    mask = (np.arange(7) < np.array([[7], [4], [5]])).astype(np.int32)
    told, real = logits > 0, mask > 0
    hits = (told & replaced)[real].sum()
    expected = {
        "share": replaced[real].mean(), "accuracy": (told == replaced)[real].mean(),
        "precision": hits / told[real].sum(), "recall": hits / replaced[real].sum(),
        "loss": np.log1p(np.exp(np.where(replaced, -logits, logits)))[real].mean(),
    }  # fmt: skip
    task = ReplacedTokenTask.from_config(load_config("configs/electra.py:tiny", [])[1], ModelDirectories())
    batch = seeded_batch(3, 7, 9, 1, 2, seed=0) | {"attention_mask": mask}
    outputs = {"mlm": np.zeros((3, 2, 9)), "told": logits, "replaced": replaced}
    scores, losses = task.scores(outputs, batch), task.losses(outputs, batch)
    for name, value in expected.items():
        assert float(scores[f"replaced_{name}"].mean) == pytest.approx(value, rel=1e-5), name
    assert float(losses["weighted_replaced_loss"].mean) == pytest.approx(50 * expected["loss"], rel=1e-5)


@pytest.mark.slow
def test_draws_are_at_temperature_1():
    """The mean log probability of what is drawn, in standard errors from its expectation."""
    rows, targets, entries = 2_000, 20, 40
    logits = 2 * jax.random.normal(jax.random.key(1), (rows, targets, entries))
    logs = np.asarray(jax.nn.log_softmax(logits), np.float64)
    means = (np.exp(logs) * logs).sum(-1)
    variances = (np.exp(logs) * logs**2).sum(-1) - means**2

    def distance(temperature):
        drawn = np.asarray(jax.jit(sample_tokens)(logits / temperature, jax.random.key(2)))
        of_drawn = np.take_along_axis(logs, drawn[..., None], -1)[..., 0]
        return (of_drawn - means).sum() / np.sqrt(variances.sum())

    assert abs(distance(1.0)) < 4 and distance(1.1) < -12


@pytest.mark.slow
def test_draws_follow_rows_and_key():
    logits = jnp.zeros((6, 9, 50))
    rows = jnp.array([3, 1, 4, 0, 5, 2])
    drawn, sorted_rows = (
        sample_tokens(logits, jax.random.key(0), rows),
        sample_tokens(logits, jax.random.key(0)),
    )
    np.testing.assert_array_equal(drawn, sorted_rows[rows])
    assert len({tuple(row) for row in sorted_rows.tolist()}) == 6
    assert (sample_tokens(logits, jax.random.key(1)) != sorted_rows).mean() > 0.9


QUICK = {
    "steps": 6, "checkpoints.every": 3, "log.every": 2, "log.evaluate_every": 3, "log.max_eval_batches": 2,
    "optimizer.warmup_steps": 2, "data.lengths": 24, "data.batch_size": 8, "data.dupe_factor": 1,
    "model.num_hidden_layers": 1,
    "model.hidden_size": 32, "model.num_attention_heads": 2, "model.intermediate_size": 64,
    "model.embedding_size": 16,
    "generator.width": 0.5,
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """sharing -> the directory of a run; it may be repeated, and other settings given."""
    root = tmp_path_factory.mktemp("runs")
    corpus = make_corpus(root)

    def run(workdir, **changes):
        settings = [f"--config.{name}={value}" for name, value in (QUICK | changes).items()]
        words = [
            "train",
            "--config",
            f"{ROOT}/configs/electra.py:tiny",
            "--workdir",
            str(root / workdir),
        ]
        return main([*words, f"--config.data.corpora={corpus}", *settings]), root / workdir

    return run


@pytest.mark.ci
def test_a_run_leaves_both_models_resumes_and_goes_on(trained, tmp_path, capsys):
    """Here with disentangled embeddings, of which the sum is exported."""
    code, whole = trained("whole", sharing="disentangled")
    assert code == 0
    validation = [line for line in logged_metrics(whole) if line["kind"] == "validation"]
    measures = {"mlm_loss", "mlm_accuracy", "replaced_loss", "replaced_accuracy", "replaced_share",
                "replaced_precision", "replaced_recall", "mlm_top5_accuracy"}  # fmt: skip
    assert len(validation) == 2 and measures <= set(validation[0])

    assert_resumes(lambda again: trained(again.name, sharing="disentangled"), whole)
    assert export_checkpoint(whole, tmp_path / "exported") == 6
    transformers = pytest.importorskip("transformers")
    for name, kind in (("", "ElectraForPreTraining"), (GENERATOR, "ElectraForMaskedLM")):
        contents = [
            (root / name / "model.safetensors").read_bytes()
            for root in (whole / "model", tmp_path / "exported")
        ]
        assert len(set(contents)) == 1
        _, report = getattr(transformers, kind).from_pretrained(
            whole / "model" / name, output_loading_info=True
        )
        assert not any(report.values()), report
    tables = [
        get_embeddings(bert_jax.load(whole / "model" / name).params)["words"] for name in ("", GENERATOR)
    ]
    assert 0 < np.abs(tables[0] - tables[1]).max() < 0.1

    code, more = trained("more", init=whole / "model", first_step=6, steps=7, sharing="tied")
    assert code == 0
    went_on = checkpoint_arrays(more / "checkpoints/7")
    (words,) = [v for name, v in went_on.items() if name.startswith("['params']") and "words" in name]
    assert 0 < np.abs(words - tables[0]).max() < 0.01
    shutil.rmtree(whole / "model" / GENERATOR)
    assert trained("refused", init=whole / "model", first_step=6, steps=7)[0] == 1
    assert f"put that model into {whole}/model/generator" in capsys.readouterr().err


REFUSED = {
    "small": (["data.sentence_objective=next_sentence"], "set --config.data.sentence_objective=none"),
    "base": (["family=bert"], "set --config.family=electra or --config.family=deberta-v2"),
    "deberta-v3-small": (["generator.width=0.5"], "cannot have embedding_size = 768"),
}


@pytest.mark.parametrize("size", REFUSED)
def test_what_cannot_be_trained_is_refused(size):
    settings, message = REFUSED[size]
    with pytest.raises(BertJaxError, match=message) as error:
        ReplacedTokenTask.from_config(
            load_config(f"configs/electra.py:{size}", settings)[1], ModelDirectories()
        )
    assert "\n" not in str(error.value)


# Width, layers and embeddings of discriminator and generator, heads of the generator, steps, rows, rate.
PUBLISHED = {
    "small": ((256, 12, 128), (64, 12, 128), 1, 1_000_000, 128, 5e-4),
    "base": ((768, 12, 768), (256, 12, 768), 4, 766_000, 256, 2e-4),
    "large": ((1024, 24, 1024), (256, 24, 1024), 4, 400_000, 2048, 2e-4),
    "deberta-v3-xsmall": ((384, 12, 384), (384, 6, 384), 6, 500_000, 8192, 6e-4),
    "deberta-v3-small": ((768, 6, 768), (768, 3, 768), 12, 500_000, 8192, 6e-4),
    "deberta-v3-base": ((768, 12, 768), (768, 6, 768), 12, 500_000, 8192, 6e-4),
    "deberta-v3-large": ((1024, 24, 1024), (1024, 12, 1024), 16, 500_000, 8192, 3e-4),
}


@pytest.mark.parametrize("size", PUBLISHED)
def test_recipes_have_the_published_sizes(size):
    _, config = load_config(f"configs/electra.py:{size}", [])
    task = ReplacedTokenTask.from_config(config, ModelDirectories())
    sizes = [
        (model.hidden_size, model.num_hidden_layers, model.embedding_width)
        for model in (layout.config for layout in task.layouts.values())
    ]
    run = (config.steps, config.data.batch_size, config.optimizer.learning_rate)
    assert (*sizes, task.generator.config.num_attention_heads, *run) == PUBLISHED[size]
    assert task.weight == 50 and task.disentangled == size.startswith("deberta")
