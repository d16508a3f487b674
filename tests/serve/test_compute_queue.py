"""The queue between the event loop and the device, with a model that only records what it is asked."""

import asyncio
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.inference.runner import ModelInputs, TextPipeline
from bert_jax.serve.compute_queue import ComputeQueue, Work
from bert_jax.serve.requests import Refusal
from bert_jax.text.encoding import Encoding
from bert_jax.text.truncation import TruncationCounter


class Model:
    """Doubles the first token of each row, when it may."""

    engine = SimpleNamespace(bank=None)

    def __init__(self):
        self.may_run = threading.Event()
        self.may_run.set()
        self.runs: list[list[int]] = []
        self.begun = threading.Event()

    def run(self, rows, computation, extra_inputs=None, engine=None):
        self.begun.set()
        assert self.may_run.wait(10)
        first = [row.input_ids[0] for row in rows]
        self.runs.append(first)
        if -1 in first:
            raise BertJaxError("not finite")
        added = extra_inputs["added"][:, 0] if extra_inputs else np.zeros(len(rows), int)
        return [2 * number + extra for number, extra in zip(first, added, strict=True)]


class Numbers(TextPipeline[int]):
    """Reads texts such as "3 3 3" as rows of numbers; "3|4" is a text of two rows."""

    def __init__(self, model, computation="double", extra_inputs=False):
        super().__init__(model, computation, TruncationCounter(4))
        self.with_beside = extra_inputs

    def preprocess(self, texts):
        rows = [[list(map(int, row.split())) for row in text.split("|")] for text in texts]
        encoded = [[Encoding(row[:4], [], [], max(0, len(row) - 4)) for row in of_text] for of_text in rows]
        flat = [row for of_text in encoded for row in of_text]
        extra_inputs = {"added": np.array([[row.input_ids[0]] for row in flat])} if self.with_beside else None
        return ModelInputs(texts, flat, [of_text[0] for of_text in encoded], encoded, extra_inputs)

    def postprocess(self, inputs, outputs):
        rest = iter(outputs)
        return [sum(next(rest) for _ in of_text) for of_text in inputs.parts]


class Served:
    """A queue in an event loop of its own."""

    def __init__(self, model, tokens=8, most=1000):
        self.model, self.queue = model, ComputeQueue(tokens, most)

    def run(self, scenario):
        async def live():
            self.queue.start()
            try:
                return await scenario(self)
            finally:
                self.model.may_run.set()
                await asyncio.to_thread(self.queue.stop)

        return asyncio.run(live())

    def ask(self, function, texts, timeout=5.0, **settings) -> asyncio.Task:
        work = Work(function, texts, asyncio.get_running_loop().create_future(), **settings)
        return asyncio.ensure_future(self.queue.run(work, timeout))

    async def hold(self, function) -> asyncio.Task:
        """Let the model begin to compute a text, and wait there."""
        self.model.may_run.clear()
        self.model.begun.clear()
        first = self.ask(function, ["0"])
        await asyncio.to_thread(self.model.begun.wait, 5)
        return first


async def until(condition) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


@pytest.fixture
def model():
    return Model()


def test_what_waits_is_computed_together_in_the_order_in_which_it_came(model):
    async def scenario(served):
        numbers = Numbers(model)
        first = await served.hold(numbers)
        asked = []
        for n in range(1, 7):
            asked.append(served.ask(numbers, [f"{n} {n}"]))
            await asyncio.sleep(0.01)
        await until(lambda: served.queue.to_compute.qsize() == 6)
        model.may_run.set()
        assert await first == [0]
        return [await one for one in asked]

    answers = Served(model, tokens=8).run(scenario)
    assert answers == [[2], [4], [6], [8], [10], [12]]
    assert model.runs == [[0], [1, 2, 3, 4], [5, 6]]  # 8 tokens at once


def test_a_large_request_is_divided_and_answered_whole_before_later_ones(model):
    async def scenario(served):
        numbers = Numbers(model)
        first = await served.hold(numbers)
        large = served.ask(numbers, [f"{n} 0 0" for n in range(1, 8)] + ["1|2|3"])
        await until(lambda: served.queue.to_compute.qsize() == 1)
        small = served.ask(numbers, ["9"])
        await until(lambda: served.queue.to_compute.qsize() == 2)
        model.may_run.set()
        await first
        return await large, await small

    large, small = Served(model, tokens=8).run(scenario)
    assert large == [2, 4, 6, 8, 10, 12, 14, 12] and small == [18]
    assert model.runs[1:] == [[1, 2, 3], [4, 5, 6], [7, 1, 2, 3, 9]]


