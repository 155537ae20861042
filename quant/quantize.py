"""From a float model and observed ranges to an int8 model: scales, weights, biases, multipliers.

Floating point ends here: every integer that comes out is stored, and never recomputed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pkrnnt.kernels.linear import Linear as LinearInt8
from pkrnnt.model import (
    GATE_SCALE,
    JOINT_ENC,
    JOINT_OUT,
    JOINT_PRED,
    LSTM,
    FloatModel,
    Int8Model,
    JointS8,
    LstmS8,
    MultiplierShift,
    Quantization,
)
from pkrnnt.reference import Linear
from quant.ranges import Interval, Ranges
from quant.rounding import InputMoments, round_nearest, round_second_order

GRANULARITIES = ("row", "gate")

# A bias alone stays below this many quanta; the row's scale is widened where it would not.
BIAS_LIMIT = 2**29
# The least scale of an int8 tensor, in steps of the 16-bit tensor it is requantized from.
FINEST_STEP = 2.0**-14
# Gates saturate at +-8: a bias beyond this only costs accumulator bits.
LARGEST_GATE_BIAS = 2.0**16
# An interval narrower than this is taken for nothing but zero.
TINY = 1e-30
# The finest step of a logit: the integer softmax needs s_L * 2^26 >= 1, with room.
FINEST_LOGIT = 2.0**-24
# Cells and joint sums keep a factor of two above what calibration showed: one bit of sixteen.
HEADROOM = 2.0


def quantize_multiplier(real: float) -> MultiplierShift:
    """QM of docs/fixed_point.md: (multiplier, shift) with real = multiplier * 2**(shift - 31).

    Raises:
        ValueError: negative, not finite, or too large for a shift of 30.
    """
    if not 0 <= real < math.inf:
        raise ValueError(f"factor is {real}, wanted finite and not negative")
    mantissa, shift = math.frexp(real)
    multiplier = math.floor(mantissa * 2**31 + 0.5)  # half away from zero; never negative
    if multiplier == 2**31:
        multiplier, shift = 2**30, shift + 1
    if shift > 31:
        raise ValueError(f"factor is {real}, wanted less than 2^31")
    if real == 0 or shift < -31:
        return 0, 0
    return multiplier, shift


def affine(interval: Interval, finest: float = 0.0) -> tuple[float, int]:
    """(scale, zero point) of an int8 tensor over an interval, widened to hold zero exactly.

    ``finest`` is the least scale that a multiplier can still reach.
    """
    low, high = min(interval[0], 0.0), max(interval[1], 0.0)
    if high - low < TINY:
        return 1.0, 0
    exact = -128 - 255 * low / (high - low)

    def needed(zero_point: int) -> float:
        """The scale at which both ends fit; infinite where an end has no step on its side."""
        above, below = 127 - zero_point, zero_point + 128
        return max(
            high / above if above else math.inf if high else 0.0,
            -low / below if below else math.inf if low else 0.0,
        )

    around = (min(max(rounded, -128), 127) for rounded in (math.floor(exact), math.ceil(exact)))
    zero_point = min(around, key=needed)
    return max(needed(zero_point), finest), zero_point


def weight_scale(
    linear: Linear, input_scale: float, output_scale: float, rows_per_scale: int = 1
) -> NDArray[np.float64]:
    """Scale of each weight row, float64 [rows]: the largest weight at 127, but wide enough for the bias.

    A row of zeros, or of weights so small that they cannot matter, gets a scale that is still
    finite, positive and within a multiplier's reach.
    """
    largest = np.abs(linear.weight.astype(np.float64)).max(axis=1) / 127
    bias = np.abs(linear.bias.astype(np.float64)) / (input_scale * BIAS_LIMIT)
    reach = output_scale * 2.0**-30 / input_scale
    scale = np.maximum(np.maximum(largest, bias), reach)
    shared = scale.reshape(-1, rows_per_scale).max(axis=1)
    return np.repeat(shared, rows_per_scale)


def linear_s8(
    name: str,
    linear: Linear,
    scale: NDArray[np.float64],
    input: tuple[float, int],
    output_scale: float,
    moments: InputMoments | None = None,
) -> LinearInt8:
    """int8 weights, effective int32 biases and multipliers of one matrix.

    Args:
        name: for messages.
        linear: float weights [rows, cols] and biases [rows].
        scale: weight scale of each row.
        input: (scale, zero point) of the int8 input.
        output_scale: of the requantized output.
        moments: of the input, for second-order rounding; None rounds to the nearest.

    Raises:
        ValueError: an effective bias beyond int32.
    """
    input_scale, input_zero_point = input
    if moments is None:
        weight, real_bias = round_nearest(linear.weight, linear.bias, scale)
    else:
        weight, real_bias = round_second_order(linear.weight, linear.bias, scale, moments)
    bias = np.rint(real_bias / (input_scale * scale))
    bias -= input_zero_point * weight.astype(np.int64).sum(axis=1)
    if (np.abs(bias) >= 2**31).any():
        row = int(np.argmax(np.abs(bias)))
        raise ValueError(f"{name} row {row}: effective bias is {bias[row]:.0f}, wanted within int32")
    try:
        pairs = [quantize_multiplier(factor) for factor in input_scale * scale / output_scale]
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    multiplier, shift = zip(*pairs, strict=True)
    return LinearInt8(weight, bias.astype(np.int32), multiplier, shift)


def _power_of_two(largest: float, low: int, high: int) -> int:
    """The least exponent in low..high at which int16 holds ``largest``."""
    needed = math.ceil(math.log2(largest / 32767)) if largest > 0 else low
    return min(max(needed, low), high)


def _lstm(
    model: FloatModel,
    ranges: Ranges,
    granularity: str,
    embed_scale: float,
    moments: Mapping[str, InputMoments],
) -> tuple[tuple[tuple[LinearInt8, LinearInt8], ...], tuple[LstmS8, ...], tuple[float, int]]:
    """Matrices and scalars of every layer, and (scale, zero point) of the last one's h."""
    rows_per_scale = model.config.pred_hidden if granularity == "gate" else 1
    matrices, scalars = [], []
    x = (embed_scale, 0)
    for layer, weights in enumerate(model.lstm):
        h = affine(ranges.hidden[layer], 2.0**-15 * FINEST_STEP)
        pair = []
        for suffix, linear, operand in (("ih", weights.input, x), ("hh", weights.hidden, h)):
            name = f"{LSTM}.weight_{suffix}_l{layer}"
            bias = np.clip(linear.bias, -LARGEST_GATE_BIAS, LARGEST_GATE_BIAS)
            linear = Linear(linear.weight, bias)
            scale = weight_scale(linear, operand[0], GATE_SCALE, rows_per_scale)
            pair.append(linear_s8(name, linear, scale, operand, GATE_SCALE, moments.get(name)))
        matrices.append((pair[0], pair[1]))
        power = _power_of_two(HEADROOM * ranges.cell[layer], -16, -8)
        scalars.append(
            LstmS8(
                hidden_scale=h[0],
                hidden_zero_point=h[1],
                cell_scale_power=power,
                cell_clip=0,
                forget_to_cell=quantize_multiplier(2.0**-15),
                input_to_cell=quantize_multiplier(2.0**-30 / 2.0**power),
                output=quantize_multiplier(2.0**-30 / h[0]),
            )
        )
        x = h
    return tuple(matrices), tuple(scalars), x


