"""Integer primitives of the decoder on whole arrays, bit-exact with Arm CMSIS-NN 99f736a.

The kernels use the scalar functions of ``fixed_point.pxd``; these wrappers exist so that a port
of the arithmetic (or a test) can compare itself with them value by value.
"""

from libc.stdint cimport int16_t, int32_t

import numpy as np

ACTIVATION_KINDS = {"sigmoid": SIGMOID, "tanh": TANH}


def _integers(low, high, **arrays):
    """The arrays broadcast together as flat int32, refused outside [low, high]; and their shape."""
    given = [np.asarray(a) for a in arrays.values()]
    for (name, _), array, least, most in zip(arrays.items(), given, low, high, strict=True):
        fits = array.dtype.kind in "iu" and (
            not array.size or (least <= array.min() and array.max() <= most))
        if not fits:
            raise ValueError(f"{name} holds {array.dtype} values beyond {least}..{most}")
    flat = [np.ascontiguousarray(a, dtype=np.int32).reshape(-1) for a in np.broadcast_arrays(*given)]
    return flat, np.broadcast_shapes(*(a.shape for a in given))


LOWEST, HIGHEST = -2**31, 2**31 - 1


def requantize(values, multiplier, shift):
    """R(v, m, s) of docs/fixed_point.md section 1, CMSIS-NN's default (double) rounding.

    Args:
        values, multiplier, shift: int32 arrays or ints, broadcast together. ``multiplier`` is a
            Q31 mantissa, ``shift`` -31..30 (> 0 shifts left, and then ``values << shift`` must
            fit int32).

    Returns:
        int32 array of ``values * multiplier * 2**(shift - 31)``, rounded.

    Raises:
        ValueError: a value outside its range, here and below.
    """
    (v, m, s), shape = _integers((LOWEST, LOWEST, -31), (HIGHEST, HIGHEST, 31),
                                 values=values, multiplier=multiplier, shift=shift)
    cdef const int32_t[::1] v_view = v, m_view = m, s_view = s
    out = np.empty(len(v), np.int32)
    cdef int32_t[::1] out_view = out
    cdef Py_ssize_t i
    for i in range(v_view.shape[0]):
        out_view[i] = requantize_s32(v_view[i], m_view[i], s_view[i])
    return out.reshape(shape)


def high_mult(a, b):
    """dhm(a, b) = (a * b + 2**30) >> 31 of int32 arrays; ties towards +infinity."""
    (x, y), shape = _integers((LOWEST,) * 2, (HIGHEST,) * 2, a=a, b=b)
    cdef const int32_t[::1] x_view = x, y_view = y
    out = np.empty(len(x), np.int32)
    cdef int32_t[::1] out_view = out
    cdef Py_ssize_t i
    for i in range(x_view.shape[0]):
        out_view[i] = doubling_high_mult(x_view[i], y_view[i])
    return out.reshape(shape)


def rounding_divide(values, exponent):
    """dpot(x, e): int32 ``values / 2**exponent`` to nearest, ties away from zero; exponent 0..31."""
    (x, e), shape = _integers((LOWEST, 0), (HIGHEST, 31), values=values, exponent=exponent)
    cdef const int32_t[::1] x_view = x, e_view = e
    out = np.empty(len(x), np.int32)
    cdef int32_t[::1] out_view = out
    cdef Py_ssize_t i
    for i in range(x_view.shape[0]):
        out_view[i] = divide_by_power_of_two(x_view[i], e_view[i])
    return out.reshape(shape)


def activation(x, int left_shift, kind):
    """Table sigmoid or tanh (arm_nn_activation_s16).

    Args:
        x: int16 array at scale ``2**(left_shift - 12)``.
        left_shift: -4..4.
        kind: ``"sigmoid"`` or ``"tanh"``.

    Returns:
        int16 array, Q0.15.

    Raises:
        ValueError: ``left_shift`` outside -4..4 or an unknown kind.
    """
    if not -4 <= left_shift <= 4:
        raise ValueError(f"left_shift is {left_shift}, wanted -4..4")
    if kind not in ACTIVATION_KINDS:
        raise ValueError(f"activation is {kind!r}, wanted one of {sorted(ACTIVATION_KINDS)}")
    cdef ActivationKind which = ACTIVATION_KINDS[kind]
    (flat,), shape = _integers((-32768,), (32767,), x=x)
    cdef const int32_t[::1] x_view = flat
    out = np.empty(len(flat), np.int16)
    cdef int16_t[::1] out_view = out
    cdef Py_ssize_t i
    for i in range(x_view.shape[0]):
        out_view[i] = <int16_t>activation_s16(x_view[i], left_shift, which)
    return out.reshape(shape)


def exp_negative(x):
    """exp of int32 values <= 0 in Q5.26, result int32 in Q0.31."""
    (v,), shape = _integers((LOWEST,), (0,), x=x)
    cdef const int32_t[::1] v_view = v
    out = np.empty(len(v), np.int32)
    cdef int32_t[::1] out_view = out
    cdef Py_ssize_t i
    for i in range(v_view.shape[0]):
        out_view[i] = exp_on_negative_values(v_view[i])
    return out.reshape(shape)


def reciprocal(x):
    """1 / (1 + x) of int32 values >= 0 in Q0.31, result int32 in Q0.31."""
    (v,), shape = _integers((0,), (HIGHEST,), x=x)
    cdef const int32_t[::1] v_view = v
    out = np.empty(len(v), np.int32)
    cdef int32_t[::1] out_view = out
    cdef Py_ssize_t i
    for i in range(v_view.shape[0]):
        out_view[i] = one_over_one_plus_x(v_view[i])
    return out.reshape(shape)
