"""Move batches from the hosts to the mesh: every process makes the rows that its own devices hold."""

from collections.abc import Generator, Iterator
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding

from bert_jax.core.errors import BertJaxError
from bert_jax.models.mesh import ROWS


def local_data_shard(mesh: Mesh, batch: int) -> tuple[int, int]:
    """Return (index, count): this process makes the index-th of `count` equal parts of the batch."""
    # Any: the declared type allows None, which does not occur.
    held: Any = NamedSharding(mesh, ROWS).addressable_devices_indices_map((batch,)).values()
    parts = sorted({rows.indices(batch)[:2] for (rows,) in held})
    first, size = parts[0][0], sum(stop - start for start, stop in parts)
    if parts[-1][1] - first != size or batch % size or first % size:
        raise BertJaxError(
            f"with this mesh, process {jax.process_index()} would need rows from several places of the batch, which is "
            "not supported; set mesh.data to a multiple of the number of processes"
        )
    return first // size, batch // size


def place_batches(batches: Iterator[dict], mesh: Mesh, rows: int) -> Generator[dict]:
    """Turn each host's rows into arrays of the whole batch on the mesh."""
    sharding = NamedSharding(mesh, ROWS)
    for batch in batches:
        yield {
            name: jax.make_array_from_process_local_data(sharding, value, (rows, *value.shape[1:]))
            for name, value in batch.items()
        }
