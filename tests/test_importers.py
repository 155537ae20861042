"""Checkpoints as real tools write them: what is taken, what is refused and why."""

import gzip
import io
import json
import logging
import os
import shutil
import struct
import subprocess
import sys
import tarfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import yaml
from checkpoints import FIXTURES, rewritten
from conftest import DIGITS, need_shared
from models import nemo_case, random_tensors
from safetensors.numpy import save as to_bytes

import pkrnnt
from pkrnnt import FormatError, rnnt_greedy
from quant import load_checkpoint
from quant.__main__ import main as quant_main
from quant.importers.torch_pickle import TorchFile
from quant.importers.vocabulary import read_vocabulary, sentencepiece_pieces

STATUS = Path("/proc/self/status")


@pytest.fixture(params=["clone", "shared"])
def fixtures(request):
    """Folder of fixtures: those of every clone, then the full set."""
    return FIXTURES if request.param == "clone" else need_shared() / "fixtures" / "import"


def fixture(fixtures, name):
    path = fixtures / name
    if not path.exists():
        assert fixtures == FIXTURES
        pytest.skip(f"{name} stands with the full fixtures only")
    return path


@pytest.fixture(scope="module")
def few_frames(tmp_path_factory):
    """A frames file with a few of the bundled calibration utterances."""
    path = tmp_path_factory.mktemp("frames") / "few.npz"
    with np.load(DIGITS / "calibration.npz") as data:
        offsets = data["enc_offsets"][:9]
        np.savez(path, enc=data["enc"][: offsets[-1]], enc_offsets=offsets)
    return path


# What is taken


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bpe.nemo", "bpe"), ("bpe_decoder_joint.onnx", "bpe"), ("bpe.f32.gguf", "bpe"),
        ("hybrid.nemo", "hybrid"), ("hybrid_decoder_joint.onnx", "hybrid"),
        ("hybrid.f32.gguf", "hybrid"),
    ],
)  # fmt: skip
def test_the_float_path_reproduces_nemo(fixtures, name, expected):
    model = load_checkpoint(fixture(fixtures, name))
    with np.load(fixtures / f"{expected}_expected.npz") as z:
        hyp = rnnt_greedy(model, z["enc"], int(z["max_symbols"]))
        assert hyp.tokens == z["tokens"].tolist()
        assert hyp.frames == z["timestamps"].tolist()
        assert model.config.blank_id == z["blank_id"]
        g, _ = model.prediction.step(pkrnnt.SOS, model.prediction.zero_state())
        first = model.joint.logits(model.joint.project_enc(z["enc"])[0], g)
        np.testing.assert_allclose(first, z["first_logits"][0], atol=2e-4)
        if "pieces" in z and model.config.vocabulary is not None:
            assert list(model.config.vocabulary) == z["pieces"].tolist()
            from pkrnnt.text import text

            assert text(model.config, hyp.tokens) == str(z["text"])


FLOAT_DIGITS = [
    "digits.nemo", "digits_gz.nemo", "digits.ckpt", "digits_legacy.ckpt", "digits_views.ckpt",
    "digits_lightning.ckpt", "digits_decoder_joint.onnx", "digits_sherpa/decoder.onnx",
    "digits.f32.gguf", "digits.safetensors", "hf_parakeet/model.safetensors",
]  # fmt: skip
SMALLER_DIGITS = [
    "digits.f16.safetensors", "digits.bf16.safetensors", "digits_bf16.ckpt", "digits.f16.gguf",
    "digits.q8_0.gguf", "digits_decoder_joint.int8.onnx", "digits_sherpa/decoder.int8.onnx",
]  # fmt: skip


