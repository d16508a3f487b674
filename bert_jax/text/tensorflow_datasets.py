"""Texts and rows of a TensorFlow Datasets split, `tfds:NAME/CONFIG:SPLIT`."""

from collections.abc import Iterator

import numpy as np

from bert_jax.core.errors import BertJaxError, first_line, suggest_name


def read_tfds_texts(name: str, column: str) -> Iterator[str]:
    features, raw = open_tfds_split(name, column)
    for row in raw:
        value = row[column]
        yield value.decode("utf-8", errors="replace") if isinstance(value, bytes) else value


def read_tfds_rows(name: str) -> Iterator[dict]:
    """Yield rows of plain Python values; a class is its name, or None if hidden (-1), as in GLUE's test splits."""
    features, raw = open_tfds_split(name)
    for number, row in enumerate(raw, 1):
        try:
            yield to_python_value(row, features)
        except UnicodeDecodeError as error:
            raise BertJaxError(f"{name} row {number} is not UTF-8; leave it out of the split") from error


def tfds_class_names(name: str) -> dict[str, tuple[str, ...]]:
    """Return the names of the classes, in the order of their numbers, of the columns that hold classes."""
    features, _ = open_tfds_split(name)
    named = {column: getattr(feature, "names", None) for column, feature in features.items()}
    return {column: tuple(names) for column, names in named.items() if names}


def open_tfds_split(name: str, column: str | None = None):
    """Return the features of a split, and its rows as they are stored."""
    # This import also keeps TensorFlow off the accelerator
    from bert_jax.text.host_tensorflow import explain_missing_packages

    with explain_missing_packages():
        import tensorflow_datasets as tfds

    dataset, colon, split = name.removeprefix("tfds:").rpartition(":")
    if not colon:
        raise BertJaxError(f"{name} names no split; write tfds:NAME/CONFIG:SPLIT, as tfds:imdb_reviews:train")
    try:
        builder = tfds.builder(dataset)
        builder.download_and_prepare()
        features = builder.info.features
        if split not in builder.info.splits and "[" not in split:
            raise BertJaxError(f'{name}: no split "{split}"; {suggest_name(split, builder.info.splits)}')
        if column is not None and column not in features:
            raise BertJaxError(f'{name} has no column "{column}"; {suggest_name(column, features)}')
        return features, tfds.as_numpy(builder.as_dataset(split=split, shuffle_files=False))
    except BertJaxError:
        raise
    except Exception as error:
        # tfds raises whatever its builders, the network or the disk raise.
        raise BertJaxError(f"{name} cannot be read ({first_line(error)})") from error


def to_python_value(value, feature):
    # The feature of a sequence also has the attributes of the feature of its parts.
    if isinstance(value, dict):
        return {name: to_python_value(part, feature[name]) for name, part in value.items()}
    if isinstance(value, list | np.ndarray):
        return [to_python_value(part, feature) for part in value]
    names = getattr(feature, "names", None)
    if names:
        return names[value] if value >= 0 else None
    if isinstance(value, bytes):
        return value.decode("utf-8")
    return value.item() if isinstance(value, np.generic) else value
