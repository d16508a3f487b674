"""Stopping a run: a signal to one process, agreed upon by all."""

import os
import signal
import threading
from typing import ClassVar

import jax
from jax.experimental import multihost_utils


class RunStopped(KeyboardInterrupt):
    """A run was told to stop, and has saved; the argument is the signal, as in an interrupt of `bert-jax`."""

    @property
    def signal(self) -> signal.Signals:
        return self.args[0]


class StopSignal:
    """While open, SIGTERM, SIGHUP and Ctrl-C ask the loop to save and end; a second Ctrl-C ends at once."""

    # The signal that the last run got, if any.
    last_signal: ClassVar[signal.Signals | None] = None

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        # With several processes, JAX itself catches a SIGTERM to one, and makes all agree on the step to stop at.
        self.caught = [signal.SIGTERM, signal.SIGINT] if jax.process_count() == 1 else []
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # `nohup` makes us ignore it
            self.caught.append(signal.SIGHUP)
        if threading.current_thread() is not threading.main_thread():
            self.caught = []  # Python lets no other thread catch signals
        self.terminals = [number for number in (1, 2) if os.isatty(number)]

    def __enter__(self):
        StopSignal.last_signal = None
        self._before = {number: signal.signal(number, self._receive) for number in self.caught}
        return self

    def __exit__(self, *_):
        StopSignal.last_signal = self.signal
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number, frame):
        if number == signal.SIGHUP:
            # Nothing can be written to a terminal that is gone.
            for terminal in self.terminals:
                os.dup2(os.open(os.devnull, os.O_WRONLY), terminal)
            if signal.SIGTERM not in self.caught:
                signal.raise_signal(signal.SIGTERM)
                return
        if self.signal == number == signal.SIGINT:
            raise KeyboardInterrupt
        if number == signal.SIGINT:
            # Now, as the step may take a minute; not by print(), which the signal may have interrupted.
            os.write(2, b"\nstopping after this step; Ctrl-C again ends at once\n")
        self.signal = signal.Signals(number)

    @classmethod
    def end_runs(cls) -> None:
        """Raise if the last run, which has finished, got a signal: no other run starts."""
        if cls.last_signal:
            raise RunStopped(cls.last_signal)

    def should_stop(self, step: int) -> bool:
        """Whether to stop before `step`; every process gets the same answer for the same step."""
        if jax.process_count() > 1:
            return multihost_utils.reached_preemption_sync_point(step)
        return self.signal is not None
