"""A picture of a simulation: latency over the frames of an utterance, with its tokens."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np

from pkrnnt.device.simulation import Simulation
from pkrnnt.model import Config
from pkrnnt.text import pieces


def check_plot(lengths: Sequence[int], utterance: int) -> None:
    """Finds out early whether there will be a picture.

    Args:
        lengths: frames of each utterance.
        utterance: the one to draw.

    Raises:
        ValueError: no such utterance, one without frames, or matplotlib is not installed.
    """
    if not 0 <= utterance < len(lengths):
        raise ValueError(f"utterance is {utterance}, wanted 0..{len(lengths) - 1}")
    if not lengths[utterance]:
        raise ValueError(f"utterance {utterance} has 0 frames, wanted at least 1 to draw")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ValueError(f'a plot needs matplotlib ({error}): pip install "pkrnnt[plot]"') from None


def latency_png(simulation: Simulation, config: Config, utterance: int) -> bytes:
    """A PNG of the milliseconds that each frame of an utterance takes, and of the tokens it gives.

    Raises:
        ValueError: as ``check_plot``.
    """
    check_plot(simulation.lengths, utterance)
    from matplotlib.figure import Figure

    setting = simulation.setting
    start = sum(simulation.lengths[:utterance])
    part = slice(start, start + simulation.lengths[utterance])
    low, high = (values[part] for values in simulation.latency_ms())
    frames = np.arange(len(low))
    figure = Figure(figsize=(11, 4), layout="constrained")
    axes = figure.subplots()
    axes.bar(frames, high - low, bottom=low, width=0.8, color="#4477aa", label="low to high")
    limit = setting.frame_seconds * 1e3
    if high.max() > limit / 20:
        axes.axhline(limit, color="#cc3311", label=f"the frame lasts {limit:g} ms")
    hyp = simulation.hyps[utterance]
    shown = pieces(config, hyp.tokens) if config.vocabulary is not None else [str(t) for t in hyp.tokens]
    on_frame: dict[int, list[str]] = {}
    for frame, piece in zip(hyp.frames, shown, strict=True):
        drawn = piece.encode(errors="replace").decode()  # half a surrogate pair has no glyph
        on_frame.setdefault(frame, []).append(drawn if drawn.strip() else "\u2423")
    for frame, found in on_frame.items():
        axes.annotate(
            "".join(found),
            (frame, high[frame]),
            (0, 3),
            textcoords="offset points",
            ha="center",
            size=8,
            parse_math=False,
        )
    axes.set_xlabel(f"encoder frame of utterance {utterance} ({limit:g} ms each)")
    axes.set_ylabel("ms")
    axes.set_ylim(0, None)
    axes.margins(x=0.01, y=0.1)
    axes.set_title(
        f"Decoding on {setting.core.name} ({setting.board.name}) at {setting.clock_mhz:g} MHz, "
        f"weights in {setting.weights}",
        parse_math=False,
    )
    figure.legend(loc="outside lower right", ncols=2)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=110, metadata={"Software": None})
    return out.getvalue()
