"""Fine-tuning a tagger on a file of words and tags.

    bert-jax train --config configs/tag.py --workdir runs/names --config.init=MODEL \
        --config.data.train=eng.train --config.data.heldout=eng.testa
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.task = "tag"
    # Words that are decided one by one take a higher rate than the published grid's middle.
    config.optimizer = ConfigDict({"rate": 5e-5})
    config.data = ConfigDict({"batch": 16})
    return config
