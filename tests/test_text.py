"""From tokens to text and words."""

import pytest
from models import random_float_model

from pkrnnt import Config, Hypothesis
from pkrnnt.text import Word, pieces, text, words

SIZES = {
    "pred_hidden": 1, "pred_layers": 1, "embed_dim": 1, "joint_hidden": 1, "enc_hidden": 1,
    "joint_activation": "relu",
}  # fmt: skip


def config(vocabulary, blank_id=None):
    size = len(vocabulary)
    return Config(
        vocab_size=size,
        blank_id=size if blank_id is None else blank_id,
        vocabulary=vocabulary,
        **SIZES,
    )


SENTENCE_PIECES = config(["\u2581go", "od", "\u2581day", "<EOU>", "\u2581"])


def test_characters():
    assert text(config([" ", "a", "b"]), [0, 1, 2, 0, 1]) == "ab a"


def test_sentence_pieces():
    assert text(SENTENCE_PIECES, [0, 1, 2]) == "good day"


def test_b07_control_tokens_have_no_text():
    assert text(SENTENCE_PIECES, [0, 1, 3, 2]) == "good day"
    assert pieces(SENTENCE_PIECES, [3]) == [""]


def test_a12_pieces_skip_blank_wherever_it_stands():
    assert text(config(["a", "b", "c"], blank_id=0), [1, 2, 3]) == "abc"
    assert text(config(["a", "b", "c"], blank_id=1), [0, 2, 3]) == "abc"


def test_words_have_frames_and_their_least_confidence():
    hyp = Hypothesis([0, 1, 3, 2, 4], [3, 5, 6, 9, 11], [0.9, 0.5, 0.1, 0.7, 0.2])
    assert words(SENTENCE_PIECES, hyp) == [Word("good", 3, 5, 0.5), Word("day", 9, 9, 0.7)]


def test_c05_no_tokens_no_words():
    assert words(SENTENCE_PIECES, Hypothesis()) == []
    assert text(SENTENCE_PIECES, []) == ""


def test_without_a_vocabulary_there_is_no_text():
    with pytest.raises(ValueError, match="no vocabulary"):
        text(random_float_model(0).config, [1])
