"""Pre-trains BERT or another family, by size and recipe.

    bert-jax train --config configs/pretrain.py:base --workdir runs/base --config.data.corpora=corpus

Time: base takes 3 to 6 hours on 16 TPU v5e chips, large 9 to 13 on 64 (bounds of `bert-jax preflight`; in 2018 both
took four days, on 16 and 64 chips); `tiny,laptop` takes ten to fifteen minutes on two cores.
Score: after fine-tuning, the BERT paper's base has a GLUE average of 79.6, large 82.1; after 600 steps on Python's
documentation (launch/quickstart.sh), `tiny,laptop` predicts 22% of the masked words of the validation set.

Names: tiny, mini, small, medium, base, large; `base,roberta` uses RoBERTa's recipe instead of BERT's, `base,lamb` the
recipe for batches of 32,768; `tiny,laptop` is for a small machine. `base,alibi` and `base,sinusoidal` change how a
model reads positions, and go with any other recipe: `tiny,laptop,alibi`. Published sizes of other families are chosen
by their full names (electra-small, albert-base, distilbert-base, ...). They learn masked words, and ALBERT also the
order of sentences, with their family's recipe if it has one. To train with replaced tokens, use configs/electra.py.

--config.init=DIR continues from a model: sizes and dropout are those of DIR, and `from_init` below replaces the
schedule. `modernbert-base,long` continues from the model of `modernbert-base`, with rows of 8,192 tokens instead of
1,024. On TPUs `on_tpu` holds, on GPUs `on_gpu` (below).
`bert-jax inspect --config configs/pretrain.py:base --config.data.corpora=corpus --step 0` shows a batch.
"""

from ml_collections import ConfigDict

from bert_jax.core.errors import BertJaxError, suggest_name
from bert_jax.hub.families import resolve_size, sizes_of_families
from bert_jax.models.encoder_config import BERT_SIZES

# What holds instead in a run that starts from a model (--config.init): the recipes' rates and warm-ups are made for
# random values. 2e-5 is what BERT's authors give for further steps.
FROM_INIT = {
    "steps": -1,  # three passes over the corpora
    "optimizer": {"name": "adam", "learning_rate": 2e-5, "schedule": "linear", "warmup_steps": 0.1},
    "checkpoints": {"best_metric": "mlm_loss"},
    "data": {"sentence_objective": "none"},
}
# What holds on TPUs, where it is faster; the model and its objective stay the same.
ON_TPU = {
    "prng_impl": "rbg",
    "model": {"dtype": "bfloat16", "vocab_multiple": 128},
    "mesh": {"shard_optimizer": True},
}
# What holds on GPUs: unrolled, a step is a fifth faster, and compiles in a minute instead of half a minute.
ON_GPU = {"model": {"dtype": "auto", "unroll": True}}


def get_config(names: str = "base") -> ConfigDict:
    size, *recipes = names.split(",")
    family, model = resolve_size(size)
    config = ConfigDict()
    config.task = "pretrain"
    config.seed = 0
    # 40 passes over Wikipedia and books; in 2018 this took 4 days, on 16 TPU chips for base and on 64 for large.
    config.steps = 1_000_000
    # Other defaults are in training/run_config.py: Adam at 1e-4 after 10,000 steps of warm-up, linear decay.
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
    shape = {name: getattr(model, name) for name in sizes}
    config.model = ConfigDict(shape | model.changed_fields)
    config.from_init = ConfigDict(FROM_INIT)
    config.on_tpu = ConfigDict(ON_TPU)
    config.on_gpu = ConfigDict(ON_GPU)
    config.data = ConfigDict(
        {
            "batch_size": 256,
            # Attention cost grows with the square of the length: most steps are short, the others train the positions.
            "lengths": (128, 512),
            "length_ratios": (0.9, 0.1),
            "sentence_objective": "next_sentence",
            "dupe_factor": 10,  # Google's duplication factor
        }
    )
    if family:
        config.family = family
        config.data.sentence_objective = "none"  # except for ALBERT, these families only train the masked LM
    if family in OF_FAMILY:
        OF_FAMILY[family](config)
    for recipe in recipes:
        if recipe not in RECIPES:
            raise BertJaxError(
                f'configs/pretrain.py has no recipe "{recipe}"; {suggest_name(recipe, RECIPES)}'
            )
        RECIPES[recipe](config)
    return config


