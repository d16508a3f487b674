"""A profile of a few steps of a run, for TensorBoard or Perfetto."""

from pathlib import Path

import jax

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