def test_an_error_is_that_of_the_request_that_has_it(model):
    async def scenario(served):
        numbers = Numbers(model)
        first = await served.hold(numbers)
        asked = [served.ask(numbers, [text]) for text in ("1", "x", "-1", "2")]
        await until(lambda: served.queue.to_compute.qsize() == 4)
        model.may_run.set()
        await first
        return await asyncio.gather(*asked, return_exceptions=True)

    right, unreadable, failing, other = Served(model).run(scenario)
    assert right == [2] and other == [4]
    assert isinstance(unreadable, ValueError) and "not finite" in str(failing)


def test_what_differs_in_its_computation_is_not_mixed(model):
    async def scenario(served):
        kinds = Numbers(model), Numbers(model, "other"), Numbers(model, extra_inputs=True)
        first = await served.hold(kinds[0])
        asked = [served.ask(kinds[n % 3], [str(n)]) for n in range(6)]
        await until(lambda: served.queue.to_compute.qsize() == 6)
        model.may_run.set()
        await first
        return [(await one)[0] for one in asked]

    assert Served(model).run(scenario) == [0, 2, 6, 6, 8, 15]
    assert model.runs[1:] == [[0, 3], [1, 4], [2, 5]]


def test_a_function_without_steps_gets_the_texts_of_several_requests(model):
    calls = []

    def upper(texts):
        calls.append(list(texts))
        return [text.upper() for text in texts]

    async def scenario(served):
        first = await served.hold(Numbers(model))
        asked = [served.ask(upper, texts) for texts in (["a", "b"], ["c"])]
        await until(lambda: served.queue.to_compute.qsize() == 2)
        model.may_run.set()
        await first
        return [await one for one in asked]

    assert Served(model).run(scenario) == [["A", "B"], ["C"]]
    assert calls == [["a", "b", "c"]]


def test_what_nobody_waits_for_is_not_computed(model):
    async def scenario(served):
        numbers = Numbers(model)
        first = await served.hold(numbers)
        left, kept = served.ask(numbers, ["1"]), served.ask(numbers, ["2"])
        await until(lambda: served.queue.to_compute.qsize() == 2)
        left.cancel()
        await asyncio.sleep(0)
        model.may_run.set()
        await first
        assert await kept == [4]
        assert served.queue.waiting_tokens == served.queue.requests == 0

    Served(model).run(scenario)
    assert model.runs == [[0], [2]]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_died_is_told(model):
    async def scenario(served):
        served.queue.observe = lambda parts: 1 / 0
        first = served.ask(Numbers(model), ["1"], timeout=0.5)
        with pytest.raises(Refusal, match="within 0.5 seconds"):
            await first
        assert not served.queue.is_open
        with pytest.raises(Refusal, match="ask another one"):
            await served.ask(Numbers(model), ["1"])

    Served(model).run(scenario)


def test_no_more_waits_than_the_queue_may_hold(model):
    async def scenario(served):
        numbers = Numbers(model)
        first = await served.hold(numbers)
        waiting = served.ask(numbers, ["1 1 1 1"] * 2)
        await asyncio.sleep(0)
        with pytest.raises(Refusal, match="too many texts wait") as refused:
            await served.ask(numbers, ["2 2 2 2"])
        model.may_run.set()
        await first
        await waiting
        assert await served.ask(numbers, ["2 2 2 2"] * 50) == [4] * 50  # a large one, when nothing waits
        return refused.value

    refusal = Served(model, most=10).run(scenario)
    assert refusal.status == 429 and refusal.headers["retry-after"] == "1"


def test_an_answer_that_takes_too_long_is_given_up(model):
    async def scenario(served):
        first = await served.hold(Numbers(model))
        with pytest.raises(Refusal, match="within 0.05 seconds") as refused:
            await served.ask(Numbers(model), ["1"], timeout=0.05)
        model.may_run.set()
        await first
        return refused.value.status

    assert Served(model).run(scenario) == 503
    assert model.runs == [[0]]


def test_after_its_end_it_takes_nothing(model):
    served = Served(model)

    async def scenario(served):
        return await served.ask(Numbers(model), ["1"])

    assert served.run(scenario) == [2]
    assert not any(thread.is_alive() for thread in served.queue.threads)
    with pytest.raises(Refusal, match="stopping"):
        asyncio.run(served.queue.run(None, 1))
