"""A worker: an actor of Ray that opens what is needed once, and then does shard after shard.

What a user can correct is its answer, so that the other shards go on; any other error ends the command.
"""

import errno
import os
import socket
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bert_jax.cluster.shard_work import ShardWork, WriteShard
from bert_jax.cluster.versions import check_versions
from bert_jax.core.errors import BertJaxError, explain_os_error
from bert_jax.core.terminal import no_lines
from bert_jax.data.shards.shard import Shard

# Each worker has its own cores, and the libraries would take all of the machine's. XLA reads NPROC.
THREADS = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class ShardResult:
    rows: int
    seconds: float
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Refusal:
    """Why a worker or a shard cannot go on, in one line. If a disk is full, other shards would fail there, too."""

    message: str
    disk_is_full: bool = False


class Worker:
    def __init__(self, cores: int, uses_accelerator: bool):
        # Before anything that reads them is imported.
        os.environ |= dict.fromkeys(THREADS, str(cores))
        os.environ["TOKENIZERS_PARALLELISM"] = "true" if cores > 1 else "false"
        if not uses_accelerator:
            os.environ["JAX_PLATFORMS"] = "cpu"
        self.work: ShardWork
        self.write_shard: WriteShard

    def open(self, work: ShardWork, versions: Mapping[str, str]) -> Refusal | None:
        """Open what the shards need; called first, also when Ray has restarted the worker."""
        try:
            check_versions(versions)
            check_visible(work)
            work = work.with_output(work.output)  # a bucket's files stand elsewhere before they are copied
            with no_lines():
                self.work, self.write_shard = work, work.open()
        except BertJaxError as error:
            return Refusal(str(error))
        return None

    def write(self, shard: Shard) -> ShardResult | Refusal:
        """Write the output of a shard and its manifest."""
        local, begun = shard, time.monotonic()
        try:
            with warnings.catch_warnings(record=True) as told, no_lines(), shard.local_copy() as local:
                warnings.simplefilter("always", UserWarning)
                written = self.write_shard(local)
                self.work.folder.record(shard, written, local)
        except (BertJaxError, OSError) as error:
            message = str(explain_os_error(error) if isinstance(error, OSError) else error)
            line = f"{local.name_original_rows(message)} (on {socket.gethostname()})"
            return Refusal(
                line, any(getattr(cause, "errno", 0) in FULL for cause in (error, error.__cause__))
            )
        messages = (str(warning.message) for warning in told if issubclass(warning.category, UserWarning))
        return ShardResult(written.rows, time.monotonic() - begun, tuple(dict.fromkeys(messages)))


def check_visible(work: ShardWork) -> None:
    """Refuse a machine that does not see what the command sees."""
    for path in filter(os.path.isabs, (work.required_path, work.output)):
        if not Path(path).exists():
            raise BertJaxError(
                f"{socket.gethostname()} does not see {path}; put it on storage that all machines mount at this path"
            )
