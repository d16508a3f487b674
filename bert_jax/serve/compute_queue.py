"""The queue between the event loop and the device: one thread tokenizes and reads results, another computes.

A batch takes what waits, in the order in which it came; nothing waits for a batch to fill.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from bert_jax.core.grouping import group_by_size
from bert_jax.inference.runner import ModelInputs, Part, TextPipeline, batch_key, run_together
from bert_jax.serve.requests import overloaded, unavailable, unprocessable

Function = Callable[[list], Any]  # of texts, with a result for each; a TextPipeline is called step by step
CHARACTERS_PER_TOKEN, SPECIAL_TOKENS = 4, 2  # of an English text, before it is tokenized
TEXTS_AT_ONCE = 256  # or a few more are tokenized together: the device need not wait for all that have come


@dataclass(eq=False)
class Work:
    """The work of one request: texts that wait to be tokenized, then to be computed, then for their results."""

    function: Function
    texts: Sequence
    answer: asyncio.Future
    may_truncate: bool = True
    most_tokens: int = 1 << 30  # of a text, which is truncated to as many
    began: float = field(default_factory=time.perf_counter)
    tokenized: float = 0.0  # seconds
    computing_began: float = 0.0
    computed_at: float = 0.0
    cut: set[int] = field(default_factory=set)  # the indices of texts whose end is not even tokenized
    inputs: ModelInputs | None = None
    outputs: list = field(default_factory=list)  # of its rows
    started: int = 0  # rows; a large request is computed in several batches
    failed: bool = False

    @property
    def dropped(self) -> bool:
        """Whether it need not be computed: it failed, or nobody waits for it any more."""
        return self.failed or self.answer.done()

    @property
    def rows(self) -> Sequence:
        """What is computed: rows of tokens, or whole texts by a function without steps."""
        return self.inputs.rows if self.inputs else self.texts

    def count_tokens(self, row: int) -> int:
        return len(self.inputs.rows[row].input_ids) if self.inputs else 1

    @property
    def tokens(self) -> int:
        return sum(map(self.count_tokens, range(len(self.rows)))) if self.inputs else 0

    @property
    def truncated(self) -> list[int]:
        """Return the indices of the texts that were truncated."""
        rows = self.inputs.first_rows if self.inputs else []
        return [n for n, row in enumerate(rows) if row.dropped or n in self.cut]

    @property
    def batch_key(self) -> tuple:
        """Return what the rows of a batch have in common."""
        if self.inputs is None:
            return (self.function,)
        assert isinstance(self.function, TextPipeline)
        shapes = {name: array.shape[1:] for name, array in (self.inputs.extra_inputs or {}).items()}
        return *batch_key(self.function), *sorted(shapes.items())


class BatchRows(NamedTuple):
    """Some rows of a request, which are computed in one batch."""

    work: Work
    rows: range


class ComputeQueue:
    """Computes the work of many requests.

    `tokens_at_once` of them are taken for one call of a model. Work is refused if more than `most_tokens` would wait.
    `observe` is called with the parts of each batch.
    """

    def __init__(
        self, tokens_at_once: int, most_tokens: int, observe: Callable[[Sequence[BatchRows]], object] = len
    ):
        self.tokens_at_once, self.most_tokens, self.observe = tokens_at_once, most_tokens, observe
        self.requests = self.waiting_tokens = 0
        self.tokenizer_seconds = 0.0  # of CPU
        self.takes_work = False
        # What waits for the tokenizer's thread, and for the computing one. None ends them.
        self.to_tokenize: SimpleQueue[Work | None] = SimpleQueue()
        self.to_compute: SimpleQueue[Work | None] = SimpleQueue()
        self.ready: deque[Work] = deque()  # taken from `to_compute`, and not computed yet
        self.threads = [
            threading.Thread(target=self._tokenize, name="tokenizer"),
            threading.Thread(target=self._compute, name="compute"),
        ]

    @property
    def is_open(self) -> bool:
        """Whether it takes work: it is not stopped, and no thread has died."""
        return self.takes_work and all(thread.is_alive() for thread in self.threads)

    def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.takes_work = True
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """End both threads; what still waits is dropped."""
        self.takes_work = False
        self.to_tokenize.put(None)
        for thread in self.threads:
            thread.join()

    async def run(self, work: Work, timeout: float) -> list:
        """Return the results of a request's texts."""
        if not self.is_open:
            raise unavailable("the server is stopping or broken; ask another one")
        tokens = sum(min(work.most_tokens, estimate_tokens(text)) for text in work.texts)
        if self.waiting_tokens and self.waiting_tokens + tokens > self.most_tokens:
            raise overloaded("too many texts wait already; try again later, or ask another server")
        self.requests += 1
        self.waiting_tokens += tokens
        try:
            self.to_tokenize.put(work)
            async with asyncio.timeout(timeout):
                return await work.answer
        except TimeoutError:
            raise unavailable(f"no answer was computed within {timeout:g} seconds; try again later") from None
        finally:
            self.requests -= 1
            self.waiting_tokens -= tokens

    def _answer(self, work: Work, answer: Any) -> None:
        """Hand results or an exception to the event loop."""
        work.failed = isinstance(answer, Exception)
        self.loop.call_soon_threadsafe(set_answer, work.answer, answer)

    # The tokenizer's thread

    def _tokenize(self) -> None:
        while True:
            waiting = take_all(self.to_tokenize)
            # Work whose rows are all computed waits for its results; the device waits for the other.
            computed = [work for work in waiting if work and work.computed_at]
            arrived = [work for work in waiting if work and not work.computed_at and not work.dropped]
            for function, works in groupby(arrived, lambda work: work.function):
                for together in group_by_size(works, TEXTS_AT_ONCE, lambda work: len(work.texts)):
                    if isinstance(function, TextPipeline):
                        call_apart_on_error(tokenize_together, together, self._answer)
                    for work in together:
                        if not (work.may_truncate or work.failed) and work.truncated:
                            self._answer(work, unprocessable(describe_truncation(work)))
                        self.to_compute.put(work)
            for work in computed:
                self._read_results(work)
            self.tokenizer_seconds = time.thread_time()
            if None in waiting:
                self.to_compute.put(None)
                return

    def _read_results(self, work: Work) -> None:
        """Answer work whose rows are all computed."""
        if work.dropped:
            return
        results: Any = work.outputs
        try:
            if isinstance(work.function, TextPipeline) and work.inputs is not None:
                results = list(work.function.postprocess(work.inputs, work.outputs))
        except Exception as error:
            results = error
        self._answer(work, results)

    # The computing thread

    def _compute(self) -> None:
        while True:
            arrived = take_all(self.to_compute, wait=not self.ready)
            if None in arrived:
                return
            self.ready.extend(work for work in arrived if work)
            if parts := self._take_batch():
                call_apart_on_error(
                    compute_together, parts, lambda part, error: self._answer(part.work, error)
                )
                self.observe(parts)
                # If nothing waits, this thread need not wake the other one, and the answer comes sooner.
                is_idle = not self.ready and self.to_compute.empty()
                for work, rows in parts:
                    if rows.stop == len(work.rows) and not work.failed:
                        work.computed_at = time.perf_counter()
                        self._read_results(work) if is_idle else self.to_tokenize.put(work)

    def _take_batch(self) -> list[BatchRows]:
        """Take the first work that waits, and what can be computed together with it."""
        parts: list[BatchRows] = []
        rest: list[Work] = []
        tokens, key = 0, None
        while self.ready and tokens < self.tokens_at_once:
            work = self.ready.popleft()
            if work.dropped:
                continue
            key = key or work.batch_key
            if work.batch_key != key:
                rest.append(work)
                continue
            first = work.started
            while work.started < len(work.rows) and tokens < self.tokens_at_once:
                tokens += work.count_tokens(work.started)
                work.started += 1
            parts.append(BatchRows(work, range(first, work.started)))
            if work.started < len(work.rows):
                rest.append(work)
        self.ready.extendleft(reversed(rest))
        return parts


