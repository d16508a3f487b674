"""A connection to a Ray cluster: one that runs already, or a local one that ends with the command."""

import logging
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType

from bert_jax.core.errors import BertJaxError, first_line
from bert_jax.core.processor import cores

LOCAL, RUNNING = "local", "auto"  # a cluster of this machine alone; the one that this machine belongs to
ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9][A-Za-z0-9.-]{0,252}):(?P<port>\d{1,5})")
CONNECT_SECONDS = 5.0


def check_address(address: str) -> None:
    """Refuse what is no address of a cluster; nothing is imported."""
    if address not in (LOCAL, RUNNING) and not ADDRESS.fullmatch(address):
        raise BertJaxError(
            f'--ray "{address:.60}" is no address of a cluster; give HOST:PORT, {RUNNING} on a machine of the cluster, '
            "or no address for this machine alone"
        )


def require_ray() -> None:
    """Refuse to begin if Ray is missing; it is not imported."""
    if find_spec("ray") is None:
        raise BertJaxError(
            "--ray needs Ray, which is not installed; install it, in the folder that bert_jax was installed from: "
            "pip install '.[ray]'"
        )


@contextmanager
def connect(address: str) -> Iterator[ModuleType]:
    """Connect to a cluster while the block runs, and yield the module `ray`."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    on_terminate = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            namespace="bert-jax",
            num_cpus=cores() if address == LOCAL else None,
        )
    except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]  # its lines are indented parts of a sentence
        raise BertJaxError(
            f"no connection to the Ray cluster {address} ({reason}); start one with `ray start --head`"
        ) from error
    try:
        signal.signal(signal.SIGTERM, on_terminate)  # Ray sets one of its own
        yield ray
    finally:
        ray.shutdown()


def check_reachable(address: str) -> None:
    """Refuse an address at which nothing listens: Ray itself would wait for a minute."""
    if not (match := ADDRESS.fullmatch(address)):
        return
    try:
        socket.create_connection((match["host"], int(match["port"])), CONNECT_SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise BertJaxError(
            f"no Ray cluster at {address} ({first_line(error)}); start one with `ray start --head`, and check the "
            "address that it prints"
        ) from error