def quantize_model(
    model: FloatModel,
    ranges: Ranges,
    *,
    granularity: str = "row",
    moments: Mapping[str, InputMoments] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Int8Model:
    """The int8 model of a float model.

    Args:
        model: the trained decoder.
        ranges: of its activations, see ``calibration.observe``.
        granularity: ``"row"``, one scale per weight row; ``"gate"``, one per LSTM gate, so that
            CMSIS-NN's own LSTM can take the model.
        moments: of each matrix's input by weight name, for second-order rounding; a matrix without
            them is rounded to the nearest.
        provenance: JSON values to store with the model.

    Raises:
        ValueError: an unknown granularity, or weights so large that an accumulator could leave int32.
    """
    if granularity not in GRANULARITIES:
        raise ValueError(f"granularity is {granularity!r}, wanted one of {GRANULARITIES}")
    config, moments = model.config, moments or {}
    # Blank's row is never fed to the network: it must not stretch the scale.
    used = np.delete(model.embed, np.s_[config.blank_id : config.blank_id + 1], axis=0)
    embed_scale = float(np.abs(used).max(initial=0.0)) / 127 or 1.0
    embed = np.clip(np.rint(model.embed / np.float64(embed_scale)), -127, 127).astype(np.int8)
    lstm, lstm_scalars, h = _lstm(model, ranges, granularity, embed_scale, moments)

    inverse_scale = float(np.float32(1 / affine(ranges.enc)[0]))
    enc = (1 / inverse_scale, affine(ranges.enc)[1])
    if config.joint_activation == "relu":
        left_shift = 0
        sum_scale = HEADROOM * (ranges.joint_sum or 1.0) / 32767
        activated = sum_scale
    else:
        left_shift = _power_of_two(HEADROOM * ranges.joint_sum, -16, -8) + 12
        sum_scale = 2.0 ** (left_shift - 12)
        activated = 2.0**-15
    hidden = affine(ranges.joint_hidden, activated * FINEST_STEP)
    out_scale = np.maximum(
        weight_scale(model.joint_out, hidden[0], FINEST_LOGIT), FINEST_LOGIT / hidden[0]
    )
    # A hair above the largest row, so that no row needs a shift to the left.
    logit_scale = float(out_scale.max()) * hidden[0] * (1 + 2.0**-24)
    softmax = quantize_multiplier(min(logit_scale * 2**26, 2**31 - 1))

    def joint(
        name: str,
        linear: Linear,
        operand: tuple[float, int],
        output_scale: float,
        scale: NDArray[np.float64] | None = None,
    ) -> LinearInt8:
        if scale is None:
            scale = weight_scale(linear, operand[0], output_scale)
        return linear_s8(name, linear, scale, operand, output_scale, moments.get(f"{name}.weight"))

    return Int8Model(
        config=config,
        quantization=Quantization(
            granularity=granularity,
            embed_scale=embed_scale,
            lstm=lstm_scalars,
            joint=JointS8(
                enc_scale=enc[0],
                enc_inverse_scale=inverse_scale,
                enc_zero_point=enc[1],
                sum_scale=sum_scale,
                activation_left_shift=left_shift,
                hidden=quantize_multiplier(activated / hidden[0]),
                hidden_scale=hidden[0],
                hidden_zero_point=hidden[1],
                logit_scale=logit_scale,
                softmax=(*softmax, -((31 * 2**26) >> softmax[1])),
            ),
        ),
        embed=embed,
        lstm=lstm,
        joint_enc=joint(JOINT_ENC, model.joint_enc, enc, sum_scale),
        joint_pred=joint(JOINT_PRED, model.joint_pred, h, sum_scale),
        joint_out=joint(JOINT_OUT, model.joint_out, hidden, logit_scale, out_scale),
        provenance=provenance or {},
    )
