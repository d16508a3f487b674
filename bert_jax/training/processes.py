"""Training with several processes, found in the environment of Slurm or GKE or given by flags."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import jax

from bert_jax.core.errors import PEER_LOST_EXIT_CODE, BertJaxError, first_line
from bert_jax.core.files import compilation_cache_home
from bert_jax.core.terminal import RUN_PREFIX, print_detail, print_line
from bert_jax.training.stop_signal import RunStopped

# Environment variable -> whether its value says that there are several processes.
MULTIPROCESS_VARIABLES = {
    "JAX_COORDINATOR_ADDRESS": bool,
    "SLURM_NTASKS": lambda value: value.isdecimal() and int(value) > 1,
    "TPU_WORKER_HOSTNAMES": lambda value: "," in value,
    "MEGASCALE_COORDINATOR_ADDRESS": bool,
}
# Words in an error that show that another process was lost.
LOST_PROCESS_WORDS = (
    "Connection",
    "connection",
    "Gloo",
    "heartbeat",
    "peer",
    "UNAVAILABLE",
    "DEADLINE_EXCEEDED",
    "ABORTED",
)
_noticed: set[str] = set()  # what `print_notice` has printed


@contextmanager
def join_processes(
    coordinator: str | None = None, count: int | None = None, index: int | None = None
) -> Iterator[None]:
    """Join the processes that train together; if another one is lost, report it and exit."""
    several = any(
        name in os.environ and says(os.environ[name]) for name, says in MULTIPROCESS_VARIABLES.items()
    )
    if index is not None and count is not None and index >= count:
        raise BertJaxError(
            f"--process={index} is too large: --processes={count} are numbered from 0 to {count - 1}"
        )
    if not (coordinator or several):
        if count or index is not None:
            raise BertJaxError(
                "--processes and --process need --coordinator=HOST:PORT, the address of process 0"
            )
        yield
        return
    if coordinator and (count is None or index is None):
        raise BertJaxError("--coordinator needs --processes=N and --process=I, with I from 0 to N - 1")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # affects CPUs only
    if os.environ.get("JAX_COMPILATION_CACHE_DIR") == str(compilation_cache_home()):
        # Each machine has its own cache, but processes must either all compile a program or none.
        jax.config.update("jax_enable_compilation_cache", False)
    try:
        jax.distributed.initialize(coordinator, count, index)
    except (RuntimeError, ValueError) as error:
        raise BertJaxError(
            f"the processes did not find each other ({first_line(error)}); look at the messages of the others"
        ) from error
    try:
        yield
    except RunStopped:
        jax.distributed.shutdown()  # waits until all have saved
        raise
    except (jax.errors.JaxRuntimeError, RuntimeError, ValueError) as error:
        if not any(sign in str(error) for sign in LOST_PROCESS_WORDS):
            raise
        print(
            f"bert-jax: process {jax.process_index()} lost another of the {jax.process_count()} processes "
            f"({first_line(error)}); start all of them again: they go on from the newest checkpoint",
            file=sys.stderr,
            flush=True,
        )
        # A normal exit would wait for the lost process.
        os._exit(PEER_LOST_EXIT_CODE)
    jax.distributed.shutdown()


def print_notice(text: str) -> None:
    """Print what is unusual about the data of a run, on the first of its processes; not again for its other parts."""
    if jax.process_index() == 0 and not (RUN_PREFIX.get() and text in _noticed):
        _noticed.add(text)
        print_line(text)


def print_once(text: str) -> None:
    """Print a line about the data or the config of a run, on the first of its processes; once for all its parts."""
    if jax.process_index() == 0:
        print_detail(text)
