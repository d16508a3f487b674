"""Texts of a TensorFlow Datasets split, `tfds:NAME/CONFIG:SPLIT`."""

from collections.abc import Iterator

from bert_jax.errors import BertJaxError, nearest


def texts(name: str, column: str) -> Iterator[str]:
    import tensorflow_datasets as tfds

    from bert_jax.host_tensorflow import tf  # noqa: F401, keeps TensorFlow off the accelerator

    dataset, colon, split = name.removeprefix("tfds:").rpartition(":")
    if not colon:
        raise BertJaxError(
            f"{name} names no split; write tfds:NAME/CONFIG:SPLIT, as in tfds:imdb_reviews:train"
        )
    try:
        builder = tfds.builder(dataset)
        builder.download_and_prepare()
        if split not in builder.info.splits and "[" not in split:
            raise BertJaxError(f'{name}: no split "{split}"; {nearest(split, builder.info.splits)}')
        if column not in builder.info.features:
            raise BertJaxError(f'{name} has no column "{column}"; {nearest(column, builder.info.features)}')
        rows = tfds.as_numpy(builder.as_dataset(split=split, shuffle_files=False))
    except BertJaxError:
        raise
    except Exception as error:
        # tfds raises whatever its builders, the network or the disk raise.
        raise BertJaxError(
            f"{name} cannot be read ({(str(error) or repr(error)).splitlines()[0]})"
        ) from error
    for row in rows:
        value = row[column]
        yield value.decode("utf-8", errors="replace") if isinstance(value, bytes) else value
