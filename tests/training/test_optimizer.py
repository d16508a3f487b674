"""Schedules, the ordered rules on parameter names, and what the optimizer does to stacked parameters."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.traverse_util import unflatten_dict
from jax.sharding import PartitionSpec as P

from bert_jax.core.errors import BertJaxError
from bert_jax.hub.families import FAMILIES
from bert_jax.hub.layout import Layout
from bert_jax.models.bert import Bert
from bert_jax.models.encoder import dummy_batch
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.heads import HEADS
from bert_jax.models.mesh import AXES, DATA
from bert_jax.training import sharding
from bert_jax.training.optimizer import (
    guarded_adam,
    learning_rate_factor,
    make_optimizer,
    scale_by_trust_ratio,
)
from bert_jax.training.parameter_rules import PARAMETER_RULES, ParameterRule, match_rule, params_by_name
from bert_jax.training.run_config import MeshConfig, OptimizerConfig
from bert_jax.training.sharding import (
    ABORTING,
    can_map_over_data,
    check_batch,
    make_mesh,
    mesh_warnings,
    parameter_shardings,
)
from bert_jax.training.state import (
    abstract_batch,
    abstract_constants,
    abstract_state,
    init_random_params,
    initial_state,
    make_constants,
    make_task_optimizer,
)
from bert_jax.training.step import make_step
from bert_jax.training.task import Task
from tests.support.tiny_pretraining import Batches, tiny_pretraining


def rates(steps, **changes):
    config = OptimizerConfig(**changes)
    return np.array([2 * float(learning_rate_factor(config, steps, step)) for step in range(steps + 1)])


def test_schedules():
    linear = rates(100, warmup_steps=10)
    np.testing.assert_allclose(linear[:10], np.arange(1, 11) * 0.2, rtol=1e-6)
    np.testing.assert_allclose(linear[10:], 2 * np.arange(90, -1, -1) / 90, atol=1e-6)
    cosine = rates(100, warmup_steps=10, schedule="cosine")
    np.testing.assert_allclose(cosine[10:], 1 + np.cos(np.pi * np.arange(91) / 90), atol=1e-6)
    stable = rates(100, warmup_steps=10, schedule="warmup_stable_decay", decay_ratio=0.2)
    np.testing.assert_allclose(stable[9:81], 2, rtol=1e-6)
    np.testing.assert_allclose(stable[80:], 2 * np.arange(20, -1, -1) / 20, atol=1e-6)


def test_a_share_of_the_steps_warms_up():
    np.testing.assert_allclose(rates(50, warmup_steps=0.1), rates(50, warmup_steps=5))
    np.testing.assert_allclose(rates(20, warmup_steps=0.01), rates(20, warmup_steps=0))
    steps = [OptimizerConfig(warmup_steps=steps).num_warmup_steps(20) for steps in (0, 0.5, 1, 20)]
    assert steps == [0, 10, 1, 20]
    with pytest.raises(BertJaxError, match="warmup_steps is 1.5"):
        OptimizerConfig(warmup_steps=1.5)


def first_update(**changes):
    """What a first step of Adam subtracts, per parameter, where every gradient is 1."""
    shapes = jax.eval_shape(lambda: init_random_params(*tiny_pretraining(layers=3)))
    params = jax.tree.map(lambda leaf: jnp.ones(leaf.shape), shapes)
    optimizer = make_optimizer(OptimizerConfig(weight_decay=0.0, **changes))
    updates, _ = jax.jit(lambda params: optimizer.update(params, optimizer.init(params), params))(params)
    return {name: np.asarray(update) for name, update in params_by_name(updates).items()}


@pytest.mark.slow
def test_layers_further_down_learn_slower():
    plain, decayed = first_update(), first_update(layer_decay=0.5)
    for name, update in decayed.items():
        ratio = update / plain[name]
        if name.startswith("encoder/embeddings"):
            np.testing.assert_allclose(ratio, 1 / 16, rtol=1e-5)
        elif name.startswith("encoder/layers"):
            for layer, expected in enumerate((1 / 8, 1 / 4, 1 / 2)):
                np.testing.assert_allclose(ratio[layer], expected, rtol=1e-5)
        else:
            np.testing.assert_allclose(ratio, 1, rtol=1e-5)


@pytest.mark.slow
def test_frozen_layers_keep_their_values_and_do_not_count_for_clipping():
    frozen = first_update(frozen_layers=1, max_grad_norm=1e-3, epsilon=1.0)
    params = params_by_name(jax.eval_shape(lambda: init_random_params(*tiny_pretraining(layers=3))))
    free = 0
    for name, update in frozen.items():
        kept = update.size if "/embeddings/" in name else update.size // 3 if "/layers/" in name else 0
        assert np.count_nonzero(update) == update.size - kept, name
        if "/layers/" in name:
            assert not update[0].any() and update[1:].all()
        free += params[name].size - kept
    # With an epsilon of 1 an update is the clipped gradient itself: 1e-3 / sqrt(free) each.
    each = 1e-3 / free**0.5
    np.testing.assert_allclose(frozen["mlm/bias"], each / (1 + each), rtol=1e-3)


@pytest.mark.slow
def test_the_rate_equals_that_of_transformers():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    theirs = transformers.get_linear_schedule_with_warmup(optimizer, 10, 100)
    ours = rates(100, warmup_steps=10)
    for step in range(100):
        optimizer.step()
        theirs.step()
        # Theirs gives the first step nothing; ours is that of one step later until the warm-up ends.
        if step < 10:
            assert ours[step] == pytest.approx(theirs.get_last_lr()[0], rel=1e-6), step
        else:
            assert ours[step + 1] == pytest.approx(theirs.get_last_lr()[0], abs=1e-6), step


def test_biases_and_norms_do_not_decay_and_embeddings_do():
    task, config = tiny_pretraining()
    params = jax.eval_shape(lambda: init_random_params(task, config))
    decayed = {name for name in params_by_name(params) if match_rule(PARAMETER_RULES, name).decays}
    assert {name.split("/")[-1] for name in decayed} == {"kernel", "words", "positions", "token_types"}
    assert match_rule(PARAMETER_RULES, "mlm/bias").decays is False


@pytest.mark.slow
def test_weights_of_tokens_in_queries_learn_faster_and_do_not_decay():
    params = {"query_weights": {"weight": jnp.ones(3)}, "mlm": {"bias": jnp.ones(3)}}
    optimizer = make_optimizer(OptimizerConfig(weight_decay=0.1, max_grad_norm=0))
    updates, _ = optimizer.update(jax.tree.map(jnp.ones_like, params), optimizer.init(params), params)
    assert updates["mlm"]["bias"][0] == pytest.approx(1, rel=1e-4)
    assert updates["query_weights"]["weight"][0] == pytest.approx(50, rel=1e-4)


def test_lamb_treats_every_layer_and_query_key_and_value_as_a_tensor():
    random = np.random.RandomState(0)
    kernel, update = np.float32(random.standard_normal((2, 2, 6, 3, 2, 4)))
    kernel = kernel * np.arange(1, 4, dtype=np.float32)[:, None, None]
    other = np.float32(random.standard_normal((5, 6)))

    def tree(kernel, words):
        layers = {"attention": {"qkv": {"kernel": kernel, "bias": kernel[:, 0]}}}
        return jax.tree.map(jnp.asarray, {"encoder": {"layers": layers, "embeddings": {"words": words}}})

    params, updates = tree(kernel, other), tree(update, other * 2)
    scaled, _ = scale_by_trust_ratio().update(updates, optax.EmptyState(), params)
    ours = scaled["encoder"]["layers"]["attention"]["qkv"]["kernel"]
    for layer in range(2):
        for part in range(3):
            alone = optax.scale_by_trust_ratio().update(
                update[layer, :, part], optax.EmptyState(), kernel[layer, :, part]
            )[0]
            np.testing.assert_allclose(ours[layer, :, part], alone, rtol=1e-5)
    np.testing.assert_array_equal(scaled["encoder"]["layers"]["attention"]["qkv"]["bias"], update[:, 0])
    np.testing.assert_allclose(scaled["encoder"]["embeddings"]["words"], other, rtol=1e-6)


@pytest.mark.slow
def test_adam_is_that_of_torch():
    torch = pytest.importorskip("torch")
    random = np.random.RandomState(1)
    start = {
        "kernel": random.standard_normal((4, 3)).astype(np.float32),
        "bias": random.standard_normal(3).astype(np.float32),
    }
    theirs = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in start.items()}
    groups = [
        {"params": [theirs["kernel"]], "weight_decay": 0.01},
        {"params": [theirs["bias"]], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.1, betas=(0.9, 0.999), eps=1e-6)
    ours, transform = {"nsp": {"dense": dict(start)}}, make_optimizer(OptimizerConfig())
    state = transform.init(ours)
    for scale in (0.1, 3.0, 1.0):
        gradients = {
            name: random.standard_normal(value.shape).astype(np.float32) * scale
            for name, value in start.items()
        }
        for name, value in gradients.items():
            theirs[name].grad = torch.tensor(value)
        torch.nn.utils.clip_grad_norm_(theirs.values(), 1.0)
        optimizer.step()
        updates, state = transform.update({"nsp": {"dense": gradients}}, state, ours)
        ours = jax.tree.map(lambda param, update: param - 0.1 * update, ours, updates)
        for name in start:
            np.testing.assert_allclose(ours["nsp"]["dense"][name], theirs[name].detach().numpy(), atol=1e-5)


@pytest.mark.slow
def test_adam_is_that_of_optax_and_keeps_its_state_where_a_gradient_is_bad():
    random = np.random.default_rng(1)
    gradients = [{"a": jnp.asarray(random.standard_normal((3, 5)), jnp.float32)} for _ in range(3)]
    ours, theirs = guarded_adam(0.9, 0.98, 1e-6), optax.scale_by_adam(0.9, 0.98, 1e-6)
    state = other = theirs.init(gradients[0])
    for gradient in gradients:
        updates, state = ours.update(gradient, state, good=jnp.bool_(True))
        expected, other = theirs.update(gradient, other)
        jax.tree.map(np.testing.assert_array_equal, (updates, state), (expected, other))
    _, after = ours.update({"a": jnp.full((3, 5), jnp.nan)}, state, good=jnp.bool_(False))
    jax.tree.map(np.testing.assert_array_equal, after, state)


@pytest.mark.long
def test_a_step_copies_no_moments_before_it_replaces_them():
    task, config = tiny_pretraining()
    mesh = make_mesh(config.mesh)
    state, constants = initial_state(task, config, mesh), make_constants(task, config, mesh)
    lowered = make_step(task, config, mesh).lower(state, Batches().whole(0), constants)
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        text = lowered.compile().as_text()
    finally:
        jax.config.update("jax_disable_most_optimizations", True)
    assert "may-alias" in text and "state_optimizer" in text
    assert not re.findall(r"copy\(%state_optimizer_\w+__[mn]u__\S+kernel", text)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "embedding_size"), [("base", 0), ("large", 0), ("base", 128)])
def test_every_parameter_of_every_head_has_a_sharding_on_every_mesh(size, embedding_size):
    config = EncoderConfig.from_size(
        size, vocab_multiple=128, tie_word_embeddings=False, embedding_size=embedding_size
    )
    module = Bert(config, tuple(HEADS), labels=2)
    params = jax.eval_shape(module.init, jax.random.key(0), dummy_batch())["params"]
    shapes = {name: leaf.shape for name, leaf in params_by_name(params).items()}
    assert ("encoder/embeddings/projection/kernel" in shapes) == bool(embedding_size)
    specs = {name: match_rule(PARAMETER_RULES, name).spec for name in shapes}
    assert all(len(spec) <= len(shapes[name]) for name, spec in specs.items())
    split = sum(np.prod(shapes[name]) for name, spec in specs.items() if "fsdp" in spec)
    assert split / sum(map(np.prod, shapes.values())) > 0.99, "nearly all numbers are split over fsdp"
    layers = [name for name in specs if "layers/" in name and name.endswith("kernel")]
    assert all("tensor" in specs[name] for name in layers)


def test_rules_that_leave_a_parameter_out_are_an_error():
    for name in ("encoder/new/thing", "encoder/layers/new/kernel", "temperature", "encoder/new/dense/kernel"):
        with pytest.raises(BertJaxError, match=f"no rule matches the parameter {name}; add one to `rules`"):
            match_rule(PARAMETER_RULES, name)


class Projected(Task):
    """A head with a parameter of the task's own."""

    def init(self, key):
        return self.layout.init(key) | {"projection": {"matrix": jnp.ones((32, 8))}}


