"""Fine-tunes a tagger on a file of words and tags.

    bert-jax train --config configs/tag.py --workdir runs/names --config.init=MODEL \
        --config.data.train=eng.train --config.data.validation=eng.testa

Time: ten minutes on two cores with a 6-layer MiniLM (estimated from its throughput; base takes six times as long).
Score: the BERT paper reports an F1 of 96.4 on the validation set of CoNLL-2003 for base, 96.6 for large (both cased).
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.task = "tag"
    config.data = ConfigDict({"batch_size": 16})
    return config
