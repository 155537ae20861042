"""The two commands as a user runs them: exit status, what is printed, what is written."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from models import one_hot, quantized, random_enc, random_float_model, random_tensors, script_model

import pkrnnt
from pkrnnt import cli
from pkrnnt.dataset import bundled
from quant import load_checkpoint
from quant.__main__ import main as quant_main

SECTION_KEYS = {
    "utterances", "joint_calls", "argmax_agreement", "argmax_agreement_nonblank", "disagreements",
    "utterances_identical", "utterances_identical_frames", "tokens", "token_edits", "wer_float",
    "wer_int8",
}  # fmt: skip


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """(model path, report) of ``python -m quant`` on the bundled digits."""
    folder = tmp_path_factory.mktemp("digits")
    path, report = folder / "d.safetensors", folder / "r.json"
    assert quant_main(["-o", str(path), "--json", str(report)]) == 0
    return path, json.loads(report.read_text())


@pytest.fixture
def own(tmp_path):
    """A checkpoint of one's own with its frames: (folder, arguments)."""
    tensors = random_tensors(np.random.default_rng(0))
    np.savez(tmp_path / "own.npz", **tensors, vocabulary=list("abcdef"), max_symbols=3)
    enc = random_enc(random_float_model(0), 60)
    np.savez(tmp_path / "train.npz", enc=enc, enc_offsets=[0, 20, 60])
    np.savez(tmp_path / "test.npz", enc=-enc, enc_offsets=[0, 60], ref_text=["a b"])
    return tmp_path, [
        str(tmp_path / "own.npz"), "--calibration", str(tmp_path / "train.npz"),
        "--evaluation", str(tmp_path / "test.npz"), "-o", str(tmp_path / "out.safetensors"),
    ]  # fmt: skip


# python -m quant


def test_report_of_the_bundled_digits(digits):
    path, report = digits
    for name, utterances, calls in (("calibration", 84, 8970), ("evaluation", 120, 12136)):
        section = report[name]
        assert section.keys() >= SECTION_KEYS
        assert section["utterances"] == utterances
        assert section["joint_calls"] == calls
        assert set(section["disagreements"]) == {
            "token_to_blank", "blank_to_token", "token_to_token",
        }  # fmt: skip
        wrong = sum(section["disagreements"].values())
        assert section["argmax_agreement"] == pytest.approx(1 - wrong / calls)
        assert section["argmax_agreement"] > 0.995
        assert section["utterances_identical"] >= utterances - 1
        assert section["wer_float"] < 0.02
    assert {tensor["name"] for tensor in report["tensors"]} >= {"joint.enc.weight"}
    for tensor in report["tensors"]:
        assert tensor.keys() >= {"name", "dtype", "bytes", "scale", "sqnr_db"}
    assert path.stat().st_size == report["model_bytes"] <= 120_000


def test_the_same_command_writes_the_same_bytes(digits, tmp_path):
    again = tmp_path / "again.safetensors"
    assert quant_main(["-o", str(again)]) == 0
    assert again.read_bytes() == digits[0].read_bytes()


def test_the_table_names_the_figures(capsys, own):
    _, arguments = own
    assert quant_main(arguments) == 0
    out = capsys.readouterr().out
    for words in ("argmax agreement", "token -> blank", "word error rate, int8", "costliest first"):
        assert words in out
    assert "next: pkrnnt decode" in out


@pytest.mark.parametrize("granularity", ["row", "gate"])
@pytest.mark.parametrize("method", ["minmax", "mse", "percentile:99.5"])
@pytest.mark.parametrize("rounding", ["gptq", "nearest"])
def test_every_option_gives_a_model_that_says_so(own, granularity, method, rounding):
    folder, arguments = own
    options = ["--granularity", granularity, "--range", method, "--weight-rounding", rounding]
    assert quant_main([*arguments, *options]) == 0
    model = pkrnnt.load(folder / "out.safetensors")
    assert model.quantization.granularity == granularity
    assert model.provenance["range"] == method
    assert model.provenance["weight_rounding"] == rounding
    assert model.provenance["float_model"] == load_checkpoint(folder / "own.npz").digest