class Known(Projected):
    rules = (("^projection/matrix$", ParameterRule(P("fsdp", None), decays=False)),)
    frozen = (("^encoder/", True), ("", False))


@pytest.mark.slow
@pytest.mark.parametrize("head", FAMILIES["bert"].heads)
def test_a_parameter_of_a_task_needs_rules_of_its_own(head):
    task, config = tiny_pretraining(name="lamb", layer_decay=0.5)
    layout = Layout(task.layout.config, heads=(head,), labels=("a", "b"))
    mesh = jax.sharding.AbstractMesh((1, 2, 1), AXES)
    abstract_state(Task(layout), config, mesh)
    with pytest.raises(BertJaxError, match="projection/matrix"):
        abstract_state(Projected(layout), config, mesh)
    state = abstract_state(Known(layout), config, mesh)
    assert state.params["projection"]["matrix"].sharding.spec == P("fsdp", None)


@pytest.mark.slow
def test_what_a_task_freezes_keeps_its_value():
    task = Known(tiny_pretraining()[0].layout)
    params = jax.tree.map(lambda leaf: jnp.ones(leaf.shape), jax.eval_shape(task.init, jax.random.key(0)))
    optimizer = make_task_optimizer(task, tiny_pretraining()[1])
    updates, _ = jax.jit(lambda params: optimizer.update(params, optimizer.init(params), params))(params)
    moved = {name for name, update in params_by_name(updates).items() if np.any(update)}
    assert moved == {name for name in params_by_name(params) if not name.startswith("encoder/")}


