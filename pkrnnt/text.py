"""From token ids to text, and to words with their times."""

from __future__ import annotations

from typing import NamedTuple

from pkrnnt.hypothesis import Hypothesis
from pkrnnt.model import Config

WORD_START = "\u2581"  # SentencePiece's mark for a leading space


class Word(NamedTuple):
    """One word of a hypothesis."""

    text: str
    first_frame: int
    last_frame: int
    confidence: float
    """the least confidence of its tokens"""


def pieces(config: Config, tokens: list[int]) -> list[str]:
    """Vocabulary pieces of token ids.

    Control tokens, written in angle brackets (``<EOU>``), have no text: their piece is empty.

    Raises:
        ValueError: the model has no vocabulary.
    """
    if config.vocabulary is None:
        raise ValueError("the model has no vocabulary, so tokens have no text")
    named = (config.vocabulary[token - (token > config.blank_id)] for token in tokens)
    return ["" if len(piece) > 2 and piece[0] == "<" and piece[-1] == ">" else piece for piece in named]


def text(config: Config, tokens: list[int]) -> str:
    """Text of token ids; raises ValueError as ``pieces``."""
    return "".join(pieces(config, tokens)).replace(WORD_START, " ").strip()


def words(config: Config, hyp: Hypothesis) -> list[Word]:
    """Words with the frames of their first and last tokens; raises ValueError as ``pieces``."""
    found: list[Word] = []
    current: Word | None = None
    for piece, token in zip(pieces(config, hyp.tokens), hyp, strict=True):
        shown = piece.replace(WORD_START, " ")
        if shown.startswith(" "):
            current = None
        shown = shown.strip()
        if not shown:
            continue
        if current is None:
            current = Word(shown, token.frame, token.frame, token.confidence)
            found.append(current)
        else:
            current = Word(
                current.text + shown,
                current.first_frame,
                token.frame,
                min(current.confidence, token.confidence),
            )
            found[-1] = current
    return found
