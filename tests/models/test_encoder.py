import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.models import precision
from bert_jax.models.bert import Bert
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.pooling import pool
from tests.support.gradients import assert_gradients_equal
from tests.support.seeded_arrays import seeded_batch

TINY = EncoderConfig(
    vocab_size=101,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=48,
    max_position_embeddings=24,
    type_vocab_size=3,
)
BATCH = seeded_batch(4, 20, 101, 3, targets=4, seed=0)


def init(config=TINY, heads=("mlm", "nsp")):
    module = Bert(config, heads)
    return module, jax.device_get(jax.jit(module.init)(jax.random.key(0), BATCH))


def apply(module, params, batch=BATCH, train=False, seed=0):
    run = jax.jit(lambda p, b, key: module.apply(p, b, train, rngs={"dropout": key}))
    return jax.device_get(run(params, batch, jax.random.key(seed)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "heads", "count"),
    [
        ("base", (), 109_482_240),
        ("large", ("mlm", "nsp"), 336_226_108),
    ],
)
def test_published_parameter_counts(size, heads, count):
    module = Bert(EncoderConfig.from_size(size), heads)
    shapes = jax.eval_shape(module.init, jax.random.key(0), BATCH)
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == count


@pytest.mark.slow
def test_initial_values_are_berts():
    module, variables = init(EncoderConfig.from_size("mini", vocab_size=5000))
    flat = jax.tree_util.tree_leaves_with_path(variables["params"])
    for path, leaf in flat:
        name = jax.tree_util.keystr(path)
        if "scale" in name:
            assert (leaf == 1).all(), name
        elif "bias" in name:
            assert (leaf == 0).all(), name
        else:
            # A normal of 0.02 cut at two deviations: never beyond 0.04, and 0.0176 wide, not 0.02.
            assert np.abs(leaf).max() <= 0.04, name
            if leaf.size > 10_000:
                assert np.abs(leaf).max() > 0.0395, name
                assert np.std(leaf) == pytest.approx(0.02 * 0.8796, rel=0.02), name
                assert abs(np.mean(leaf)) < 4 * 0.0176 / np.sqrt(leaf.size), name
    kernel = variables["params"]["encoder"]["layers"]["feed_forward"]["in"]["kernel"]
    assert not np.allclose(kernel[0], kernel[1]), "layers must not start alike"


@pytest.mark.slow
def test_a_head_that_a_fine_tuning_begins_with_is_as_wide_as_it_says():
    head = Bert(EncoderConfig.from_size("mini", vocab_size=64, num_hidden_layers=1), ("classify",), labels=50)
    kernel = jax.jit(head.init)(jax.random.key(0), BATCH)["params"]["classify"]["dense"]["kernel"]
    assert np.std(kernel) == pytest.approx(0.02, rel=0.03)
    assert np.abs(kernel).max() > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("remat", ["dots", "full"])
def test_remat_changes_nothing(remat):
    module, params = init()

    def gradient(module):
        def loss(p):
            out = module.apply(p, BATCH)
            hidden = (out["hidden"] ** 2 * BATCH["attention_mask"][..., None]).sum()
            return hidden + out["mlm"].max() + out["nsp"].sum()

        return jax.jit(jax.grad(loss))(params)

    ours, expected = gradient(Bert(TINY.replace(remat=remat), ("mlm", "nsp"))), gradient(module)
    assert_gradients_equal(ours, expected)


@pytest.mark.slow
def test_dropout_differs_by_key_and_only_in_training():
    module, params = init(TINY.replace(hidden_dropout_prob=0.3, remat="full"))
    first, same, other = (apply(module, params, train=True, seed=seed)["hidden"] for seed in (0, 0, 1))
    assert (first == same).all()
    assert (first != other).any()
    quiet, still = (apply(module, params, seed=seed)["hidden"] for seed in (0, 1))
    assert (quiet == still).all()


@pytest.mark.slow
def test_bfloat16_computes_in_bfloat16_over_float32_parameters():
    module, params = init(TINY.replace(dtype="bfloat16"))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    out = apply(module, params)
    assert out["hidden"].dtype == jnp.bfloat16
    assert out["mlm"].dtype == out["nsp"].dtype == jnp.float32
    exact = apply(Bert(TINY, ("mlm", "nsp")), params)
    real = BATCH["attention_mask"] > 0
    assert np.abs(out["hidden"].astype(jnp.float32) - exact["hidden"])[real].max() < 0.1


