"""Distils a model: a smaller one, the student, learns to give what its teacher gives.

    bert-jax train --config configs/distil.py:classifier --workdir runs/small --config.teacher=runs/reviews/model \
        --config.data.train=texts.csv

`classifier` teaches what a fine-tuned classifier gives for the texts of a table, whose labels may be missing. The
student begins as half of the teacher's layers (--config.model.layers=N for another number), or as --config.init=DIR.
Where there are labels, they count as much as --config.labels_weight says, by default not at all in training, and scores
are measured against them; where there are none, scores are agreement with the teacher.

`distilbert` learns from a prepared corpus (--config.data.corpora=corpus), which the teacher's tokenizer must have made:

    bert-jax prepare --input text.txt --tokenizer TEACHER --output corpus
    bert-jax train --config configs/distil.py:distilbert --workdir runs/half --config.teacher=TEACHER \
        --config.data.corpora=corpus

The student has half of the teacher's layers, begins as every second one of them, and learns the masked words (weight
2), the teacher's probabilities for them at temperature 2 (weight 5), and the directions of its last hidden states
(weight 1): --config.loss.mlm, .soft, .temperature, .cosine.

`minilm` and `tinybert` learn from the same corpora, and leave an encoder without heads, to be fine-tuned. A `minilm`
of 6 layers of 384 learns how the tokens of a text relate to each other by queries, keys and values: in its last layer
as in the teacher's, or in that of --config.loss.teacher_layer. A `tinybert` of 4 layers of 312 learns the embeddings,
the hidden states of layers evenly taken from the teacher's, and the scores of their attention. Both begin with initial
values, or as --config.init=DIR. `tinybert,laptop` is for a small machine: 2 layers of 192 learn embeddings and hidden
states of short rows.
"""

from ml_collections import ConfigDict

from bert_jax.errors import BertJaxError, nearest


def get_config(name: str = "classifier") -> ConfigDict:
    if name not in RECIPES:
        raise BertJaxError(f'configs/distil.py has no "{name}"; {nearest(name, RECIPES)}')
    config = ConfigDict()
    RECIPES[name](config)
    return config


def names() -> dict[str, str]:
    return {name: (recipe.__doc__ or "").partition("\n")[0].rstrip(".") for name, recipe in RECIPES.items()}


def classifier(config: ConfigDict) -> None:
    """What a fine-tuned classifier gives for texts, with labels or without."""
    config.task = "distil_classifier"
    config.head = "kept"  # the student begins with its teacher's


def of_corpora(config: ConfigDict, objective: str) -> None:
    config.task = "distil"
    config.objective = objective


def distilbert(config: ConfigDict) -> None:
    """DistilBERT's recipe: half of the layers, three passes over Wikipedia and books in large batches."""
    of_corpora(config, "distilbert")
    config.steps = 6_000
    config.data = ConfigDict({"batch": 4096, "lengths": (512,), "shares": (1.0,), "plans": 3})
    config.optimizer = ConfigDict({"rate": 5e-4, "warmup_share": 0.05, "beta2": 0.98})


def minilm(config: ConfigDict) -> None:
    """MiniLMv2's recipe: 6 layers of 384."""
    of_corpora(config, "minilm")
    config.steps = 400_000
    config.model = ConfigDict({"layers": 6, "hidden_size": 384})
    config.data = ConfigDict({"batch": 256, "lengths": (512,), "shares": (1.0,)})
    config.optimizer = ConfigDict({"rate": 6e-4, "warmup": 4_000})


def tinybert(config: ConfigDict) -> None:
    """TinyBERT's recipe of general distillation: 4 layers of 312, three passes over Wikipedia in short rows."""
    of_corpora(config, "tinybert")
    config.steps = 300_000
    config.model = ConfigDict({"layers": 4, "hidden_size": 312, "feed_forward": 1200})
    config.data = ConfigDict({"batch": 256, "lengths": (128,), "shares": (1.0,)})
    config.optimizer = ConfigDict({"rate": 5e-5, "warmup_share": 0.1})


def laptop(config: ConfigDict) -> None:
    """For a small machine: 2 layers of 192 learn embeddings and states of short rows, without masks and dropout."""
    tinybert(config)
    config.steps = 2_000
    config.model.update({"layers": 2, "hidden_size": 192, "feed_forward": 768})
    config.model.update({"dropout": 0.0, "attention_dropout": 0.0})
    config.data.update({"batch": 32, "lengths": (64,), "plans": 1, "masked": 0.0, "replaced": 0.0})
    config.loss = ConfigDict({"scores": 0.0})
    config.optimizer = ConfigDict({"rate": 2e-3, "warmup": 100})
    config.log = ConfigDict({"every": 50, "evaluate_every": 250, "evaluate_batches": 20})
    config.checkpoints = ConfigDict({"every": 250})


RECIPES = {
    "classifier": classifier,
    "distilbert": distilbert,
    "minilm": minilm,
    "tinybert": tinybert,
    "tinybert,laptop": laptop,
}
