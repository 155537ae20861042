"""``pkrnnt export`` and ``pkrnnt simulate`` as a user runs them."""

import json
import sys

import numpy as np
import pytest
from conftest import DIGITS
from mcu import need_mcu
from models import one_hot, quantized, random_enc, random_float_model, script_model

import pkrnnt
from pkrnnt import rnnt_greedy
from pkrnnt.cli import main
from pkrnnt.dataset import bundled
from pkrnnt.device import verify
from pkrnnt.device.cores import load_board, load_core
from pkrnnt.device.plot import latency_png
from pkrnnt.device.simulation import Setting, decode, simulate


@pytest.fixture(scope="module")
def digits(tmp_path_factory, digits_int8):
    path = tmp_path_factory.mktemp("digits") / "digits.safetensors"
    pkrnnt.save(digits_int8, path)
    return str(path)


@pytest.fixture
def few(tmp_path, digits_utterances):
    """Frames of three utterances."""
    path = tmp_path / "few.npz"
    offsets = np.cumsum([0, *map(len, digits_utterances[:3])])
    np.savez(path, enc=np.concatenate(digits_utterances[:3]), enc_offsets=offsets)
    return str(path)


def test_export_of_the_whole_evaluation_set(tmp_path, capsys, digits):
    """The 120 bundled strings: every token, frame, confidence, h and c, built here and compared."""
    folder = tmp_path / "firmware"
    frames = str(bundled("evaluation.npz"))
    assert main(["export", digits, "-o", str(folder), "--check", frames, "--vocabulary"]) == 0
    out = capsys.readouterr().out
    assert "120 utterances: tokens, frames, confidences, h and c are the same bytes" in out
    assert "with gate table" in out
    assert "pkrnnt_vocabulary" in (folder / "pkrnnt_model.c").read_text()
    assert {path.suffix for path in folder.iterdir()} == {".c", ".h", ".md"}


def test_export_without_a_table(tmp_path, capsys, digits, few):
    assert (
        main(["export", digits, "-o", str(tmp_path / "f"), "--gate-table", "off", "--check", few]) == 0
    )
    out = capsys.readouterr().out
    assert "3 utterances" in out
    assert "without gate table" in out
    assert "109,700 bytes" in out


def test_export_writes_nothing_that_gives_other_bytes(tmp_path, capsys, monkeypatch, digits, few):
    """A runtime that is not the specification's: exit status 1, and no folder."""
    original = verify.Device

    def broken(folder, sources, *others):
        joint = sources["pkrnnt_joint.c"].replace("1895147668 +", "1895000000 +")
        assert joint != sources["pkrnnt_joint.c"]
        sources = {**sources, "pkrnnt_joint.c": joint}
        return original(folder, sources, *others)

    monkeypatch.setattr(verify, "Device", broken)
    assert main(["export", digits, "-o", str(tmp_path / "f"), "--check", few]) == 1
    out = capsys.readouterr().out
    assert "nothing written" in out
    assert "utterance 0, 1 frame(s) a call: confidences[" in out
    assert not (tmp_path / "f").exists()


def test_what_export_refuses(tmp_path, capsys, monkeypatch, digits):
    flt = str(DIGITS / "float.safetensors")
    assert main(["export", flt, "-o", str(tmp_path / "f")]) == 2
    assert "a float model, wanted an int8 one" in capsys.readouterr().err
    pkrnnt.save(quantized(random_float_model(1)), tmp_path / "plain.safetensors")
    plain = str(tmp_path / "plain.safetensors")
    assert main(["export", plain, "-o", str(tmp_path / "f"), "--vocabulary"]) == 2
    assert "the model has no vocabulary" in capsys.readouterr().err
    np.savez(tmp_path / "none.npz", enc=np.zeros((0, 4), np.float32), enc_offsets=[0, 0])
    assert main(["export", plain, "-o", str(tmp_path / "f"), "--check", str(tmp_path / "none.npz")]) == 2
    assert "none.npz holds 0 encoder frames, wanted at least 1 to check" in capsys.readouterr().err
    assert main(["export", plain, "-o", str(tmp_path / "f"), "--check"]) == 2
    assert "encoder frames have shape" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["export", plain, "-o", str(tmp_path / "file")]) == 2
    assert "file" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert main(["export", digits, "-o", str(tmp_path / "f"), "--check"]) == 2
    assert (
        "cc not found; on Debian: apt-get install --no-install-recommends gcc" in capsys.readouterr().err
    )
    monkeypatch.setenv("CC", "false")
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    assert main(["export", digits, "-o", str(tmp_path / "f"), "--check"]) == 2
    assert "false failed with status 1: it printed nothing" in capsys.readouterr().err
    assert not (tmp_path / "f").exists()


