from libc.stdint cimport int8_t

from pkrnnt.saturation cimport Counters

# Encoder frames as check_frames accepts them: C-contiguous float32 [T, width], finite.
cdef const float[:, ::1] frames_view(enc, int width)

# q = clamp(nearest(x * inverse_scale), ties to even) + zero_point, to int8. Finite x only.
cdef void quantize_frames(const float *enc, Py_ssize_t size, float inverse_scale, int zero_point,
                          int8_t *out, Counters *counters) noexcept nogil