@pytest.mark.parametrize("name", FLOAT_DIGITS)
def test_every_digits_file_reproduces_nemo(name):
    folder = need_shared() / "fixtures" / "import"
    model = load_checkpoint(folder / name)
    with np.load(folder / "digits_expected.npz") as z:
        for (a, b), (first, last) in zip(
            pairwise(z["enc_offsets"]), pairwise(z["offsets"]), strict=True
        ):
            hyp = rnnt_greedy(model, z["enc"][a:b])
            assert hyp.tokens == z["tokens"][first:last].tolist()
            assert hyp.frames == z["timestamps"][first:last].tolist()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("digits_decoder_joint.int8.onnx", "decoder_joint"), ("digits_sherpa/decoder.int8.onnx", "split")],
)
def test_int8_graphs_give_onnx_runtimes_tokens(name, kind):
    """Frames may differ: ONNX Runtime also quantizes activations, which the weights do not record."""
    folder = need_shared() / "fixtures" / "import"
    model = load_checkpoint(folder / name)
    with (
        np.load(need_shared() / "data" / "digits_rnnt" / "eval_enc.npz") as data,
        np.load(folder / "digits_onnx_int8_expected.npz") as z,
    ):
        tokens, enc = z[f"{kind}_int8_tokens"], data["enc"]
        pairs = zip(pairwise(data["enc_offsets"]), pairwise(z[f"{kind}_int8_offsets"]), strict=True)
        for (a, b), (first, last) in pairs:
            assert rnnt_greedy(model, enc[a:b]).tokens == tokens[first:last].tolist()


