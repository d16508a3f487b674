"""The speed of a run's steps, without pauses, and a profiler trace of five of them."""

import time
from collections.abc import Callable
from pathlib import Path

import jax

from bert_jax.core.memory import peak_bytes
from bert_jax.training.chips import PEAKS


class StepTimer:
    """The seconds and the speed of the steps since the last line, without pauses. The speed leaves out the first step
    of a process, which compiles. The time left has as many pauses, such as evaluations, as there were so far."""

    def __init__(self):
        self.mark = self.begun = time.perf_counter()
        self.steps = self.tokens = 0
        self.waited = 0.0
        self.compiled = False
        self.since_pause = 0  # steps
        self.pause_per_step = 0.0  # seconds of the last pause, for each step since the one before it

    def exclude_pause(self, seconds: float) -> None:
        self.mark += seconds
        self.begun += seconds
        if self.since_pause:  # not the evaluation before the first step
            self.pause_per_step, self.since_pause = seconds / self.since_pause, 0

    def add_input_wait(self, seconds: float) -> None:
        self.waited += seconds

    def count_step(self, tokens: int) -> None:
        self.since_pause += 1
        if self.compiled:
            self.steps += 1
            self.tokens += tokens
        else:
            self.begun = time.perf_counter()
            self.compiled = True

    def take_timings(self, left: int) -> dict[str, float]:
        """Return the timings since the last line and begin a new one; the run has `left` more steps."""
        now = time.perf_counter()
        timings = {"seconds": now - self.mark, "input_wait": self.waited / (now - self.mark)}
        if self.steps:
            timings["tokens_per_second"] = self.tokens / (now - self.begun)
            timings["seconds_per_step"] = (now - self.begun) / self.steps
            timings["hours_left"] = left * ((now - self.begun) / self.steps + self.pause_per_step) / 3600
        self.mark = self.begun = now
        self.steps = self.tokens = 0
        self.waited = 0.0
        return timings


def device_use(
    tokens_per_second: float | None, flops_per_token: Callable[[], float], devices: int
) -> dict[str, float]:
    """Return how much memory a device has used at most, and which share of the devices' FLOPs so many tokens use; what
    is not known is left out."""
    use: dict[str, float] = {}
    if peak := peak_bytes(jax.local_devices()[0]):
        use["peak_memory"] = peak
    speed = PEAKS.get(jax.devices()[0].device_kind)
    if speed and tokens_per_second is not None:
        use["mfu"] = flops_per_token() * tokens_per_second / (speed * devices)
    return use


PROFILED_STEPS = 5  # steps in a trace


class Profiler:
    """Traces the steps from step `first` on, to `directory`."""

    def __init__(self, first: int, directory: Path):
        self.first, self.directory = first, directory
        self.is_tracing = False

    def update(self, step: int, state) -> None:
        """Start or stop the trace if it is time; `state` is what the devices still compute."""
        if not self.is_tracing and step == self.first:
            jax.profiler.start_trace(str(self.directory))
            self.is_tracing = True
        elif step >= self.first + PROFILED_STEPS:
            self.stop(state)

    def stop(self, state) -> None:
        if self.is_tracing:
            jax.block_until_ready(state)
            jax.profiler.stop_trace()
            self.is_tracing = False
