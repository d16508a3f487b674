"""Fine-tuning a classifier on a file of texts and labels.

    bert-jax train --config configs/classify.py --workdir runs/reviews --config.init=MODEL \
        --config.data.train=train.csv --config.data.heldout=dev.csv

The file's columns are found where they are evident, or named: --config.data.columns.text=review.
"""

from ml_collections import ConfigDict


def get_config(name: str = "") -> ConfigDict:
    config = ConfigDict()
    config.task = "classify"
    return config