def test_simulate_table_json_and_plot(tmp_path, capsys, digits, few, digits_utterances):
    out_json, png = tmp_path / "s.json", tmp_path / "s.png"
    arguments = [
        "simulate",
        digits,
        few,
        "--core",
        "cortex-m4",
        "--core",
        "cortex-m55",
        "--clock-mhz",
        "64",
    ]
    arguments += ["--weights", "flash", "--json", str(out_json), "--plot", str(png), "--utterance", "2"]
    assert main([*arguments, "--sources"]) == 0
    out = capsys.readouterr().out
    for shown in (
        "cortex-m4", "nrf52840", "64 MHz", "latency a frame, p99", "share of the frame",
        "times faster than real time", "frames that miss the deadline", "state, scratch, stack",
        "latency of 10 tokens on a frame",
        "weights read a second", "energy a second of audio", "saturated gates",
        "cortex-m4: cycles of load 1 to 2.2: Arm DDI 0439D", "ASSUMED",
    ):  # fmt: skip
        assert shown in out
    assert "DOES NOT FIT" not in out
    values = json.loads(out_json.read_text())
    first, second = values["simulations"]
    assert (first["core"], second["core"]) == ("cortex-m4", "cortex-m55")
    frames = sum(map(len, digits_utterances[:3]))
    assert first["frames"] == frames == len(first["by_frame"]["tokens"])
    assert first["frame_ms"] == 40
    assert first["work"] == second["work"]
    assert first["cycles"][0] <= first["cycles"][1]
    assert sum(first["by_frame"]["instructions"]) == pytest.approx(first["instructions"], rel=1e-3)
    assert 0 < first["real_time_factor"][0] < first["real_time_factor"][1] < 0.1
    assert values["sources"]
    assert png.read_bytes().startswith(b"\x89PNG")


def test_a_plot_of_any_pieces():
    """Mathematics in TeX, half a surrogate pair, a space: drawn as they are."""
    pieces = ["$", "\\frac", "$", "\ud800", " "]
    rules = {(kind, last): kind for kind in range(5) for last in range(-1, 5) if kind != last}
    float_model = script_model(rules, 5, 5, max_symbols=1, frame_seconds=0.04, vocabulary=pieces)
    enc = one_hot([0, 1, 2, 3, 4, 0, 1], 5)
    model = quantized(float_model, enc)
    where = Setting(load_core("cortex-m4"), load_board("nrf52840"), 64, "flash", True, 0.04)
    found = simulate(model, decode(model, [enc, enc[:0]]), where)
    assert found.hyps[0].tokens == [0, 1, 2, 3, 4, 0, 1]
    assert latency_png(found, model.config, 0).startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="utterance 1 has 0 frames, wanted at least 1 to draw"):
        latency_png(found, model.config, 1)


def test_simulate_compares_models_and_tables(
    tmp_path, capsys, digits, few, digits_int8, digits_utterances
):
    other = tmp_path / "other.safetensors"
    pkrnnt.save(digits_int8, other)
    out_json = tmp_path / "c.json"
    arguments = [
        "simulate",
        digits,
        few,
        "--core",
        "cortex-m4",
        "--compare",
        str(other),
        "--json",
        str(out_json),
    ]
    assert main([*arguments, "--float", str(DIGITS / "float.safetensors")]) == 0
    out = capsys.readouterr().out
    assert "utterances with the tokens of float" in out
    columns = json.loads(out_json.read_text())["simulations"]
    assert [(c["label"], c["gate_table"]) for c in columns] == [
        ("digits", True), ("digits", False), ("other", True), ("other", False)
    ]  # fmt: skip
    float_model = pkrnnt.load(DIGITS / "float.safetensors")
    pairs = [(rnnt_greedy(float_model, e), rnnt_greedy(digits_int8, e)) for e in digits_utterances[:3]]
    same = sum((a.tokens, a.frames) == (b.tokens, b.frames) for a, b in pairs)
    for column in columns:
        assert column["agreement"] == {"named": "float", "tokens": 3, "frames": same}
    with_table, without = columns[:2]
    assert sum(with_table["flash_bytes"].values()) < sum(without["flash_bytes"].values())
    assert with_table["instructions"] < without["instructions"]
    assert with_table["ram_bytes"] == without["ram_bytes"]
    assert (
        main(["simulate", digits, few, "--core", "cortex-m4", "--gate-table", "off", "--compare"]) == 0
    )
    assert capsys.readouterr().out.count("cortex-m4") == 1
    assert main(["simulate", digits, few, "--core", "cortex-m4", "--compare"]) == 0
    assert "utterances with the tokens of the first column" in capsys.readouterr().out


def test_simulate_emulates(capsys, digits, few, tmp_path):
    need_mcu()
    out_json = tmp_path / "e.json"
    arguments = ["simulate", digits, few, "--core", "cortex-m4", "--emulate", "--json", str(out_json)]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "the same as here" in out
    assert "mps2-an386" in out
    [one] = json.loads(out_json.read_text())["simulations"]
    assert one["emulated"]["differences"] == []
    assert one["instructions"] == pytest.approx(one["emulated"]["instructions"], rel=0.05)


