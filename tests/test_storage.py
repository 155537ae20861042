"""Model files: whole or not at all, checked at load."""

import json
import os

import numpy as np
import pytest
from models import quantized, random_enc, random_float_model
from safetensors.numpy import save as to_bytes

import pkrnnt
from pkrnnt import FormatError, rnnt_greedy, storage


@pytest.fixture(scope="module", params=["float", "int8"])
def model(request):
    model = random_float_model(2, "tanh", layers=2)
    return quantized(model) if request.param == "int8" else model


def test_a_file_gives_the_same_model_back(model, tmp_path):
    path = tmp_path / "model.safetensors"
    pkrnnt.save(model, path)
    found = pkrnnt.load(path)
    assert type(found) is type(model)
    assert found.config == model.config
    assert found.digest == model.digest
    for name, array in model.tensors().items():
        np.testing.assert_array_equal(found.tensors()[name], array)
    enc = random_enc(model, 20)
    assert rnnt_greedy(found, enc) == rnnt_greedy(model, enc)
    assert storage.serialize(found) == path.read_bytes()
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_a_truncated_file_is_refused(model, tmp_path):
    data = storage.serialize(model)
    path = tmp_path / "cut.safetensors"
    for size in [*range(0, 64, 3), *range(64, len(data), 97), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(FormatError, match=r"cut\.safetensors: not a whole safetensors file"):
            pkrnnt.load(path)


def test_any_flipped_byte_is_refused(model, tmp_path):
    data = storage.serialize(model)
    rng = np.random.default_rng(3)
    path = tmp_path / "flip.safetensors"
    refusals = []
    for position in rng.integers(0, len(data), 2000).tolist():
        altered = bytearray(data)
        altered[position] ^= int(rng.integers(1, 256))
        path.write_bytes(altered)
        try:
            found = pkrnnt.load(path)
        except FormatError as error:
            refusals.append(str(error))
        else:  # white space of the header is no content
            assert found.digest == model.digest
    assert len(refusals) > 1900
    assert all("flip.safetensors: " in refusal for refusal in refusals)


def repacked(model, *, tensors=None, **metadata):
    """The model's file with changed metadata or tensors, its own digest kept."""
    original = storage.serialize(model)
    size = int.from_bytes(original[:8], "little")
    entry = json.loads(json.loads(original[8 : 8 + size])["__metadata__"]["pkrnnt"])
    entry = {key: value for key, value in {**entry, **metadata}.items() if value is not None}
    return to_bytes(tensors or model.tensors(), metadata={"pkrnnt": json.dumps(entry)})


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"format": None}, "format is None, wanted"),
        ({"format": "onnx"}, "format is 'onnx', wanted"),
        ({"format_version": 2}, "format version is 2, wanted 1"),
        ({"format_version": None}, "format version is None"),
        ({"config": None}, "metadata hold .*wanted .*config"),
        ({"config": [1]}, "metadata hold .*wanted .*config"),
        ({"config": {}}, "the file was altered"),
        ({"sha256": None}, "wanted None"),
    ],
)
def test_metadata_that_do_not_fit_are_refused(model, tmp_path, metadata, message):
    path = tmp_path / "meta.safetensors"
    path.write_bytes(repacked(model, **metadata))
    with pytest.raises(FormatError, match=message):
        pkrnnt.load(path)


@pytest.mark.parametrize("entry", ["[1", "[1]", "7"])
def test_metadata_that_are_not_an_object_are_refused(model, tmp_path, entry):
    path = tmp_path / "meta.safetensors"
    path.write_bytes(to_bytes(model.tensors(), metadata={"pkrnnt": entry}))
    with pytest.raises(FormatError, match="metadata are not a JSON object"):
        pkrnnt.load(path)


def test_a_safetensors_file_of_others_is_refused(model, tmp_path):
    path = tmp_path / "theirs.safetensors"
    path.write_bytes(to_bytes(model.tensors()))
    with pytest.raises(FormatError, match="format is None, wanted .*python -m quant"):
        pkrnnt.load(path)


def test_altered_tensors_are_refused(model, tmp_path):
    tensors = dict(model.tensors())
    name = "joint.enc.bias"
    tensors[name] = tensors[name] + tensors[name].dtype.type(1)
    path = tmp_path / "altered.safetensors"
    path.write_bytes(repacked(model, tensors=tensors))
    with pytest.raises(FormatError, match="sha256 of the contents is .*the file was altered"):
        pkrnnt.load(path)


