"""Files of encoder frames, and the bundled ones."""

import numpy as np
import pytest

from pkrnnt import FormatError
from pkrnnt.dataset import bundled, load_utterances

FRAMES = np.arange(12, dtype=np.float32).reshape(6, 2)


def test_one_utterance(tmp_path):
    np.save(tmp_path / "one.npy", FRAMES)
    found = load_utterances(tmp_path / "one.npy", 2)
    assert (len(found), found.frames, found.references) == (1, 6, None)
    np.testing.assert_array_equal(found.enc[0], FRAMES)


def test_several_utterances_with_references(tmp_path):
    np.savez(tmp_path / "many.npz", enc=FRAMES, enc_offsets=[0, 2, 2, 6], ref_text=["a", "", "b c"])
    found = load_utterances(tmp_path / "many.npz", 2)
    assert [len(enc) for enc in found] == [2, 0, 4]
    assert found.references == ["a", "", "b c"]


def test_no_frames_at_all(tmp_path):
    np.save(tmp_path / "none.npy", FRAMES[:0])
    assert load_utterances(tmp_path / "none.npy", 2).frames == 0


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"frames": FRAMES}, r"holds \['frames'\], wanted an array named 'enc'"),
        ({"enc": FRAMES, "enc_offsets": [0, 5]}, "enc_offsets must be integers"),
        ({"enc": FRAMES, "enc_offsets": [1, 6]}, "enc_offsets must be integers"),
        ({"enc": FRAMES, "enc_offsets": [0, 4, 3, 6]}, "enc_offsets must be integers"),
        ({"enc": FRAMES, "enc_offsets": [0.0, 6.0]}, "enc_offsets must be integers"),
        ({"enc": FRAMES, "enc_offsets": [0, 6], "ref_text": ["a", "b"]}, "ref_text has shape"),
        ({"enc": FRAMES.T}, "utterance 0: .*channel first"),
        ({"enc": np.float32(1)}, "wanted two dimensions"),
        ({"enc": FRAMES[:, 0]}, "wanted two dimensions"),
        ({"enc": FRAMES.astype(int)}, "dtype int64"),
        (
            {"enc": np.where(FRAMES == 9, np.nan, FRAMES), "enc_offsets": [0, 3, 6]},
            "utterance 1: encoder frame 1 holds nan in column 1",
        ),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(FormatError, match=rf"bad\.npz: .*{message}"):
        load_utterances(tmp_path / "bad.npz", 2)


def test_files_of_another_kind_are_refused(tmp_path):
    path = tmp_path / "bad.npz"
    np.savez_compressed(path, enc=FRAMES)
    whole = path.read_bytes()
    for data in (b"", b"hello", b"PK\x03\x04", whole[:-30], whole[:100]):
        path.write_bytes(data)
        with pytest.raises(FormatError, match="not a whole"):
            load_utterances(path, 2)
    np.save(tmp_path / "pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(FormatError, match="without pickled objects"):
        load_utterances(tmp_path / "pickle.npy", 2)
    with pytest.raises(FileNotFoundError):
        load_utterances(tmp_path / "nowhere.npy", 2)


def test_bundled_files():
    assert load_utterances(bundled("calibration.npz"), 128).frames > 5000
    evaluation = load_utterances(bundled("evaluation.npz"), 128)
    assert len(evaluation) == len(evaluation.references) == 120
    with pytest.raises(FileNotFoundError, match="bundled file nothing"):
        bundled("nothing")
