"""Fine-tuning an answer finder on questions and passages, SQuAD's or one's own.

    bert-jax train --config configs/answer.py --workdir runs/answers --config.init=MODEL \
        --config.data.train=train-v1.1.json --config.data.heldout=dev-v1.1.json
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.task = "answer"
    config.epochs = 2
    config.optimizer = ConfigDict({"rate": 5e-5})
    return config
