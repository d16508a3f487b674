"""Pre-trains with replaced-token detection: ELECTRA, and DeBERTa-v3 with gradient-disentangled embeddings.

    bert-jax train --config configs/electra.py:small --workdir runs/small --config.data.corpora=corpus

A small masked LM, the generator, predicts 15% of the tokens. Samples from its predictions replace these tokens, and the
discriminator predicts for every token whether it was replaced. The run writes the discriminator, which you fine-tune,
to model/ and the generator to model/generator/. --config.init=DIR continues with both: DIR/generator holds the
generator.

Time: base takes 6 to 12 hours on 16 TPU v5e chips (bounds of `bert-jax preflight`).
Score: after fine-tuning, the paper's small has a GLUE average of 79.9 (validation sets) and its base 85.1; trained on
OpenWebText alone, small has 78.9 on MNLI and 88.3 on SST-2. On MNLI DeBERTa-v3-xsmall has 88.1, base 90.6, large 91.8.

Names: small, base, large; deberta-v3-xsmall, -small, -base, -large; and tiny, mini. `small,laptop` (`mini,laptop`) is
for a small machine. Prepare a corpus for DeBERTa-v3 with the tokenizer of a published DeBERTa-v3.
"""

from ml_collections import ConfigDict

from bert_jax.core.errors import BertJaxError, suggest_name
from bert_jax.hub.families import resolve_size

# What holds instead in a run that starts from a model (--config.init), on TPUs and on GPUs; as in configs/pretrain.py.
FROM_INIT = {
    "steps": -1,  # three passes over the corpora
    "optimizer": {"name": "adam", "learning_rate": 2e-5, "schedule": "linear", "warmup_steps": 0.1},
    "checkpoints": {"best_metric": "replaced_loss"},
}
ON_TPU = {
    "prng_impl": "rbg",
    "model": {"dtype": "bfloat16", "vocab_multiple": 128},
    "mesh": {"shard_optimizer": True},
}
ON_GPU = {"model": {"dtype": "auto", "unroll": True}}

SIZES = {
    **{name: f"electra-{name}" for name in ("small", "base", "large")},
    **{name: name for name in ("tiny", "mini")},
    **{name: name for name in (f"deberta-v3-{size}" for size in ("xsmall", "small", "base", "large"))},
}


def get_config(names: str = "small") -> ConfigDict:
    size, *recipes = names.split(",")
    if size not in SIZES:
        raise BertJaxError(f'configs/electra.py has no size "{size}"; {suggest_name(size, SIZES)}')
    family, model = resolve_size(SIZES[size])
    config = ConfigDict()
    config.task = "electra"
    config.seed = 0
    config.family = family or "electra"
    if not family:
        model = model.replace(embedding_size=0 if model.hidden_size == 128 else 128)
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
    shape = {name: getattr(model, name) for name in sizes}
    config.model = ConfigDict(shape | model.changed_fields)
    config.from_init = ConfigDict(FROM_INIT)
    config.on_tpu = ConfigDict(ON_TPU)
    config.on_gpu = ConfigDict(ON_GPU)
    # Unlike in BERT, no target becomes a random token.
    config.data = ConfigDict(
        {"sentence_objective": "none", "length_ratios": (1.0,), "random_replace_prob": 0.0}
    )
    if config.family == "electra":
        electra(config)
    else:
        deberta_v3(config)
    for recipe in recipes:
        if recipe not in RECIPES:
            raise BertJaxError(
                f'configs/electra.py has no recipe "{recipe}"; {suggest_name(recipe, RECIPES)}'
            )
        RECIPES[recipe](config)
    return config


def names() -> dict[str, str]:
    """Return the names that may follow the colon, each with a description."""
    sizes = {}
    for name, of_family in SIZES.items():
        _, model = resolve_size(of_family)
        sizes[name] = f"discriminator with {model.num_hidden_layers} layers of {model.hidden_size}"
    return sizes | {f"SIZE,{name}": (recipe.__doc__ or "").rstrip(".") for name, recipe in RECIPES.items()}


def electra(config: ConfigDict) -> None:
    """The paper's recipe: small trains on short rows at a high learning rate; large masks 25%."""
    small, large = config.model.hidden_size < 768, config.model.hidden_size > 768
    config.steps = 1_000_000 if small else 400_000 if large else 766_000
    config.data.update(
        {
            "batch_size": 128 if small else 2048 if large else 256,
            "lengths": (128 if small else 512,),
            "mlm_probability": 0.25 if large else 0.15,
            "mask_replace_prob": 0.85,  # the other targets stay unchanged
        }
    )
    config.generator = ConfigDict({"width": 1 / 4 if small or large else 1 / 3})
    config.discriminator_weight = 50.0
    config.optimizer = ConfigDict({"learning_rate": 5e-4 if small else 2e-4, "warmup_steps": 10_000})


def deberta_v3(config: ConfigDict) -> None:
    """The paper's recipe: a generator as wide as the discriminator and half as deep, with all targets masked."""
    config.steps = 500_000
    config.sharing = "disentangled"
    config.data.update({"batch_size": 8192, "lengths": (512,), "mask_replace_prob": 1.0})
    config.generator = ConfigDict({"width": 1.0, "depth": 0.5})
    config.discriminator_weight = 50.0
    rate = 3e-4 if config.model.hidden_size >= 1024 else 6e-4
    config.optimizer = ConfigDict({"learning_rate": rate, "warmup_steps": 10_000, "beta2": 0.98})


def laptop(config: ConfigDict) -> None:
    """Small batches of short rows."""
    config.steps = 2_000
    config.data.update({"batch_size": 32, "lengths": (128,), "dupe_factor": 1})
    config.optimizer.update(
        {"learning_rate": 1e-3 if config.model.hidden_size <= 256 else 5e-4, "warmup_steps": 100}
    )
    config.log = ConfigDict({"every": 50, "evaluate_every": 250, "max_eval_batches": 20})
    config.checkpoints = ConfigDict({"every": 250})


RECIPES = {"laptop": laptop}
