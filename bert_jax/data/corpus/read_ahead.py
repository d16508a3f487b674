"""Batches made ahead of the loop that reads them: by tf.data, or by a pool of threads where TensorFlow is absent."""

import atexit
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np

from bert_jax.core.processor import cores
from bert_jax.text.tokenizer import Batch

Maker = Callable[[int], Batch]
AHEAD = 2  # batches that wait for the loop

# The only references to running pipelines, so that all of them are closed before Python exits: their threads call
# Python, and a thread that waits for an interpreter that is shutting down would keep the process alive for ever.
RUNNING: dict[object, Iterator] = {}
atexit.register(RUNNING.clear)


def read_ahead(
    make: Maker, steps: range, types: dict[str, np.dtype], threads: int | None = None
) -> Iterator[Batch]:
    """Yield `make(step)` of all steps, in order. `types` are the names and types of the arrays of a batch."""
    if find_spec("tensorflow"):
        return read_from_tf_data(make, steps, types, threads)
    return read_from_threads(make, steps, threads or cores())


def read_from_tf_data(
    make: Maker, steps: range, types: dict[str, np.dtype], threads: int | None
) -> Iterator[Batch]:
    from bert_jax.text.host_tensorflow import tf

    failures: list[Exception] = []

    def arrays(step: np.int64) -> list[np.ndarray]:
        try:
            batch = make(int(step))
        except Exception as error:
            failures.append(error)
            raise
        return [batch[name] for name in types]

    def batch_of(step):
        return tf.numpy_function(
            arrays, [step], [tf.as_dtype(dtype_name) for dtype_name in types.values()], stateful=False
        )

    tensorflow_error = tf.errors.OpError  # as Python exits, `tf.errors` may be gone before this generator
    made = tf.data.Dataset.range(steps.start, steps.stop)
    made = made.map(batch_of, num_parallel_calls=threads or tf.data.AUTOTUNE, deterministic=True)
    pipeline = object()
    RUNNING[pipeline] = iter(made.prefetch(AHEAD))
    try:
        while values := next(RUNNING[pipeline], None):
            yield {name: value.numpy() for name, value in zip(types, values, strict=True)}
    except tensorflow_error as error:
        # The error of `make` itself. TensorFlow's has a traceback whose frames would keep the pipeline alive.
        failure = failures[0] if failures else error.with_traceback(None)
    else:
        return
    finally:
        RUNNING.pop(pipeline, None)
    raise failure


def read_from_threads(make: Maker, steps: range, threads: int) -> Iterator[Batch]:
    waiting: deque[Future[Batch]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for step in steps:
            waiting.append(pool.submit(make, step))
            if len(waiting) >= threads + AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