def take_all(queue: SimpleQueue, wait: bool = True) -> list:
    """Return all that is in a queue; if it is empty and `wait` is set, wait for an item."""
    taken = [queue.get()] if wait else []
    try:
        while True:
            taken.append(queue.get_nowait())
    except Empty:
        return taken


def call_apart_on_error(
    function: Callable[[list], object], items: list, fail: Callable[[Any, Exception], object]
) -> None:
    """Call a function with all items or, if that fails, with each, so that an error is that of one request."""
    try:
        function(items)
    except Exception as error:
        if len(items) == 1:
            fail(items[0], error)
        else:
            for item in items:
                call_apart_on_error(function, [item], fail)


def tokenize_together(works: list[Work]) -> None:
    """Encode the texts of works with the same function."""
    begun = time.perf_counter()
    pipeline = works[0].function
    assert isinstance(pipeline, TextPipeline)
    for work in works:
        work.inputs = pipeline.preprocess(work.texts)
    for work in works:
        work.tokenized = time.perf_counter() - begun


def compute_together(parts: Sequence[BatchRows]) -> None:
    """Compute the rows of parts that have the same batch key."""
    begun = time.perf_counter()
    first = parts[0].work
    if first.inputs is None:
        results = iter(first.function([work.rows[n] for work, numbers in parts for n in numbers]))
        outputs = [list(islice(results, len(numbers))) for _, numbers in parts]
    else:
        outputs = run_together([rows_to_compute(*part) for part in parts])
    for (work, _), own in zip(parts, outputs, strict=True):
        work.computing_began = work.computing_began or begun
        work.outputs += own


def rows_to_compute(work: Work, numbers: range) -> Part:
    assert isinstance(work.function, TextPipeline) and work.inputs is not None
    rows = slice(numbers.start, numbers.stop)
    extra_inputs = {name: array[rows] for name, array in (work.inputs.extra_inputs or {}).items()}
    return work.function, work.inputs.rows[rows], extra_inputs


def set_answer(future: asyncio.Future, answer: Any) -> None:
    if future.done():  # the client has left, or the time is over
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def estimate_tokens(text: str | tuple[str, ...] | list[int]) -> int:
    """Return about how many tokens a text, a pair or a list of token ids has.

    >>> estimate_tokens("12345678"), estimate_tokens(("1234", "1234")), estimate_tokens([101, 7, 102])
    (4, 4, 3)
    """
    if isinstance(text, list):
        return len(text)
    characters = len(text) if isinstance(text, str) else sum(map(len, text))
    return SPECIAL_TOKENS + characters // CHARACTERS_PER_TOKEN


def describe_truncation(work: Work) -> str:
    """Say which texts were truncated, or would have been."""
    assert isinstance(work.function, TextPipeline)
    longest, numbers = work.function.truncated.max_length, work.truncated
    shown = ", ".join(str(n + 1) for n in numbers[:5]) + ", ..." * (len(numbers) > 5)
    noun, verb = ("text", "is") if len(numbers) == 1 else ("texts", "are")
    return f"{noun} {shown} of {len(work.texts)} {verb} longer than the {longest} tokens that the model reads"
