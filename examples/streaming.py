"""Decodes a bundled utterance as a stream, 160 ms at a time: python examples/streaming.py MODEL."""

import sys

import pkrnnt
from pkrnnt.dataset import bundled, load_utterances
from pkrnnt.text import text


def main(path):
    model = pkrnnt.load(path)
    enc = load_utterances(bundled("evaluation.npz"), model.config.enc_hidden).enc[0]
    state = pkrnnt.rnnt_decode_init(model)
    for start in range(0, len(enc), 4):
        new = pkrnnt.rnnt_decode_frames(model, enc[start : start + 4], state)
        if new.tokens:
            seconds = start * model.config.frame_seconds
            print(f"{seconds:5.2f} s  {text(model.config, state.hyp.tokens)}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
