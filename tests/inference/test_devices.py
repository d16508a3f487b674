"""A model computes with all devices of its process, and gives what one device gives."""

import json
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.inference import engines, programs
from bert_jax.inference.computations import PooledStates
from bert_jax.inference.engines.jax import ACCELERATOR_SHAPES
from tests.support.adapters import write_adapter
from tests.support.processes import run_on_eight_devices
from tests.support.small_models import SMALL_TEXTS, write_model

TEXTS = [*SMALL_TEXTS, "", ("the cat", "cats on the mat"), *SMALL_TEXTS[:3]]


def results_of(path: Path) -> dict:
    """What a model gives with the devices that it has when it is opened, and how often devices talk meanwhile."""
    model = bert_jax.load(path)
    found = {
        "vectors": model.encode(TEXTS).tolist(),
        "one text": model.encode("the cat").tolist(),
        "states": [states.tolist() for states in model.hidden_states(TEXTS[:9])],
        "fillings": [[filled.score for filled in best] for best in model.fill_mask(["the [MASK]"] * 3)],
        "params": float(np.abs(model.params["encoder"]["embeddings"]["words"]).sum()),
    }
    computed = [program.result().as_text() for program in model.engine.programs.values()]
    vectors = model.engine.start(PooledStates("mean"), next_batch(model))
    return found | {
        "rows": [key[1][1][0] for key in model.engine.programs],
        "devices": len(vectors.sharding.device_set),
        "collectives": sum(text.count(word) for text in computed for word in ("all-reduce", "all-gather")),
    }


def next_batch(model) -> dict:
    rows, length = model.engine.shapes.row_counts(16)[0], 16
    return {
        name: np.ones((rows, length), np.int32) for name in ("input_ids", "token_type_ids", "attention_mask")
    }


def adapted(path: Path) -> list[float]:
    models = bert_jax.load(path, adapters={"own": path.with_name("own")})
    assert models[""].engine.bank is models["own"].engine.bank
    return [row["score"] for row in models.predict(SMALL_TEXTS[:4], ["", "own"] * 2)]


def kept_again(path: Path, folder: Path) -> dict:
    """The vectors of programs that come from files, which another process could have left there."""
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    programs.PROGRAMS.clear()
    bert_jax.load(path).encode(TEXTS)
    programs.compiler_threads().shutdown()
    files = list((folder / "executables").iterdir())
    programs.PROGRAMS.clear()
    programs.program_of = None  # nothing is traced
    return {"files": len(files), "vectors": bert_jax.load(path).encode(TEXTS).tolist()}


@pytest.mark.ci
def test_eight_devices_give_what_one_gives():
    found = run_on_eight_devices(__name__)
    one, eight = found["one"], found["eight"]
    assert one["devices"] == 1 and eight["devices"] == 8 and not eight["collectives"]
    assert all(rows % 8 == 0 for rows in eight["rows"]) and any(rows % 8 for rows in one["rows"])
    for name in ("vectors", "one text", "fillings", "params"):
        np.testing.assert_allclose(eight[name], one[name], atol=1e-5, err_msg=name)
        np.testing.assert_allclose(found["shared rows"][name], one[name], atol=1e-5, err_msg=name)
    for of_eight, of_one in zip(eight["states"], one["states"], strict=True):
        np.testing.assert_allclose(of_eight, of_one, atol=1e-5)
    np.testing.assert_allclose(found["adapters"], found["adapters on one"], atol=1e-5)
    assert found["kept"]["files"]
    np.testing.assert_allclose(found["kept"]["vectors"], one["vectors"], atol=1e-5)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        write_model(path)
        base = path.with_name("base")
        write_model(base, heads=("classify",), labels=("a", "b", "c"))
        write_adapter(path.with_name("own"), base, "classify", ("no", "yes"), rank=2)
        found = {"eight": results_of(path), "adapters": adapted(base)}
        with jax.default_device(jax.devices()[3]):
            found |= {"one": results_of(path), "adapters on one": adapted(base)}
        engines.jax.platform_shapes = lambda: ACCELERATOR_SHAPES
        found["shared rows"] = results_of(path)
        found["kept"] = kept_again(path, Path(folder) / "cache")
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