def test_agreement_below_the_wanted_exits_3_and_writes_only_with_force(own, capsys):
    folder, arguments = own
    arguments = [*arguments, "--min-agreement", "1", "--json", str(folder / "r.json")]
    assert quant_main(arguments) == 3
    assert "not written" in capsys.readouterr().out
    assert not (folder / "out.safetensors").exists()
    report = json.loads((folder / "r.json").read_text())
    assert report["model_written"] is False
    assert report["evaluation"]["argmax_agreement"] < 1
    assert quant_main([*arguments, "--force"]) == 3
    assert pkrnnt.load(folder / "out.safetensors").config.max_symbols == 3
    assert quant_main([*arguments, "--min-agreement", "0.5"]) == 0


def test_without_evaluation_frames_it_says_so(own, capsys):
    folder, arguments = own
    del arguments[3:5]
    assert quant_main([*arguments, "--json", str(folder / "r.json")]) == 0
    assert "agreement is measured on the calibration frames only" in capsys.readouterr().out
    assert json.loads((folder / "r.json").read_text())["evaluation"] is None


def test_evaluating_on_the_calibration_frames_is_warned_about(own, capsys):
    folder, arguments = own
    arguments[4] = str(folder / "train.npz")
    assert quant_main(arguments) == 0
    assert "nothing is held out" in capsys.readouterr().out


def bad(own, change):
    folder, arguments = own
    arguments = change(folder, arguments)
    before = {name: (folder / name).read_bytes() for name in os.listdir(folder)}
    assert quant_main(arguments) == 2
    assert {name: (folder / name).read_bytes() for name in os.listdir(folder)} == before


def write_npz(folder, name, **arrays):
    with np.load(folder / name) as data:
        np.savez(folder / name, **{**data, **arrays})


def replace_frames(folder, arguments, **arrays):
    write_npz(folder, "test.npz", **arrays)
    return arguments


def replace_tensor(folder, arguments, name, value):
    write_npz(folder, "own.npz", **{name: value})
    return arguments