def test_frames_may_stand_behind_options(capsys, digits, few):
    assert main(["simulate", "--core", "cortex-m4", digits, few]) == 0
    first = capsys.readouterr().out
    assert main(["simulate", digits, "--core", "cortex-m4", few]) == 0
    assert capsys.readouterr().out == first
    assert main(["decode", digits, "--json", few]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    for wrong in (["simulate", digits, few, "--core", "cortex-m4", few], ["inspect", digits, few]):
        with pytest.raises(SystemExit) as stopped:
            main(wrong)
        assert stopped.value.code == 2
        assert "unrecognized arguments" in capsys.readouterr().err


def test_simulate_says_when_a_device_differs(capsys, monkeypatch, digits, few):
    monkeypatch.setattr(verify, "differences", lambda *_: ["tokens[0] is 1 on the device, wanted 2"])
    need_mcu()
    assert main(["simulate", digits, few, "--core", "cortex-m4", "--emulate"]) == 1
    out = capsys.readouterr().out
    assert "DIFFERENT" in out
    assert "mps2-an386: utterance 2: tokens[0] is 1 on the device, wanted 2" in out


def test_a_model_that_does_not_fit_says_so(tmp_path, capsys):
    model = quantized(random_float_model(1, hidden=150, joint=150, vocab=120))
    pkrnnt.save(model, tmp_path / "big.safetensors")
    np.save(tmp_path / "f.npy", random_enc(model, 3))
    arguments = [
        "simulate",
        str(tmp_path / "big.safetensors"),
        str(tmp_path / "f.npy"),
        "--core",
        "cortex-m3",
    ]
    assert main(arguments) == 2
    assert "does not say how long a frame is, wanted --frame-ms" in capsys.readouterr().err
    assert main([*arguments, "--frame-ms", "80"]) == 1
    out = capsys.readouterr().out
    assert "DOES NOT FIT" in out
    assert "stm32f103 has 131072" in out


def test_what_simulate_refuses(tmp_path, capsys, monkeypatch, digits, few):
    cases = {
        ("--core", "cortex-m1"): "core is 'cortex-m1', wanted one of",
        ("--core", "cortex-m4", "--board", "x"): "board is 'x', wanted one of",
        ("--core", "cortex-m4", "--weights", "tape"): "wanted one of the memories",
        ("--core", "cortex-m4", "--clock-mhz", "0"): "--clock-mhz is 0, wanted a finite number above 0",
        ("--core", "cortex-m4", "--frame-ms", "-1"): "--frame-ms is -1, wanted",
        (
            "--core",
            "cortex-m4",
            "--plot",
            str(tmp_path / "p.png"),
            "--utterance",
            "3",
        ): "utterance is 3, wanted 0..2",
        ("--core", str(tmp_path / "no.toml")): "no.toml",
    }
    for arguments, message in cases.items():
        assert main(["simulate", digits, few, *arguments, "--json", str(tmp_path / "x.json")]) == 2
        assert message in capsys.readouterr().err
    lost = str(tmp_path / "nowhere" / "x.json")
    assert main(["simulate", digits, few, "--core", "cortex-m4", "--json", lost]) == 2
    assert "x.json: the folder" in capsys.readouterr().err
    same = str(tmp_path / "same")
    assert main(["simulate", digits, few, "--core", "cortex-m4", "--json", same, "--plot", same]) == 2
    assert "--json and --plot are both" in capsys.readouterr().err
    assert main(["simulate", digits, few, "--core", "cortex-m4", "--float", digits]) == 2
    assert "digits.safetensors: an int8 model, wanted a float one" in capsys.readouterr().err
    pkrnnt.save(random_float_model(1), tmp_path / "narrow.safetensors")
    narrow = str(tmp_path / "narrow.safetensors")
    assert main(["simulate", digits, few, "--core", "cortex-m4", "--float", narrow]) == 2
    assert "narrow.safetensors: takes frames of 4 values, wanted 128" in capsys.readouterr().err
    (tmp_path / "narrow.safetensors").unlink()
    assert main(["simulate", str(DIGITS / "float.safetensors"), few, "--core", "cortex-m4"]) == 2
    assert "a float model, wanted an int8 one" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    plot = ["--plot", str(tmp_path / "p.png")]
    assert main(["simulate", digits, few, "--core", "cortex-m4", *plot]) == 2
    assert 'pip install "pkrnnt[plot]"' in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["simulate", digits, few, "--core", "cortex-m4", "--emulate"]) == 2
    assert "apt-get install --no-install-recommends gcc-arm-none-eabi" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["few.npz"]