def test_contents_that_do_not_fit_are_refused_with_the_files_name(model, tmp_path):
    tensors = dict(model.tensors())
    del tensors["joint.enc.bias"]
    path = tmp_path / "short.safetensors"
    path.write_bytes(repacked(model, tensors=tensors, sha256=storage.digest(tensors, model.meta())))
    with pytest.raises(FormatError, match=r"short\.safetensors: .*missing \['joint.enc.bias'\]"):
        pkrnnt.load(path)


def test_a_config_that_contradicts_the_tensors_is_refused(tmp_path):
    model = random_float_model(2)
    config = {**model.config.to_json(), "pred_hidden": 6}
    path = tmp_path / "lie.safetensors"
    sha256 = storage.digest(model.tensors(), {"config": config})
    path.write_bytes(repacked(model, config=config, sha256=sha256))
    with pytest.raises(FormatError, match="contradicts the tensors"):
        pkrnnt.load(path)


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        pkrnnt.load(tmp_path / "nowhere.safetensors")
    with pytest.raises(OSError, match="nowhere"):
        pkrnnt.save(random_float_model(2), tmp_path / "nowhere" / "model.safetensors")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        storage.write_atomically({tmp_path / "other": b"new", path: b"new"})
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_a_written_file_has_the_usual_permissions(tmp_path):
    storage.write_atomically({tmp_path / "a": b"x"})
    (tmp_path / "b").write_bytes(b"x")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    storage.write_atomically({tmp_path / "link": b"new"})
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_only_regular_files_are_written(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        storage.write_atomically({tmp_path / "other": b"x", tmp_path / "pipe": b"x"})
    assert sorted(os.listdir(tmp_path)) == ["pipe"]


def resigned(model, change):
    """The model's file with changed scalars and a digest that fits them: what a forger would write."""
    meta = json.loads(json.dumps(model.meta()))
    change(meta)
    return repacked(model, sha256=storage.digest(model.tensors(), meta), **meta)


def put(*keys, value):
    def change(meta):
        for key in keys[:-1]:
            meta = meta[key]
        meta[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("config", "pred_layers", value=3_000_000), "cannot hold 3000000 LSTM layers"),
        (put("config", "max_symbols", value=2**40), "max_symbols is 1099511627776"),
        (put("config", "blank_id", value=True), "blank_id is True, wanted int"),
        (put("config", "vocabulary", value="abcdef"), "not a list of str"),
        (put("quantization", "joint", "hidden", value=5), "hidden is 5, wanted MultiplierShift"),
        (put("quantization", "joint", "softmax", value=5), "softmax is 5"),
        (put("quantization", "joint", "softmax", value=[2**30]), "softmax is .1073741824,"),
        (put("quantization", "joint", "enc_zero_point", value=1.5), "enc_zero_point is 1.5, wanted int"),
        (put("quantization", "joint", "enc_inverse_scale", value=1e39), "wanted a finite float32"),
        (put("quantization", "joint", "enc_inverse_scale", value=1e-60), "wanted a finite float32"),
        (put("quantization", "joint", "sum_scale", value=1), "sum_scale is 1, wanted finite float"),
        (put("quantization", "lstm", 0, "forget_to_cell", value=None), "forget_to_cell is None"),
        (put("quantization", "lstm", 0, "output", value=["a", -3]), "output is .'a', -3"),
        (put("quantization", "lstm", value=5), "quantization entries do not fit"),
        (put("quantization", "granularity", value="gate"), "several multipliers in a gate"),
        (put("quantization", "rounding", value=2), "rounding is 2"),
    ],
)
def test_a_forged_int8_file_is_refused(tmp_path, change, message):
    model = quantized(random_float_model(2, layers=2))
    path = tmp_path / "forged.safetensors"
    path.write_bytes(resigned(model, change))
    with pytest.raises(FormatError, match=rf"forged\.safetensors: .*{message}"):
        pkrnnt.load(path)


def test_metadata_nested_without_end_are_refused(model, tmp_path):
    path = tmp_path / "deep.safetensors"
    path.write_bytes(to_bytes(model.tensors(), metadata={"pkrnnt": "[" * 200_000}))
    with pytest.raises(FormatError, match="metadata are not a JSON object"):
        pkrnnt.load(path)