def test_meshes_and_batches_that_do_not_divide_name_what_does():
    with pytest.raises(BertJaxError, match="mesh.fsdp=3.*mesh.tensor=1"):
        make_mesh(MeshConfig(fsdp=3), jax.devices()[:1])
    mesh = jax.sharding.AbstractMesh((4, 2, 1), AXES)
    with pytest.raises(
        BertJaxError, match="the 30 rows .* 8 groups of devices .* --config.data.batch_size=16 or 32"
    ):
        check_batch(30, mesh, 2)
    check_batch(32, mesh, 2)
    mesh = jax.sharding.AbstractMesh((1, 5, 4), AXES)
    vocabulary = {"mlm": {"bias": jax.ShapeDtypeStruct((30522,), "float32")}}
    with pytest.raises(
        BertJaxError, match="^mlm/bias .*=4.*divisor of 30522, or --config.model.vocab_multiple=128$"
    ):
        parameter_shardings(vocabulary, mesh)
    others = {
        "encoder/layers/feed_forward/in/bias": ((2, 66), "tensor"),
        "pooler/dense/kernel": ((32, 9), "fsdp"),
    }
    for name, (shape, axis) in others.items():
        params = unflatten_dict({name: jax.ShapeDtypeStruct(shape, "float32")}, sep="/")
        with pytest.raises(BertJaxError, match=f"; set --config.mesh.{axis} to a divisor of {max(shape)}$"):
            parameter_shardings(params, mesh)


