"""Makes the bundled model and frames from the full set: python examples/digits/make.py FULL_FOLDER.

The choice is fixed: the first 14 calibration and the first 20 evaluation strings of each speaker.
"""

import json
import sys
from pathlib import Path

import numpy as np

import pkrnnt

HERE = Path(__file__).parent


def select(path, per_speaker):
    """The first utterances of each speaker, in the order of the full set."""
    with np.load(path) as data:
        enc, offsets, speaker = data["enc"], data["enc_offsets"], data["speaker"]
        chosen = np.sort(
            np.concatenate([np.flatnonzero(speaker == s)[:per_speaker] for s in np.unique(speaker)])
        )
        parts = [enc[offsets[i] : offsets[i + 1]] for i in chosen]
        return {
            "enc": np.concatenate(parts),
            "enc_offsets": np.cumsum([0, *map(len, parts)]).astype(np.int32),
            "ref_text": data["ref_text"][chosen],
        }


def main(full):
    config = json.loads((full / "config.json").read_text())
    with np.load(full / "model_float.npz") as data:
        model = pkrnnt.FloatModel.from_tensors(
            dict(data),
            vocabulary=config["vocabulary"],
            blank_id=config["blank_id"],
            joint_activation=config["joint_activation"],
            max_symbols=config["max_symbols"],
            frame_seconds=config["frame_sec"],
        )
    pkrnnt.save(model, HERE / "float.safetensors")
    np.savez_compressed(HERE / "calibration.npz", **select(full / "calib_enc.npz", 14))
    np.savez_compressed(HERE / "evaluation.npz", **select(full / "eval_enc.npz", 20))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
