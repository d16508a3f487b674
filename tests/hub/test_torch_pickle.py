"""`pytorch_model.bin`, today's zip and the older stream, read without torch and without trust."""

import os
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_jax.hub import torch_pickle
from bert_jax.inference.load import load
from tests.support.optional_modules import torch
from tests.support.small_models import edit_config, load_error, trees_equal, write_model


@pytest.fixture
def directory(tmp_path):
    write_model(tmp_path)
    return tmp_path


def turn_into_bin(directory, **options):
    tensors = {
        name: torch.from_numpy(array) for name, array in load_file(directory / "model.safetensors").items()
    }
    torch.save(tensors, directory / "pytorch_model.bin", **options)
    (directory / "model.safetensors").unlink()


@pytest.mark.slow
@pytest.mark.parametrize("zipped", [True, False])
def test_both_layouts_open(directory, zipped):
    """The older one as transformers saved it in 2018, without a model_type."""
    whole = load(directory)
    turn_into_bin(directory, _use_new_zipfile_serialization=zipped)
    if not zipped:
        edit_config(directory, model_type=None, architectures=None)
    assert trees_equal(load(directory).params, whole.params)


@pytest.mark.parametrize("zipped", [True, False])
def test_views_parameters_and_dtypes(tmp_path, zipped):
    whole = torch.arange(24.0).reshape(4, 6)
    tensors = {
        "transposed": whole.T,
        "part": whole[1:3, ::2],
        "half": whole.half(),
        "brain": whole.bfloat16(),
        "count": torch.arange(5),
        "scalar": torch.tensor(3.0),
        "empty": torch.zeros(0, 3),
        "parameter": torch.nn.Parameter(whole),
    }
    path = tmp_path / "pytorch_model.bin"
    torch.save(tensors, path, _use_new_zipfile_serialization=zipped)
    shapes, read = torch_pickle.read_torch_tensors(path)
    assert set(shapes) == set(read) == set(tensors)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(np.asarray(read[name](), np.float64), tensor.detach().double().numpy())


@pytest.mark.parametrize("zipped", [True, False])
def test_a_payload_is_refused_and_not_run(directory, zipped):
    marker = directory / "it_ran"

    class Payload:
        def __reduce__(self):
            return os.system, (f"touch {marker}",)

    torch.save({"x": Payload()}, directory / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    (directory / "model.safetensors").unlink()
    assert "system" in load_error(directory) and "nothing of it was run" in load_error(directory)
    assert not marker.exists()


def test_a_bare_pickle_payload(directory):
    class Payload:
        def __reduce__(self):
            return eval, ("1/0",)

    (directory / "model.safetensors").unlink()
    (directory / "pytorch_model.bin").write_bytes(pickle.dumps(Payload()))
    assert "builtins.eval" in load_error(directory)


@pytest.mark.slow
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("kept", [0, 0.3, 0.9])
def test_truncated_files(directory, zipped, kept):
    turn_into_bin(directory, _use_new_zipfile_serialization=zipped)
    file = directory / "pytorch_model.bin"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(kept * len(whole))])
    assert "pytorch_model.bin" in load_error(directory)


def test_a_tensor_that_claims_more_than_the_file_holds(tmp_path):
    for shape, stride in (((10**6, 10**6), (0, 0)), ((10**9,), (1,)), ((4,), (-1,))):
        for count in (4, 10**12):
            lie = torch_pickle.Strided(
                torch_pickle.Storage("0", np.dtype(np.float32), count), 0, shape, stride
            )
            with pytest.raises(torch_pickle.BertJaxError):
                torch_pickle.check_view(lie, 16, "lie")


def test_a_flipped_bit_of_a_tensor_is_refused(directory):
    turn_into_bin(directory)
    file = directory / "pytorch_model.bin"
    content = bytearray(file.read_bytes())
    with zipfile.ZipFile(file) as archive:
        tensors = [entry for entry in archive.infolist() if "/data/" in entry.filename]
        largest = max(tensors, key=lambda entry: entry.file_size)
        start = content.index(archive.read(largest), largest.header_offset)
    content[start + 7] ^= 1
    file.write_bytes(content)
    assert "checksum" in load_error(directory)


def rewrite(file, compression=zipfile.ZIP_STORED, **contents):
    """The archive again, with other contents of its files of those names."""
    with zipfile.ZipFile(file) as archive:
        entries = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, contents.get(name.split("/")[-1], content))


@pytest.mark.parametrize(
    ("changes", "output"),
    [({"byteorder": b"big"}, "not little-endian"), ({"compression": zipfile.ZIP_DEFLATED}, "compressed")],
)
def test_archives_that_torch_does_not_write_are_refused(changes, output, directory):
    turn_into_bin(directory)
    rewrite(directory / "pytorch_model.bin", **changes)
    assert output in load_error(directory)


@pytest.mark.slow
def test_a_stream_whose_storages_have_no_names(tmp_path):
    """To hash the name of this one would be too deep for the interpreter's stack."""
    parts = (torch_pickle.STREAM_MAGIC, torch_pickle.STREAM_VERSION, {"little_endian": True}, {})
    head = b"".join(pickle.dumps(part, 2) for part in parts)
    (tmp_path / "deep.bin").write_bytes(head + b"\x80\x02])" + b"\x85" * 1_000_000 + b"a.")
    with pytest.raises(torch_pickle.BertJaxError, match="storages"):
        torch_pickle.read_torch_tensors(tmp_path / "deep.bin")


def test_a_zip_that_asks_for_a_later_version_of_the_format(directory):
    turn_into_bin(directory)
    file = directory / "pytorch_model.bin"
    content = bytearray(file.read_bytes())
    content[content.index(b"PK\1\2") + 6] = 99  # of the first entry in the central directory
    file.write_bytes(content)
    with pytest.raises(NotImplementedError, match="9.9"):
        zipfile.ZipFile(file)
    assert "pytorch_model.bin" in load_error(directory)


@pytest.mark.parametrize("place", range(5))
def test_what_a_storage_refers_to_is_of_its_type(place):
    reference = ["storage", torch_pickle.Name("torch.FloatStorage"), "0", "cpu", 4]
    assert torch_pickle.storage_of(tuple(reference)).count == 4
    reference[place] = torch_pickle.Name("torch.FloatStorage") if place != 1 else "torch.FloatStorage"
    with pytest.raises(torch_pickle.BertJaxError, match="not a tensor's storage"):
        torch_pickle.storage_of(tuple(reference))


def test_a_view_of_one_number_with_an_absurd_stride(directory):
    turn_into_bin(directory)
    file = directory / "pytorch_model.bin"
    lie = torch_pickle.Strided(torch_pickle.Storage("0", np.dtype(np.float32), 1), 0, (1,), (1 << 70,))
    record = torch_pickle.Record("0", np.zeros(4, np.uint8))
    with pytest.raises(torch_pickle.BertJaxError, match="damaged"):
        torch_pickle.refuse_damaged(file, lambda: torch_pickle.view_tensor(lie, record))


def test_what_the_system_refuses_is_no_damage(tmp_path):
    with pytest.raises(torch_pickle.BertJaxError, match="Is a directory; name another one"):
        torch_pickle.read_torch_tensors(tmp_path)


@pytest.mark.slow
def test_tensorflow_and_triton_go_together():
    """torch loads triton when it compiles; after TensorFlow alone that ends the process, so here it comes first, if
    nobody has loaded TensorFlow before."""
    pytest.importorskip("triton")
    code = "import bert_jax.text.host_tensorflow, triton._C.libtriton"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
