"""Fine-tunes a question-answering model on questions and passages, from SQuAD's JSON or a table.

    bert-jax train --config configs/answer.py --workdir runs/answers --config.init=MODEL \
        --config.data.train=train-v1.1.json --config.data.validation=dev-v1.1.json

Time: half a day on two cores with a 6-layer MiniLM (estimated from its throughput; base takes six times as long).
Score: the BERT paper reports an exact match of 80.8 and an F1 of 88.5 on SQuAD 1.1 for base, 84.1 and 90.9 for large.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.task = "answer"
    config.optimizer = ConfigDict({"learning_rate": 5e-5})
    return config