def names() -> dict[str, str]:
    models = {size: resolve_size(size)[1] for size in (*BERT_SIZES, *sizes_of_families())}
    sizes = {
        size: f"{model.num_hidden_layers} layers of {model.hidden_size}" for size, model in models.items()
    }
    return sizes | {f"SIZE,{name}": (recipe.__doc__ or "").rstrip(".") for name, recipe in RECIPES.items()}


def electra(config: ConfigDict) -> None:
    """ELECTRA's batch sizes and learning rates, with only the generator's objective."""
    small = config.model.hidden_size < 768
    large = config.model.hidden_size > 768
    config.steps = 1_000_000 if small else 400_000 if large else 766_000
    config.data.update(
        {"batch_size": 128 if small else 2048 if large else 256, "lengths": (128 if small else 512,)}
    )
    config.data.length_ratios = (1.0,)
    config.optimizer = ConfigDict({"learning_rate": 5e-4 if small else 2e-4})


def albert(config: ConfigDict) -> None:
    """ALBERT's batch size and learning rate, masked n-grams of up to three words, and the order of sentences."""
    config.steps = 125_000
    config.data.update({"batch_size": 4096, "lengths": (512,), "length_ratios": (1.0,)})
    config.data.update({"sentence_objective": "sentence_order", "mask_unit": "span", "max_span_length": 3})
    config.optimizer = ConfigDict({"name": "lamb", "learning_rate": 1.76e-3, "warmup_steps": 3_125})


def modernbert(config: ConfigDict) -> None:
    """ModernBERT's first phase: 1.7 trillion tokens in packed rows of 1,024, 30% of them masked, at a constant learning
    rate; AdamW instead of StableAdamW."""
    large = config.model.hidden_size > 768
    config.steps = 364_000
    config.model.rotary.update({"theta": 10_000.0, "local_theta": 10_000.0})
    config.data.update(
        {
            "batch_size": 4608,
            "lengths": (1024,),
            "length_ratios": (1.0,),
            "mlm_probability": 0.3,
            "max_documents_per_row": 32,
        }
    )
    config.optimizer = ConfigDict(
        {
            "learning_rate": 5e-4 if large else 8e-4,
            "schedule": "warmup_stable_decay",
            "warmup_steps": 640,  # 3 billion tokens
            "decay_ratio": 0.0,  # the next phase decays
            "beta2": 0.98,
            "weight_decay": 1e-5,
        }
    )


def long(config: ConfigDict) -> None:
    """ModernBERT's second phase, from the first one's model: rows of 8,192, a lower learning rate, decay at the end."""
    # 250 billion tokens, then 50 billion with decay: linear here, 1 - the square root in the original. mmBERT and Ettin
    # raise the base of their local layers, too: --config.model.rotary.local_theta=160000.
    if config.get("family") != "modernbert":
        raise BertJaxError(
            "the recipe long is ModernBERT's; write modernbert-base,long or modernbert-large,long"
        )
    large = config.model.hidden_size > 768
    config.steps = 508_000
    config.model.rotary.theta = 160_000.0
    config.from_init = ConfigDict(
        {"model": {"rotary": {"theta": 160_000.0}}}
    )  # the schedule is that of this recipe
    config.data.update({"batch_size": 72, "lengths": (8192,), "max_documents_per_row": 128})
    config.optimizer.update(
        {"learning_rate": 5e-5 if large else 3e-4, "warmup_steps": 0, "decay_ratio": 1 / 6}
    )