@pytest.mark.slow
def test_padded_vocabulary_never_wins():
    config = TINY.replace(vocab_multiple=128)
    module, params = init(config)
    assert params["params"]["encoder"]["embeddings"]["words"].shape[0] == 128
    params["params"]["mlm"]["bias"] = np.where(np.arange(128) < 101, 0, np.float32(1e9))
    logits = apply(module, params)["mlm"]
    assert logits.shape[-1] == 128
    assert (logits.argmax(-1) < 101).all()
    assert (jax.nn.softmax(logits)[..., 101:] == 0).all()
    gradient = jax.jit(jax.grad(lambda p: jax.nn.logsumexp(module.apply(p, BATCH)["mlm"]).sum()))(params)[
        "params"
    ]
    assert (gradient["mlm"]["bias"][101:] == 0).all()


@pytest.mark.slow
def test_ids_out_of_range_become_nan_rather_than_another_word():
    module, params = init()
    batch = BATCH | {"input_ids": np.where(np.arange(20) == 3, 101, BATCH["input_ids"])}
    assert np.isnan(apply(module, params, batch)["hidden"]).any()


def test_pool():
    hidden = jnp.array([[[3.0, 0], [1, 4], [9, 9]], [[7, 7], [7, 7], [7, 7]]])
    mask = jnp.array([[1, 1, 0], [0, 0, 0]])
    np.testing.assert_allclose(pool(hidden, mask, normalize=False), [[2, 2], [0, 0]])
    np.testing.assert_allclose(pool(hidden, mask, "cls")[0], [1, 0])
    np.testing.assert_allclose(jnp.linalg.norm(pool(hidden, mask), axis=-1), [1, 0], rtol=1e-6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hiden_size": 3}, 'did you mean "hidden_size"?'),
        ({"num_attention_heads": 7}, "hidden_size = 768"),
        ({"hidden_act": "gelu_tan"}, 'did you mean "gelu_tanh"?'),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_hidden_layers": 2.0}, "not 2.0"),
        ({"layer_groups": -1}, "layer_groups"),
        ({"hidden_dropout_prob": 1.5}, "not 1.5"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"num_attention_heads": 10**9 - 1, "hidden_size": 10**9}, "divide"),
    ],
)
def test_impossible_configs_say_what_would_be_right(fields, message):
    with pytest.raises(BertJaxError) as error:
        EncoderConfig(**fields)
    assert message in str(error.value)


def test_named_sizes():
    for size, expected in {
        "tiny": (2, 128, 2, 512), "mini": (4, 256, 4, 1024), "small": (4, 512, 8, 2048),
        "medium": (8, 512, 8, 2048), "base": (12, 768, 12, 3072), "large": (24, 1024, 16, 4096),
    }.items():  # fmt: skip
        c = EncoderConfig.from_size(size)
        assert (c.num_hidden_layers, c.hidden_size, c.num_attention_heads, c.intermediate_size) == expected
    with pytest.raises(BertJaxError, match='did you mean "base"'):
        EncoderConfig.from_size("bass")


@pytest.fixture
def measured_anew():
    precision.fast_dtype.cache_clear()
    yield
    precision.fast_dtype.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize(("gain", "dtype"), [(2.0, "bfloat16"), (1.1, "float32")])
def test_auto_computes_in_what_the_processor_is_fast_in(gain, dtype, monkeypatch, measured_anew):
    monkeypatch.setattr(precision, "cpu_gain", lambda: gain)
    module, params = init(TINY.replace(dtype="auto"), heads=())
    assert module.apply(params, BATCH)["hidden"].dtype == dtype
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    precision.fast_dtype.cache_clear()
    assert precision.fast_dtype("cpu") == "float32", "several processes compute in the same type"


def test_the_gain_of_bfloat16_is_measured_wherever_it_is_asked_for(measured_anew):
    """Within a program that is being traced, for a mesh of several devices, too."""
    seen = []
    with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("data",), (jax.sharding.AxisType.Auto,))):
        jax.jit(lambda x: seen.append(precision.fast_dtype("cpu")) or x)(1.0)
    assert seen[0] in ("float32", "bfloat16")


def test_the_gain_is_the_ratio_of_the_best_times(monkeypatch):
    seconds = {"float32": iter([6, 4, 9, 9, 9, 9, 9]), "bfloat16": iter([5, 7, 2, 7, 7, 7, 7])}
    monkeypatch.setattr(precision, "compiled_product", lambda dtype: dtype)
    monkeypatch.setattr(precision, "measure_seconds", lambda dtype: next(seconds[dtype]))
    assert precision.cpu_gain() == 2
