"""Fine-tuning a classifier on a file of texts and labels, or on one of GLUE's tasks.

    bert-jax train --config configs/classify.py --workdir runs/reviews --config.init=MODEL \
        --config.data.train=train.csv --config.data.heldout=dev.csv
    bert-jax train --config configs/classify.py:mrpc --workdir runs/mrpc --config.init=MODEL

Columns are found where they are evident, or named: --config.data.columns.text=review. Names: cola, sst2, mrpc, stsb,
qqp, mnli, qnli, rte and wnli, which are downloaded. Several labels a text: --config.kind=labels; a number:
--config.kind=number.
"""

from ml_collections import ConfigDict

from bert_jax.data.examples import glue
from bert_jax.errors import BertJaxError, nearest


def get_config(name: str = "") -> ConfigDict:
    config = ConfigDict()
    config.task = "classify"
    # Three epochs at 3e-5 in steps of 32, from the middle of the published grid, and all else: tasks/finetune.py.
    if name:
        if name not in glue.TASKS:
            raise BertJaxError(f'configs/classify.py has no "{name}"; {nearest(name, glue.TASKS)}')
        task = glue.TASKS[name]
        config.kind = task.kind
        config.data = ConfigDict(
            {"train": f"tfds:glue/{name}:train", "heldout": f"tfds:glue/{name}:{task.heldout[0]}"}
        )
        config.checkpoints = ConfigDict({"best": task.metrics[0]})
    return config
