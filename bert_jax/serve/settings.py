"""What a server serves, and its limits."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

# By the last of them the command tells that one of the others came during an import.
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM)

# Batches of an engine, which are computed in one call, so that rows of even lengths share a batch.
BATCHES_AT_ONCE = 4
BATCHES_QUEUED = 64  # that may wait: a client waits no longer than these take


@dataclass(frozen=True)
class ServeSettings:
    directories: Sequence[str] = ()  # DIR or NAME=DIR
    adapters: Sequence[str] = ()  # on the first of them: DIR or NAME=DIR
    adapter_folder: str = ""  # of further ones, which may change
    host: str = "127.0.0.1"
    port: int = 3000
    engine: str = "auto"
    dtype: str = "float32"
    warms_up: bool = True  # compiles all programs before it answers
    batch_tokens: int = 0  # that are taken for one call of a model; 0: BATCHES_AT_ONCE batches
    queued_tokens: int = 0  # that may wait; 0: BATCHES_QUEUED batches
    body_bytes: int = 2_000_000
    timeout: float = 60.0  # seconds for a body to arrive, and for an answer
    api_key: str | None = None
    logs_requests: bool = False