@pytest.mark.parametrize("name", FLOAT_DIGITS)
def test_every_float_source_gives_the_same_int8_file(name, tmp_path, few_frames):
    """With the vocabulary and the frame's duration given where the source lacks them."""
    folder = need_shared() / "fixtures" / "import"
    tokens = str(folder / "digits_sherpa" / "tokens.txt")
    found = []
    for source in (DIGITS / "float.safetensors", folder / name):
        out = tmp_path / f"{len(found)}.safetensors"
        given = [] if not found else ["--vocabulary", tokens, "--frame-seconds", "0.04"]
        assert quant_main([str(source), "--calibration", str(few_frames), "-o", str(out), *given]) == 0
        found.append(out.read_bytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("name", SMALLER_DIGITS)
def test_smaller_sources_decode_as_they_stand(fixtures, name, digits_float, tmp_path):
    source = fixture(fixtures, name)
    model = load_checkpoint(source)
    for tensor, array in digits_float.tensors().items():
        error = np.abs(model.tensors()[tensor] - array).max() / np.abs(array).max()
        assert error < 0.01, tensor
    frames = [f"--{kind}={DIGITS / kind}.npz" for kind in ("calibration", "evaluation")]
    report = tmp_path / "report.json"
    command = [str(source), *frames, "-o", str(tmp_path / "m.safetensors"), "--json", str(report)]
    assert quant_main(command) == 0
    found = json.loads(report.read_text())["evaluation"]
    assert (found["utterances_identical"], found["utterances"], found["token_edits"]) == (120, 120, 0)


def test_what_the_files_say_is_taken():
    config = load_checkpoint(FIXTURES / "bpe.nemo").config
    assert (config.joint_activation, config.max_symbols) == ("tanh", 10)
    assert config.frame_seconds == pytest.approx(0.08)
    assert config.vocabulary[:3] == ("<unk>", "\u2581t", "he")
    assert load_checkpoint(FIXTURES / "bpe.f32.gguf").config == config
    onnx = load_checkpoint(FIXTURES / "bpe_decoder_joint.onnx").config
    assert (onnx.joint_activation, onnx.vocabulary, onnx.frame_seconds) == ("tanh", None, None)
    sherpa = load_checkpoint(FIXTURES / "digits_sherpa" / "decoder.int8.onnx").config
    assert sherpa.vocabulary[:2] == (" ", "a")
    assert len(sherpa.vocabulary) == 27


def test_a_setting_of_the_callers_wins_over_the_files():
    model = load_checkpoint(FIXTURES / "bpe.nemo", max_symbols=3, joint_activation="relu")
    assert (model.config.max_symbols, model.config.joint_activation) == (3, "relu")


def test_d12_a_hybrid_model_gives_its_transducer_half_and_says_so(caplog):
    with caplog.at_level(logging.WARNING):
        assert load_checkpoint(FIXTURES / "hybrid.nemo").config.pred_layers == 2
    assert "the CTC head is ignored" in caplog.text


def test_a10_an_onnx_graph_whose_blank_row_is_not_zero_is_noted(caplog, tmp_path):
    onnx = pytest.importorskip("onnx")
    model = onnx.load(FIXTURES / "bpe_decoder_joint.onnx")
    (embed,) = [i for i in model.graph.initializer if i.name.endswith("embed.weight")]
    array = onnx.numpy_helper.to_array(embed).copy()
    array[-1] = 0.5
    embed.CopyFrom(onnx.numpy_helper.from_array(array, embed.name))
    onnx.save(model, tmp_path / "loud.onnx")
    with caplog.at_level(logging.WARNING):
        load_checkpoint(tmp_path / "loud.onnx")
    assert "blank row is not zero (up to 0.5)" in caplog.text


def test_d01_gates_of_an_onnx_lstm():
    """Every gate has values of its own, so any other order gives another output."""
    onnx = pytest.importorskip("onnx")
    reference = load_checkpoint(FIXTURES / "bpe.nemo").lstm[0]
    model = onnx.load(FIXTURES / "bpe_decoder_joint.onnx")
    node = next(node for node in model.graph.node if node.op_type == "LSTM")
    stored = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    i, o, f, c = np.split(stored[node.input[1]][0], 4)
    np.testing.assert_array_equal(np.concatenate([i, f, c, o]), reference.input.weight)


def test_d18_of_a_large_file_only_the_decoder_is_read(tmp_path):
    tensors = random_tensors(np.random.default_rng(0))
    data = to_bytes(tensors)
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    body = len(data) - 8 - size
    encoder = 3 << 30
    header["encoder.huge"] = {
        "dtype": "F32", "shape": [encoder // 4], "data_offsets": [body, body + encoder],
    }  # fmt: skip
    head = json.dumps(header).encode()
    path = tmp_path / "large.safetensors"
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head + data[8 + size :])
        file.truncate(8 + len(head) + body + encoder)  # sparse
    # Not ru_maxrss, which a child inherits from the process that started it.
    code = (
        "import re, sys; from quant import load_checkpoint; load_checkpoint(sys.argv[1]); "
        "print(re.search(r'VmHWM:\\s*([0-9]+) kB', open('/proc/self/status').read())[1])"
    )
    if not STATUS.exists():
        pytest.skip("reads the peak memory from /proc")
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 200_000  # kilobytes


class Counting(io.FileIO):
    """A file that counts the bytes read from it."""

    count = 0

    def readinto(self, buffer):
        got = super().readinto(buffer)
        self.count += got
        return got

    def read(self, size=-1):
        got = super().read(size)
        self.count += len(got)
        return got


def test_d18_of_a_torch_file_only_the_decoders_storages_are_read():
    path = FIXTURES / "digits_bf16.ckpt"
    with Counting(path) as file:
        source = TorchFile(file)
        before = file.count
        (array,) = source.arrays(["joint.enc.bias"]).values()
        assert array.shape == (96,)
        assert file.count - before < 4096
    assert before < 20_000


# What is refused, and why


REFUSED = {
    "ctc_only.nemo": "a CTC model: it has no prediction network and no joint",
    "stateless.nemo": "stateless prediction network",
    "tdt.nemo": "a TDT model: the joint has 33 output rows, 5 of them durations",
    "tdt.f32.gguf": "a TDT model: the joint has 33 output rows, 5 of them durations",
    "hf_parakeet_tdt/model.safetensors": "a TDT model: the joint has 33 output rows, 5 of them",
    "hostile_absolute.nemo": "'/PKRNNT_PWNED' points outside the archive",
    "hostile_dotdot.nemo": r"'\.\./PKRNNT_PWNED' points outside the archive",
    "hostile_symlink.nemo": r"'\./sub' is a link or a device",
    "hostile.ckpt": "the pickle calls io.open: refused, and not executed",
    "hostile_pickle.nemo": "the pickle calls io.open: refused, and not executed",
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_models_and_hostile_files_are_refused(fixtures, name, tmp_path, monkeypatch, capsys):
    path = fixture(fixtures, name)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FormatError, match=f"{Path(name).name}: .*{REFUSED[name]}"):
        load_checkpoint(path)
    assert quant_main([str(path), "--calibration", "x.npy", "-o", "out.safetensors"]) == 2
    assert REFUSED[name].split("'")[-1].split("\\")[0] in capsys.readouterr().err
    assert not os.listdir(tmp_path)
    assert not (path.parent / "PKRNNT_PWNED").exists()
    assert not (path.parent.parent / "PKRNNT_PWNED").exists()


def saved(tensors, path):
    path.write_bytes(to_bytes(tensors))
    return path


def test_d04_an_lstm_with_projection_is_refused(tmp_path):
    tensors = random_tensors(np.random.default_rng(0))
    tensors["decoder.prediction.dec_rnn.lstm.weight_hr_l0"] = np.zeros((3, 5), np.float32)
    with pytest.raises(FormatError, match=r"LSTM with projection .*weight_hr_l0"):
        load_checkpoint(saved(tensors, tmp_path / "proj.safetensors"))


@pytest.mark.parametrize("entries", [5, 7, 8])
def test_a13_a_vocabulary_of_another_size_is_refused(tmp_path, entries):
    path = saved(random_tensors(np.random.default_rng(0)), tmp_path / "m.safetensors")
    with pytest.raises(FormatError, match=f"vocabulary has {entries} entries and the joint 7 output"):
        load_checkpoint(path, vocabulary=["x"] * entries)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("pred_rnn_layers: 1", "pred_rnn_layers: 2", "says pred_layers is 2, its tensors have 1"),
        ("    joint_hidden: 56", "    joint_hidden: 57", "says joint_hidden is 57, its tensors have 56"),
        ("    encoder_hidden: 32", "    encoder_hidden: 33", "says enc_hidden is 33"),
        ("  vocab_size: 64", "  vocab_size: 63", "65 output rows and the vocabulary 63 entries"),
        ("normalization_mode: null", "normalization_mode: layer", "layer normalization inside"),
        ("activation: tanh", "activation: gelu", "joint_activation is 'gelu'"),
        ("sample_rate:", "- sample_rate:", "ParserError|ScannerError|not a mapping"),
    ],
)
def test_d11_a_config_that_contradicts_the_tensors_is_refused(tmp_path, old, new, message):
    path = rewritten(FIXTURES / "bpe.nemo", tmp_path / "lie.nemo", lambda t: t.replace(old, new, 1))
    with pytest.raises(FormatError, match=rf"lie\.nemo: .*({message})"):
        load_checkpoint(path)


