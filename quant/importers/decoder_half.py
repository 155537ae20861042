"""The decoder half of a whole recogniser: which tensors it is, and why some models are refused."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pkrnnt import FloatModel, FormatError

log = logging.getLogger("quant.importers")

PREDICTION, JOINT = "decoder.prediction.", "joint."

REFUSALS = (
    (".weight_hr", "LSTM with projection (proj_size): pkrnnt decodes plain LSTMs"),
    ("prediction.embeds.", "stateless prediction network (embedding + convolution), not an LSTM"),
    ("prediction.convs.", "stateless prediction network (embedding + convolution), not an LSTM"),
    ("dec_rnn.layers.", "LSTM with layer normalization inside: pkrnnt decodes plain LSTMs"),
    ("layer_norm", "LSTM with layer normalization inside: pkrnnt decodes plain LSTMs"),
)


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns whatever a parser meets in a damaged file into a ``FormatError`` that names the file."""
    try:
        yield
    except FormatError as error:
        name = os.fspath(path)
        raise FormatError(str(error) if name in str(error) else f"{name}: {error}") from None
    except (ImportError, KeyboardInterrupt):
        raise
    except Exception as error:  # parsers of other people's formats raise all kinds
        raise FormatError(f"{os.fspath(path)}: {type(error).__name__}: {error}") from None


def select(names: Iterable[str]) -> list[str]:
    """Names of the prediction network's and the joint's tensors among a recogniser's.

    Raises:
        FormatError: there is no RNN-T decoder with an LSTM, with the reason.
    """
    everything = list(names)
    chosen = [name for name in everything if name.startswith((PREDICTION, JOINT))]
    for part, reason in REFUSALS:
        found = next((name for name in chosen if part in name), None)
        if found is not None:
            raise FormatError(f"{reason} (tensor {found})")
    has_ctc = any(n.startswith(("ctc_decoder.", "decoder.decoder_layers.")) for n in everything)
    if not any(name.startswith(PREDICTION) for name in chosen):
        reason = (
            "a CTC model: it has no prediction network and no joint"
            if has_ctc
            else f"no tensors named {PREDICTION}*, so no prediction network; found "
            f"{sorted(everything)[:4]}..."
        )
        raise FormatError(reason)
    if has_ctc:
        log.warning("hybrid model: the transducer half is taken, the CTC head is ignored")
    return chosen


def check_rows(rows: int, vocab_size: int, durations: int = 0) -> None:
    """The joint has one output row a token and one for blank; anything else is another model.

    Raises:
        FormatError: with both numbers, and what the extra rows look like.
    """
    if durations:
        raise FormatError(
            f"a TDT model: the joint has {rows} output rows, {durations} of them durations; "
            f"pkrnnt decodes RNN-T models, with {vocab_size + 1} rows for {vocab_size} tokens"
        )
    if rows != vocab_size + 1:
        extra = rows - vocab_size - 1
        hint = ""
        if extra > 0:
            hint = f"; {extra} rows too many, as a TDT model has for durations or a multi-blank one"
        raise FormatError(
            f"the joint has {rows} output rows and the vocabulary {vocab_size} entries, "
            f"wanted {vocab_size + 1} rows: one a token and one for blank{hint}"
        )


def check_sizes(model: FloatModel, stated: Mapping[str, Any]) -> FloatModel:
    """The model, if the sizes its file states are those of its tensors; None is not stated."""
    for name, value in stated.items():
        found = getattr(model.config, name)
        if value is not None and value != found:
            # Nested values may be exponentially long to show.
            shown = value if isinstance(value, int) else f"a {type(value).__name__}"
            raise FormatError(f"the file's config says {name} is {shown}, its tensors have {found}")
    return model
