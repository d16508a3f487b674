"""Fine-tunes a classifier on a table of texts and labels, or on a GLUE task.

    bert-jax train --config configs/classify.py --workdir runs/reviews --config.init=MODEL \
        --config.data.train=train.csv --config.data.validation=dev.csv
    bert-jax train --config configs/classify.py:mrpc --workdir runs/mrpc --config.init=MODEL

Time: about a minute per epoch of 6,400 short texts on two cores with a 6-layer MiniLM (base takes six times as long).
Fewer than 2,000 examples are cross-validated, which takes seconds where a probe suffices, else six times as long; with
--config.data.folds=0 a share of them is held out instead. With 2,000 or more examples, and fewer than 1,000 of each
class, one fold chooses the method; --config.method=finetune skips this comparison.
Score: with the native head (--config.model.pooling=native --config.head_init=pretrained) that MiniLM reaches an
accuracy of 0.81 on SST-2 after one such epoch at 3e-5, and 0.77 on MRPC after two at 5e-5; for base the BERT paper
reports 93.5 on SST-2 and an F1 of 88.9 on MRPC.

Columns with usual names are detected; name others with --config.data.columns.text=review. The GLUE tasks cola, sst2,
mrpc, stsb, qqp, mnli, qnli, rte and wnli are downloaded. For several labels per text set
--config.problem_type=multi_label_classification, for a number --config.problem_type=regression.
"""

from ml_collections import ConfigDict

from bert_jax.core.errors import BertJaxError, suggest_name
from bert_jax.data.examples import glue


def names() -> dict[str, str]:
    return {name: f"GLUE's {task.folder}, scored by {task.metric}" for name, task in glue.GLUE_TASKS.items()}


def get_config(name: str = "") -> ConfigDict:
    config = ConfigDict()
    config.task = "classify"
    # Defaults, in finetuning/: three epochs in batches of 32 and at least 60 steps, at a learning rate
    # of 3e-5 for base, the middle of the published grid.
    if name:
        if name not in glue.GLUE_TASKS:
            raise BertJaxError(f'configs/classify.py has no "{name}"; {suggest_name(name, glue.GLUE_TASKS)}')
        task = glue.GLUE_TASKS[name]
        config.problem_type = "single_label_classification" if task.labels else "regression"
        config.data = ConfigDict(
            {"train": f"tfds:glue/{name}:train", "validation": f"tfds:glue/{name}:{task.validation}"}
        )
        config.checkpoints = ConfigDict({"best_metric": task.metric})
    return config
