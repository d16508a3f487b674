"""Distils a model: a smaller model, the student, learns to reproduce the outputs of its teacher.

    bert-jax train --config configs/distil.py:classifier --workdir runs/small --config.teacher=runs/reviews/model \
        --config.data.train=texts.csv

`classifier` teaches the predictions of a fine-tuned classifier for the texts of a table, with or without labels. The
student is initialised with half of the teacher's layers (--config.model.num_hidden_layers=N for another number), or
from --config.init=DIR. If there are labels, scores are measured against them, and --config.labels_weight is their
weight in training (by default 0); if there are none, scores measure agreement with the teacher.

`distilbert` learns from a corpus (--config.data.corpora=corpus), which must be prepared with the teacher's tokenizer:

    bert-jax prepare --input text.txt --tokenizer TEACHER --output corpus
    bert-jax train --config configs/distil.py:distilbert --workdir runs/half --config.teacher=TEACHER \
        --config.data.corpora=corpus

The student is initialised with half of the teacher's layers, evenly spaced. It learns the masked words (weight 2), the
teacher's probabilities for them at temperature 2 (weight 5), and the directions of the teacher's last hidden states
(weight 1): --config.loss.mlm, .soft, .temperature, .cosine.

`minilm` and `tinybert` learn from the same corpora, and produce an encoder without heads, to be fine-tuned. `minilm`
(6 layers of 384) learns how queries, keys and values relate the tokens of a text to each other: its last layer learns
from the teacher's last one (a late one if the teacher has more than 12), or from --config.loss.teacher_layer.
`tinybert` (4 layers of 312) learns the embeddings, the hidden states of evenly spaced layers of the teacher, and their
attention scores. Both start from random values, or from --config.init=DIR. `tinybert,laptop` is for a small machine: 2
layers of 192 learn embeddings and hidden states of short rows.
"""

from ml_collections import ConfigDict

from bert_jax.core.errors import BertJaxError, suggest_name


def get_config(name: str = "classifier") -> ConfigDict:
    if name not in RECIPES:
        raise BertJaxError(f'configs/distil.py has no "{name}"; {suggest_name(name, RECIPES)}')
    config = ConfigDict()
    RECIPES[name](config)
    return config


def names() -> dict[str, str]:
    return {name: (recipe.__doc__ or "").partition("\n")[0].rstrip(".") for name, recipe in RECIPES.items()}


def classifier(config: ConfigDict) -> None:
    """Learn the predictions of a fine-tuned classifier on texts, with or without labels."""
    config.task = "distil_classifier"
    config.head_init = "pretrained"  # the student starts with its teacher's head


def of_corpora(config: ConfigDict, objective: str) -> None:
    config.task = "distil"
    # What holds on TPUs and on GPUs, where it is faster; the models and their objective stay the same.
    config.on_tpu = ConfigDict(
        {
            "prng_impl": "rbg",
            "model": {"dtype": "bfloat16", "vocab_multiple": 128},
            "mesh": {"shard_optimizer": True},
        }
    )
    config.on_gpu = ConfigDict({"model": {"dtype": "auto", "unroll": True}})
    config.objective = objective


def distilbert(config: ConfigDict) -> None:
    """DistilBERT's recipe: half of the layers, three passes over Wikipedia and books in large batches."""
    of_corpora(config, "distilbert")
    config.steps = 6_000
    config.data = ConfigDict(
        {"batch_size": 4096, "lengths": (512,), "length_ratios": (1.0,), "dupe_factor": 3}
    )
    config.optimizer = ConfigDict({"learning_rate": 5e-4, "warmup_steps": 0.05, "beta2": 0.98})


def minilm(config: ConfigDict) -> None:
    """MiniLMv2's recipe: 6 layers of 384."""
    of_corpora(config, "minilm")
    config.steps = 400_000
    config.model = ConfigDict({"num_hidden_layers": 6, "hidden_size": 384})
    config.data = ConfigDict({"batch_size": 256, "lengths": (512,), "length_ratios": (1.0,)})
    config.optimizer = ConfigDict({"learning_rate": 6e-4, "warmup_steps": 4_000})


def tinybert(config: ConfigDict) -> None:
    """TinyBERT's recipe of general distillation: 4 layers of 312, three passes over Wikipedia in short rows."""
    of_corpora(config, "tinybert")
    config.steps = 300_000
    config.model = ConfigDict({"num_hidden_layers": 4, "hidden_size": 312, "intermediate_size": 1200})
    config.data = ConfigDict({"batch_size": 256, "lengths": (128,), "length_ratios": (1.0,)})
    config.optimizer = ConfigDict({"learning_rate": 5e-5, "warmup_steps": 0.1})


def laptop(config: ConfigDict) -> None:
    """For a small machine: 2 layers of 192 learn embeddings and hidden states of short rows, no masks, no dropout."""
    tinybert(config)
    config.steps = 2_000
    config.model.update({"num_hidden_layers": 2, "hidden_size": 192, "intermediate_size": 768})
    config.model.update({"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
    config.data.update(
        {
            "batch_size": 32,
            "lengths": (64,),
            "dupe_factor": 1,
            "mask_replace_prob": 0.0,
            "random_replace_prob": 0.0,
        }
    )
    config.loss = ConfigDict({"scores": 0.0})
    config.optimizer = ConfigDict({"learning_rate": 2e-3, "warmup_steps": 100})
    config.log = ConfigDict({"every": 50, "evaluate_every": 250, "max_eval_batches": 20})
    config.checkpoints = ConfigDict({"every": 250})


RECIPES = {
    "classifier": classifier,
    "distilbert": distilbert,
    "minilm": minilm,
    "tinybert": tinybert,
    "tinybert,laptop": laptop,
}