@pytest.mark.parametrize("without", [[], ["tokenizer.vocab"]])
def test_pieces_of_the_tokenizer_in_an_archive(tmp_path, without):
    def no_list(text):
        config = yaml.safe_load(text)
        del config["joint"]["vocabulary"]
        return yaml.safe_dump({**config, "labels": None})

    path = rewritten(FIXTURES / "bpe.nemo", tmp_path / "m.nemo", no_list, without)
    with np.load(FIXTURES / "bpe_expected.npz") as z:
        assert list(load_checkpoint(path).config.vocabulary) == z["pieces"].tolist()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x0a\x05\x0a\x09abc", "field ends at byte 11 of 5"),
        (b"\x0a\xff", "no integer at byte 1"),
        (b"\x0b", "field of kind 3 at byte 0"),
    ],
)
def test_sentencepiece_models_that_are_not_whole(data, message):
    with pytest.raises(FormatError, match=message):
        sentencepiece_pieces(data)


def test_a_gzipped_archive_and_one_without_weights(tmp_path):
    plain = (FIXTURES / "bpe.nemo").read_bytes()
    (tmp_path / "gz.nemo").write_bytes(gzip.compress(plain))
    assert load_checkpoint(tmp_path / "gz.nemo").digest == load_checkpoint(FIXTURES / "bpe.nemo").digest
    with tarfile.open(tmp_path / "empty.nemo", "w") as archive:
        archive.addfile(tarfile.TarInfo("model_config.yaml"))
    with pytest.raises(FormatError, match=r"the archive has no model_weights\.ckpt"):
        load_checkpoint(tmp_path / "empty.nemo")


def test_two_members_of_one_name_and_devices_are_refused(tmp_path):
    for name, change in (("twice", {}), ("device", {"type": tarfile.CHRTYPE})):
        with tarfile.open(tmp_path / f"{name}.nemo", "w") as archive:
            archive.addfile(tarfile.TarInfo("./model_config.yaml"))
            again = tarfile.TarInfo("model_config.yaml" if name == "twice" else "null")
            for key, value in change.items():
                setattr(again, key, value)
            archive.addfile(again)
        with pytest.raises(FormatError, match="stands there twice|is a link or a device"):
            load_checkpoint(tmp_path / f"{name}.nemo")


# safetensors, gguf