def test_parameters_and_optimizer_are_split_over_data_where_asked():
    task, config = tiny_pretraining(shard_optimizer=True)
    mesh = jax.sharding.AbstractMesh((4, 2, 1), AXES)
    state = abstract_state(task, config, mesh)
    for tree in (state.params, state.optimizer):
        leaves = jax.tree.leaves(tree)
        split = [leaf for leaf in leaves if DATA in leaf.sharding.spec]
        assert sum(leaf.size for leaf in split) / sum(leaf.size for leaf in leaves) > 0.96
        of_layers = [leaf.sharding.spec for leaf in split if leaf.ndim > 2]
        assert of_layers and all(spec[0] is None for spec in of_layers), "a scan reads layers one by one"


@pytest.mark.parametrize("version", [(0, 10, 2), (0, 12, 0)])
def test_a_data_shard_s_program_is_split_over_fsdp_or_tensor_where_xla_would_abort(version):
    both = jax.sharding.AbstractMesh((2, 2, 2), AXES)
    assert can_map_over_data(both, version) == (version < ABORTING)
    for sizes in ((4, 1, 2), (4, 2, 1), (8, 1, 1)):
        assert can_map_over_data(jax.sharding.AbstractMesh(sizes, AXES), version)


@pytest.mark.parametrize(("sizes", "split"), [((4, 2, 1), True), ((2, 2, 2), False), ((1, 4, 1), False)])
def test_parameters_stay_whole_on_each_data_shard_where_they_cannot_be_split(monkeypatch, sizes, split):
    monkeypatch.setattr(sharding, "can_map_over_data", lambda mesh: can_map_over_data(mesh, ABORTING))
    task, config = tiny_pretraining(shard_optimizer=True)
    mesh = jax.sharding.AbstractMesh(sizes, AXES)
    specs = [leaf.sharding.spec for leaf in jax.tree.leaves(abstract_state(task, config, mesh))]
    assert any(DATA in spec for spec in specs) == split
    # One data shard has nothing to share; two should, and the run says why they do not.
    assert [warning.partition(":")[0] for warning in mesh_warnings(config.mesh, mesh)] == (
        ["mesh.shard_optimizer has no effect"] if sizes == (2, 2, 2) else []
    )


def test_rounded_gradients_beside_fsdp_and_tensor_are_refused(monkeypatch):
    monkeypatch.setattr("bert_jax.training.gradient.can_map_over_data", lambda mesh: False)
    task, config = tiny_pretraining(gradient_reduce_dtype="bfloat16")
    mesh = jax.sharding.AbstractMesh((2, 2, 2), AXES)
    with pytest.raises(BertJaxError, match="--config.mesh.gradient_reduce_dtype=float32"):
        make_step(task, config, mesh)


@pytest.mark.slow
def test_one_device_computes_the_same_program_if_the_optimizer_is_to_be_split():
    texts = []
    for asked in (False, True):
        task, config = tiny_pretraining(shard_optimizer=asked)
        mesh = make_mesh(config.mesh, jax.devices()[:1])
        batch = abstract_batch(Batches().features(0), config, mesh)
        state, constants = abstract_state(task, config, mesh), abstract_constants(task, config, mesh)
        texts.append(make_step(task, config, mesh).lower(state, batch, constants).as_text())
    assert texts[0] == texts[1]