def alibi(config: ConfigDict) -> None:
    """ALiBi in place of position embeddings: scores of attention fall with the distance, in texts of any length."""
    config.model.update({"positions": "alibi", "max_position_embeddings": 8192})


def sinusoidal(config: ConfigDict) -> None:
    """Sinusoidal position embeddings, which are computed and not trained."""
    config.model.positions = "sinusoidal"


def roberta(config: ConfigDict) -> None:
    """Full sentences instead of sentence pairs, only long rows, large batches (the 500k-step recipe)."""
    config.steps = 500_000
    config.data.update(
        {"batch_size": 8192, "lengths": (512,), "length_ratios": (1.0,), "sentence_objective": "none"}
    )
    large = config.model.hidden_size >= 1024
    config.optimizer = ConfigDict(
        {"learning_rate": 4e-4 if large else 6e-4, "warmup_steps": 30_000 if large else 24_000, "beta2": 0.98}
    )


def deberta(config: ConfigDict) -> None:
    """The paper's recipe: large batches of long rows."""
    config.data.update({"batch_size": 2048, "lengths": (512,), "length_ratios": (1.0,)})
    config.optimizer = ConfigDict({"learning_rate": 2e-4, "warmup_steps": 10_000})


def deberta_v2(config: ConfigDict) -> None:
    """The recipe of version 3, without its replaced tokens."""
    config.steps = 500_000
    config.data.update({"batch_size": 8192, "lengths": (512,), "length_ratios": (1.0,)})
    rate = 3e-4 if config.model.hidden_size >= 1024 else 6e-4
    config.optimizer = ConfigDict({"learning_rate": rate, "warmup_steps": 10_000, "beta2": 0.98})


def mosaic_bert(config: ConfigDict) -> None:
    """MosaicBERT's recipe: rows of 128 tokens, 30% of them masked; ALiBi reads longer ones."""
    config.steps = 70_000
    config.data.update(
        {"batch_size": 4096, "lengths": (128,), "length_ratios": (1.0,), "mlm_probability": 0.3}
    )
    config.optimizer = ConfigDict(
        {"learning_rate": 5e-4, "warmup_steps": 0.06, "beta2": 0.98, "weight_decay": 1e-5}
    )


def lamb(config: ConfigDict) -> None:
    """The large batches of "BERT in 76 minutes": 32,768 rows, a 64th of the steps."""
    config.steps = 15_625
    config.data.batch_size = 32_768
    config.optimizer = ConfigDict({"name": "lamb", "learning_rate": 5e-3, "warmup_steps": 3_125})


def laptop(config: ConfigDict) -> None:
    """For a small machine: short rows, no sentence pairs, 40% masked, no dropout, embeddings from co-occurrences."""
    config.steps = 2_000
    config.embedding_init = "cooccurrences"
    config.model.update({"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
    config.data.update(
        {
            "batch_size": 64,
            "lengths": (64,),
            "length_ratios": (1.0,),
            "dupe_factor": 1,
            "mlm_probability": 0.4,
        }
    )
    if config.data.sentence_objective == "next_sentence":
        config.data.sentence_objective = "none"
    # A wider model needs a lower rate: at 2e-3 mini predicts the most frequent words, regardless of context.
    config.optimizer = ConfigDict(
        {"learning_rate": 2e-3 * 128 / config.model.hidden_size, "warmup_steps": 100}
    )
    config.log = ConfigDict({"every": 50, "evaluate_every": 250, "max_eval_batches": 20})
    config.checkpoints = ConfigDict({"every": 250})


OF_FAMILY = {
    "albert": albert,
    "deberta": deberta,
    "deberta-v2": deberta_v2,
    "electra": electra,
    "modernbert": modernbert,
    "mosaic_bert": mosaic_bert,
    "mpnet": roberta,
}
RECIPES = {
    "roberta": roberta, "lamb": lamb, "long": long, "laptop": laptop, "alibi": alibi, "sinusoidal": sinusoidal
}  # fmt: skip