NAN = np.full(7, np.nan, np.float32)
BAD_INPUT = {
    "no such model": (lambda f, a: ["nowhere.npz", *a[1:]], "nowhere.npz"),
    "no such frames": (lambda f, a: [*a[:2], "nowhere.npy", *a[3:]], "nowhere.npy"),
    "no calibration": (lambda f, a: [a[0], *a[5:]], "needs --calibration"),
    "no such folder": (lambda f, a: [*a[:6], str(f / "x" / "y")], "folder .* does not exist"),
    "a folder": (lambda f, a: [*a[:6], str(f)], "not a regular file"),
    "report in no folder": (lambda f, a: [*a, "--json", str(f / "x" / "y")], "does not exist"),
    "range": (lambda f, a: [*a, "--range", "max"], "wanted minmax, mse or percentile"),
    "agreement": (lambda f, a: [*a, "--min-agreement", "99.5"], "is 99.5, wanted 0..1"),
    "another suffix": (lambda f, a: ["model.bin", *a[1:]], r"'.bin', wanted one of"),
    "NaN frames": (
        lambda f, a: replace_frames(f, a, enc=np.full((60, 4), np.nan)),
        "test.npz: utterance 0: encoder frame 0 holds nan",
    ),
    "wide frames": (
        lambda f, a: replace_frames(f, a, enc=np.zeros((60, 5))),
        r"shape \(60, 5\), wanted \[T, 4\]",
    ),
    "NaN weights": (
        lambda f, a: replace_tensor(f, a, "joint.enc.bias", NAN),
        r"own.npz: tensor joint.enc.bias holds nan at index \[0\]",
    ),
    "vocabulary": (
        lambda f, a: replace_tensor(f, a, "vocabulary", list("abc")),
        "vocabulary has 3 entries and the joint 7 output rows",
    ),
    "setting": (
        lambda f, a: replace_tensor(f, a, "max_symbols", np.array([1, 2])),
        "own.npz: max_symbols: ",
    ),
    "broken setting": (
        lambda f, a: replace_tensor(f, a, "max_symbols", 2.7),
        "own.npz: max_symbols: 'float' object cannot be interpreted as an integer",
    ),
    "bytes vocabulary": (
        lambda f, a: replace_tensor(f, a, "vocabulary", np.array([b"a"] * 6)),
        r"vocabulary: dtype is \|S1, wanted one dimension of str",
    ),
    "bytes references": (
        lambda f, a: replace_frames(f, a, ref_text=np.array([b"a b"])),
        "ref_text has shape .* and dtype .S3",
    ),
    "no evaluation frames": (
        lambda f, a: replace_frames(f, a, enc=np.zeros((0, 4)), enc_offsets=[0, 0]),
        "test.npz: holds 0 frames",
    ),
    "output is the model": (lambda f, a: [*a[:6], a[0]], "own.npz: would overwrite"),
    "report is the output": (lambda f, a: [*a, "--json", a[-1]], "would overwrite"),
    "report is a pipe": (lambda f, a: [*a, "--json", "/dev/null"], "not a regular file"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_exits_2_names_the_thing_and_writes_nothing(own, capsys, case):
    change, message = BAD_INPUT[case]
    folder, arguments = own
    arguments = change(folder, arguments)
    bad((folder, arguments), lambda _, a: a)
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    import re

    assert re.search(message, error), error


def test_calibration_without_frames_exits_2(own, capsys):
    folder, arguments = own
    np.save(folder / "none.npy", np.zeros((0, 4), np.float32))
    arguments[2] = str(folder / "none.npy")
    bad((folder, arguments), lambda _, a: a)
    assert "wanted at least one frame" in capsys.readouterr().err


def test_an_int8_model_is_no_checkpoint(digits, own, capsys):
    _, arguments = own
    assert quant_main([str(digits[0]), *arguments[1:]]) == 2
    assert "holds an int8 model already" in capsys.readouterr().err


def test_a_float_safetensors_checkpoint(tmp_path):
    model = random_float_model(3)
    pkrnnt.save(model, tmp_path / "m.safetensors")
    assert load_checkpoint(tmp_path / "m.safetensors").digest == model.digest


def test_quant_help_has_an_example(capsys):
    with pytest.raises(SystemExit) as stop:
        quant_main(["--help"])
    assert stop.value.code == 0
    assert "python -m quant -o digits.safetensors" in capsys.readouterr().out


def test_quant_runs_as_a_module(own):
    _, arguments = own
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "quant", *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "identical utterances" in done.stdout
    assert done.stderr == ""


# pkrnnt decode, pkrnnt inspect


def test_decode_prints_words_people_said(digits, capsys):
    assert cli.main(["decode", str(digits[0]), str(bundled("evaluation.npz"))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 121
    assert lines[0].split()[1:] == ["six", "five", "four", "eight", "nine", "one"]
    right = int(lines[-1].split()[0])
    assert right >= 115
    assert sum("(reference: " in line for line in lines) == 120 - right


def test_decode_without_frames_takes_the_bundled_ones(digits, capsys):
    assert cli.main(["decode", str(digits[0])]) == 0
    assert "utterances equal their reference" in capsys.readouterr().out


def test_decode_as_json(digits, capsys, digits_utterances):
    assert cli.main(["decode", str(digits[0]), str(bundled("evaluation.npz")), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["utterance"] for line in lines] == list(range(120))
    model = pkrnnt.load(digits[0])
    for line, enc in zip(lines, digits_utterances, strict=False):
        hyp = pkrnnt.rnnt_greedy(model, enc)
        assert line["tokens"] == hyp.tokens
        assert line["frames"] == hyp.frames
        assert line["confidence"] == hyp.confidence
        assert line["text"] == " ".join(word["text"] for word in line["words"])
        for word in line["words"]:
            assert word["start"] == pytest.approx(word["first_frame"] * 0.04)
            assert word["end"] == pytest.approx((word["last_frame"] + 1) * 0.04)


def test_decode_a_model_without_vocabulary(tmp_path, capsys):
    model = quantized(script_model({(1, -1): 2}, 2, 3), one_hot([0, 1], 2))
    pkrnnt.save(model, tmp_path / "m.safetensors")
    np.save(tmp_path / "f.npy", one_hot([0, 1, 0], 2))
    arguments = ["decode", str(tmp_path / "m.safetensors"), str(tmp_path / "f.npy")]
    assert cli.main(arguments) == 0
    assert capsys.readouterr().out.split() == ["0", "[2]"]
    assert cli.main([*arguments, "--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert (line["tokens"], line["frames"], line["text"], line["words"]) == ([2], [1], None, None)


def test_c05_an_empty_result_is_valid_json(tmp_path, capsys):
    model = quantized(script_model({}, 2, 3, vocabulary=list("abc")), one_hot([0, 1], 2))
    pkrnnt.save(model, tmp_path / "m.safetensors")
    np.save(tmp_path / "f.npy", one_hot([0, 1, 0], 2))
    assert cli.main(["decode", str(tmp_path / "m.safetensors"), str(tmp_path / "f.npy"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "utterance": 0, "tokens": [], "frames": [], "confidence": [], "text": "", "words": [],
    }  # fmt: skip


def test_decode_counts_saturation(digits, capsys):
    assert cli.main(["decode", str(digits[0]), "--saturation"]) == 0
    assert "saturated gate: " in capsys.readouterr().err


def test_max_symbols_of_the_command(digits, capsys):
    assert cli.main(["decode", str(digits[0]), "--max-symbols", "0"]) == 2
    assert "max_symbols is 0" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["decode", "inspect"])
def test_bad_files_exit_2(tmp_path, capsys, command):
    (tmp_path / "m.safetensors").write_bytes(b"nothing of the kind")
    assert cli.main([command, str(tmp_path / "m.safetensors")]) == 2
    assert "m.safetensors: not a whole safetensors file" in capsys.readouterr().err
    assert cli.main([command, str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_inspect(digits, capsys):
    assert cli.main(["inspect", str(digits[0])]) == 0
    out = capsys.readouterr().out
    for words in ("int8 model, ", "rounding           double", "float_model", "cell_scale_power"):
        assert words in out
    for name in pkrnnt.load(digits[0]).tensors():
        assert name in out


def test_inspect_as_json(digits, capsys):
    assert cli.main(["inspect", str(digits[0]), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "int8"
    assert found["quantization"]["rounding"] == "double"
    assert found["file_bytes"] == digits[0].stat().st_size
    sizes = {tensor["name"]: (tensor["dtype"], tensor["bytes"]) for tensor in found["tensors"]}
    assert sizes["joint.enc.weight"] == ("int8", 96 * 128)


def test_inspect_a_float_model(tmp_path, capsys):
    pkrnnt.save(random_float_model(0), tmp_path / "f.safetensors")
    assert cli.main(["inspect", str(tmp_path / "f.safetensors")]) == 0
    out = capsys.readouterr().out
    assert "float model" in out
    assert "rounding" not in out


def test_a_closed_pipe_keeps_the_exit_status(own):
    folder, arguments = own
    code = "import sys; from quant.__main__ import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments, "--min-agreement", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 3
    assert not (folder / "out.safetensors").exists()


def test_the_command_is_installed_and_a_closed_pipe_is_no_error(digits):
    code = "import sys; from pkrnnt.cli import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", code, "decode", str(digits[0]), "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0
