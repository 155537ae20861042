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


cdef const float[:, ::1] frames_view(enc, int width):
    # check_frames for callers that want the memory, not the array.
    cdef const float[:, ::1] view
    given = enc
    if type(enc) is not np.ndarray or enc.dtype is not FLOAT32:
        enc = _as_floats(enc)
    if enc.ndim != 2:
        raise ValueError(
            f"encoder frames have shape {enc.shape}, wanted two dimensions [T, {width}]")
    if enc.shape[1] != width:
        hint = (f"; [{width}, T] looks like channel first: pass enc.T"
                if enc.shape[0] == width else "")
        raise ValueError(f"encoder frames have shape {enc.shape}, wanted [T, {width}]{hint}")
    view = enc if enc.flags.c_contiguous else np.ascontiguousarray(enc)
    if view.shape[0] and not _all_finite(&view[0, 0], view.shape[0] * view.shape[1]):
        frame, column = np.argwhere(~np.isfinite(enc))[0]
        raise ValueError(
            f"encoder frame {frame} holds {np.asarray(given)[frame, column]} in column {column}, "
            f"wanted finite float32 values")
    return view


def check_frames(enc, int width):
    """Encoder frames as a C-contiguous float32 array [T, width].

    Args:
        enc: [T, width] array of float16, float32 or float64, any strides.
        width: the model's encoder width.

    Raises:
        ValueError: another dtype, not two dimensions, another width, or a value that is not
            finite in float32 (named by frame and column).
    """
    return np.asarray(frames_view(enc, width))


FLOAT32 = np.dtype(np.float32)


def _as_floats(enc):
    # Anything but a plain float32 array, as one.
    if hasattr(enc, "mask"):
        raise ValueError("encoder frames are a masked array, wanted plain values")
    enc = np.asarray(enc)  # of a subclass, the plain array underneath
    if enc.dtype.kind != "f":
        raise ValueError(
            f"encoder frames have dtype {enc.dtype}, wanted float16, float32 or float64")
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes inf, refused as such
        return enc.astype(FLOAT32)


cdef void quantize_frames(const float *enc, Py_ssize_t size, float inverse_scale, int zero_point,
                          int8_t *out, Counters *counters) noexcept nogil:
    # Adding and taking away 1.5 * 2^23 rounds a float32 below 2^22 to the nearest integer, ties to
    # even, without a library call; anything larger stays far outside int8.
    cdef float magic = 12582912.0
    cdef float low = -128 - zero_point
    cdef float high = 127 - zero_point
    cdef float q, clamped
    cdef int32_t saturated = 0  # a block of frames has far fewer than 2^31 values
    cdef Py_ssize_t i
    for i in range(size):
        q = (enc[i] * inverse_scale + magic) - magic
        saturated += (q < low) | (q > high)
        clamped = q if q > low else low
        clamped = clamped if clamped < high else high
        out[i] = <int8_t>(<int32_t>clamped + zero_point)
    count(counters, SITE_ENC, saturated, size)
