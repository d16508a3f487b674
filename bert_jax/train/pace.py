"""How fast a run goes, line by line."""

import time


class Pace:
    """The seconds since the last line, and the speed of its steps, without the first of a process, which compiles,
    and without pauses."""

    def __init__(self):
        self.mark = self.begun = time.perf_counter()
        self.steps = self.tokens = 0
        self.waited = 0.0
        self.compiled = False

    def pause(self, seconds: float) -> None:
        self.mark += seconds
        self.begun += seconds

    def wait(self, seconds: float) -> None:
        """Count seconds spent waiting for a batch."""
        self.waited += seconds

    def add(self, tokens: int) -> None:
        """Count a step."""
        if self.compiled:
            self.steps += 1
            self.tokens += tokens
        else:
            self.begun = time.perf_counter()
            self.compiled = True

    def line(self, left: int) -> dict[str, float]:
        """The timings of a line that ends here, `left` steps before the run does."""
        now = time.perf_counter()
        timings = {"seconds": now - self.mark, "input_wait": self.waited / (now - self.mark)}
        if self.steps:
            timings["tokens_per_second"] = self.tokens / (now - self.begun)
            timings["hours_left"] = left * (now - self.begun) / self.steps / 3600
        self.mark = self.begun = now
        self.steps = self.tokens = 0
        self.waited = 0.0
        return timings