def test_d07_bfloat16_and_float16_are_exact(tmp_path):
    tensors = random_tensors(np.random.default_rng(0))
    name = "joint.joint_net.2.bias"
    values = np.array([1.0, -2.5, 3.140625, 0, -0.0, 1e-40, 65280.0], np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    data = to_bytes({**tensors, name: bits})
    path = tmp_path / "bf16.safetensors"
    path.write_bytes(data.replace(b'"U16"', b'"BF16"').replace(b"  ", b" ", 1))
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header[name]["dtype"] = "BF16"
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + data[8 + size :])
    expected = (bits.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(load_checkpoint(path).tensors()[name], expected)
    assert expected[:3].tolist() == [1.0, -2.5, 3.140625]
    subnormal = np.full(7, 6e-8, np.float16)
    path = saved({**tensors, name: subnormal}, tmp_path / "f16.safetensors")
    np.testing.assert_array_equal(load_checkpoint(path).tensors()[name], subnormal.astype(np.float32))
    path = saved({**tensors, name: np.zeros(7, np.int8)}, tmp_path / "i8.safetensors")
    with pytest.raises(FormatError, match=f"tensor {name} has dtype I8, wanted F32"):
        load_checkpoint(path)


def test_shards_are_found_through_their_index(tmp_path):
    tensors = random_tensors(np.random.default_rng(0))
    names = sorted(tensors)
    shards = {"m-00001-of-00002.safetensors": names[:4], "m-00002-of-00002.safetensors": names[4:]}
    for shard, part in shards.items():
        saved({name: tensors[name] for name in part}, tmp_path / shard)
    index = {"weight_map": {name: shard for shard, part in shards.items() for name in part}}
    (tmp_path / "m.safetensors.index.json").write_text(json.dumps(index))
    wanted = pkrnnt.FloatModel.from_tensors(tensors).digest
    assert load_checkpoint(tmp_path / "m.safetensors.index.json").digest == wanted
    assert load_checkpoint(tmp_path / "m-00001-of-00002.safetensors").digest == wanted
    index["weight_map"][names[0]] = "../m-00001-of-00002.safetensors"
    (tmp_path / "m.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(FormatError, match="wanted a file beside it"):
        load_checkpoint(tmp_path / "m.safetensors.index.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h["joint.enc.bias"].update(data_offsets=[0, 1 << 40]), "stands at 0.."),
        (
            lambda h: h["joint.enc.bias"].update(shape=[1 << 60, 1 << 60]),
            "has shape .* and offsets 1100",
        ),
        (lambda h: h["joint.enc.bias"].update(shape=[8]), "of shape .* has 28 bytes"),
        (lambda h: h["joint.enc.bias"].update(shape=[-7]), r"has shape \(-7,\)"),
        (lambda h: h["joint.enc.bias"].pop("dtype"), "KeyError: 'dtype'"),
        (lambda h: h.update({"joint.enc.bias": 7}), "TypeError"),
    ],
)
def test_safetensors_headers_are_checked(tmp_path, change, message):
    data = to_bytes(random_tensors(np.random.default_rng(0)))
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    change(header)
    head = json.dumps(header).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(head).to_bytes(8, "little") + head + data[8 + size :])
    with pytest.raises(FormatError, match=rf"m\.safetensors: .*{message}"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, b"FUGG", "magic is b'FUGG'"),
        (4, struct.pack(">I", 3), "endianness is big"),
        (4, struct.pack("<I", 9), "GGUF version is 9"),
        (8, struct.pack("<Q", 1 << 60), "announces 1152921504606846976 items"),
        (16, struct.pack("<Q", 1 << 60), "announces 1152921504606846976 items"),
        (24, struct.pack("<Q", 1 << 60), "announces 1152921504606846976 items"),
    ],
)
def test_d22_gguf_headers_are_checked(tmp_path, at, value, message):
    data = bytearray((FIXTURES / "hybrid.f32.gguf").read_bytes())
    data[at : at + len(value)] = value
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=rf"m\.gguf: .*{message}"):
        load_checkpoint(path)


