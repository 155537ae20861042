"""Encoder frames at the boundary: what is accepted, and the one place where they become integers."""

from libc.stdint cimport int8_t, int32_t, uint32_t

import numpy as np

from pkrnnt.saturation cimport SITE_ENC, count


cdef bint _all_finite(const float *values, Py_ssize_t size) noexcept nogil:
    # Infinities and NaN have all exponent bits set; looked at as integers, so that it vectorizes.
    cdef const uint32_t *bits = <const uint32_t *>values
    cdef uint32_t found = 0
    cdef Py_ssize_t i
    for i in range(size):
        found |= (bits[i] & 0x7F800000u) == 0x7F800000u
    return not found


def check_frames(enc, int width):
    """Encoder frames as a C-contiguous float32 array [T, width].

    Args:
        enc: [T, width] array of float16, float32 or float64, any strides.
        width: the model's encoder width.

    Raises:
        ValueError: another dtype, not two dimensions, another width, or a value that is not
            finite in float32 (named by frame and column).
    """
    cdef const float[:, ::1] view
    if hasattr(enc, "mask"):
        raise ValueError("encoder frames are a masked array, wanted plain values")
    enc = np.asarray(enc)  # of a subclass, the plain array underneath
    if enc.dtype.kind != "f":
        raise ValueError(
            f"encoder frames have dtype {enc.dtype}, wanted float16, float32 or float64")
    if enc.ndim != 2:
        raise ValueError(
            f"encoder frames have shape {enc.shape}, wanted two dimensions [T, {width}]")
    if enc.shape[1] != width:
        hint = (f"; [{width}, T] looks like channel first: pass enc.T"
                if enc.shape[0] == width else "")
        raise ValueError(f"encoder frames have shape {enc.shape}, wanted [T, {width}]{hint}")
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes inf, refused below
        frames = np.ascontiguousarray(enc, dtype=np.float32)
    view = frames
    if frames.size and not _all_finite(&view[0, 0], frames.size):
        frame, column = np.argwhere(~np.isfinite(frames))[0]
        raise ValueError(
            f"encoder frame {frame} holds {enc[frame, column]} in column {column}, "
            f"wanted finite float32 values")
    return frames


cdef void quantize_frames(const float *enc, Py_ssize_t size, float inverse_scale, int zero_point,
                          int8_t *out, Counters *counters) noexcept nogil:
    # Adding and taking away 1.5 * 2^23 rounds a small float32 to the nearest integer, ties to even,
    # without a library call. What is clamped to +-1024 before lies outside int8 either way.
    cdef float magic = 12582912.0
    cdef int32_t low = -128 - zero_point
    cdef int32_t high = 127 - zero_point
    cdef int32_t q, clipped
    cdef int32_t saturated = 0  # a block of frames has far fewer than 2^31 values
    cdef float x
    cdef Py_ssize_t i
    for i in range(size):
        x = enc[i] * inverse_scale
        x = x if x > -1024.0 else -1024.0
        x = x if x < 1024.0 else 1024.0
        q = <int32_t>((x + magic) - magic)
        clipped = low if q < low else (high if q > high else q)
        saturated += clipped != q
        out[i] = <int8_t>(clipped + zero_point)
    count(counters, SITE_ENC, saturated, size)
