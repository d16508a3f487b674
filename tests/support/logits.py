"""What a model computes of one text."""

import numpy as np


def head_outputs(model, encoding) -> dict:
    values = {
        "input_ids": encoding.input_ids,
        "token_type_ids": encoding.token_type_ids,
        "attention_mask": [1] * len(encoding.input_ids),
    }
    batch = {name: np.array([value], np.int32) for name, value in values.items()}
    return model.module.apply({"params": model.params}, batch)