def test_a_gguf_tensor_of_another_type_is_refused_by_its_name(tmp_path):
    data = bytearray((FIXTURES / "hybrid.f32.gguf").read_bytes())
    name = b"joint.pred.weight"
    at = data.index(name) + len(name) + 4 + 2 * 8
    data[at : at + 4] = struct.pack("<I", 12)
    (tmp_path / "m.gguf").write_bytes(data)
    with pytest.raises(FormatError, match="tensor joint.pred.weight has type Q4_K, wanted F32"):
        load_checkpoint(tmp_path / "m.gguf")


def test_a_prediction_network_without_its_joiner_is_refused(tmp_path):
    pytest.importorskip("onnx")
    shutil.copy(FIXTURES / "digits_sherpa" / "decoder.int8.onnx", tmp_path / "decoder.onnx")
    with pytest.raises(FormatError, match=r"without a joint.*joiner\.onnx"):
        load_checkpoint(tmp_path / "decoder.onnx")
    shutil.copy(FIXTURES / "digits_sherpa" / "joiner.int8.onnx", tmp_path / "joiner.onnx")
    assert load_checkpoint(tmp_path / "decoder.onnx").config.vocabulary is None
    with pytest.raises(FormatError, match="holds a joint without a prediction network"):
        load_checkpoint(tmp_path / "joiner.onnx")


# Vocabularies


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\r\nb", ["a", "b"]),
        ("a\n\u2028\n\x85\n", ["a", "\u2028", "\x85"]),
        ("", []),
        ("  0\na 1\n<blk> 2\n", [" ", "a"]),
        ("b 1\na 0\n", ["a", "b"]),
        ("<unk>\n\u2581the\n<blk>\n", ["<unk>", "\u2581the"]),
    ],
)
def test_vocabulary_files(tmp_path, text, wanted):
    (tmp_path / "tokens.txt").write_text(text, encoding="utf-8")
    assert read_vocabulary(tmp_path / "tokens.txt") == wanted


def test_vocabulary_files_that_do_not_fit(tmp_path):
    (tmp_path / "gap.txt").write_text("a 0\nb 2\n")
    with pytest.raises(FormatError, match=r"gap\.txt: token ids are not 0..1"):
        read_vocabulary(tmp_path / "gap.txt")
    (tmp_path / "latin.txt").write_bytes(b"\xe4\n")
    with pytest.raises(FormatError, match=r"latin\.txt: not UTF-8"):
        read_vocabulary(tmp_path / "latin.txt")


def test_an_onnx_lstm_with_other_activations_is_refused(tmp_path):
    onnx = pytest.importorskip("onnx")
    model = onnx.load(FIXTURES / "hybrid_decoder_joint.onnx")
    node = next(node for node in model.graph.node if node.op_type == "LSTM")
    node.attribute.append(onnx.helper.make_attribute("activations", ["Sigmoid", "Relu", "Relu"]))
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(FormatError, match="has other activations than an LSTM's"):
        load_checkpoint(tmp_path / "m.onnx")


def test_settings_win_over_a_saved_models():
    model = load_checkpoint(DIGITS / "float.safetensors", joint_activation="tanh", max_symbols=3)
    assert (model.config.joint_activation, model.config.max_symbols) == ("tanh", 3)
    assert model.config.vocabulary == pkrnnt.load(DIGITS / "float.safetensors").config.vocabulary


def test_what_is_no_file_or_another_kind_is_refused(tmp_path):
    os.mkfifo(tmp_path / "f.nemo")
    with pytest.raises(FormatError, match=r"f\.nemo: not a regular file"):
        load_checkpoint(tmp_path / "f.nemo")
    shutil.copy(FIXTURES / "bpe.nemo", tmp_path / "tar.ckpt")
    with pytest.raises(FormatError, match="wanted a zip archive or a pickle of torch.save"):
        load_checkpoint(tmp_path / "tar.ckpt")
    shutil.copy(FIXTURES / "digits_bf16.ckpt", tmp_path / "zip.nemo")
    with pytest.raises(FormatError, match="a zip archive, wanted a tar"):
        load_checkpoint(tmp_path / "zip.nemo")


def test_nemo_golden_weights_load_from_an_archive_of_arrays(golden, tmp_path):
    model, enc, wanted, _ = nemo_case(golden / "nemo", "a_lstm1_relu_v28")
    np.savez(tmp_path / "m.npz", **model.tensors())
    assert rnnt_greedy(load_checkpoint(tmp_path / "m.npz"), enc).tokens == wanted["tokens"].tolist()
