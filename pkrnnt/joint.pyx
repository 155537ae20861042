"""Int8 joint network: projections, activation, logits, confidence (docs/fixed_point.md sections 5 and 7)."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint32_t

import numpy as np

from pkrnnt.fixed_point cimport (
    count_leading_zeros, divide_by_power_of_two, doubling_high_mult, one_over_one_plus_x)
from pkrnnt.frames cimport quantize_frames
from pkrnnt.kernels.contract cimport RELU_FUNCTION, SIGMOID_FUNCTION, TANH_FUNCTION
from pkrnnt.kernels.linear cimport Linear, allocate_aligned, free_aligned, run_linear, scratch_bytes
from pkrnnt.saturation cimport SITE_JOINT_ENC, SITE_JOINT_PRED, Counters, Site, count

from pkrnnt.frames import check_frames

ACTIVATIONS = {"relu": RELU_FUNCTION, "sigmoid": SIGMOID_FUNCTION, "tanh": TANH_FUNCTION}

cdef enum:
    MAX_Q31 = 2147483647  # exp(0): the best class's own term


cdef void project(const PackedLinear *linear, const int8_t *x, int n, int16_t *out, int32_t *acc,
                  void *scratch, Site site, Counters *counters) noexcept nogil:
    cdef int64_t size = <int64_t>n * linear.rows
    run_linear(linear, x, n, acc, scratch)
    count(counters, site, linear.kernels.saturate_s16(acc, size, out), size)


cdef int confidence_q15(const Joint *joint, const int32_t *logits, int best) noexcept nogil:
    cdef int n = joint.out.rows
    cdef int64_t wide, p16, q15
    cdef uint32_t total
    cdef int32_t reciprocal
    cdef int headroom
    if n == 1:
        return 32767
    wide = joint.out.kernels.exp_sum(logits, n, logits[best], joint.softmax_multiplier,
                                     joint.softmax_shift, joint.softmax_diff_min)
    # Each term is at most 2^19: only 8,192 equal maxima and more reach the limit, where p is 0 anyway.
    total = <uint32_t>(wide if wide < 0xFFFFFFFFu else 0xFFFFFFFFu)
    headroom = count_leading_zeros(total)
    reciprocal = one_over_one_plus_x(<int32_t>((total << headroom) - (<uint32_t>1 << 31)))
    p16 = divide_by_power_of_two(doubling_high_mult(reciprocal, MAX_Q31), 12 - headroom + 15) - 32768
    p16 = (-32768 if p16 < -32768 else (32767 if p16 > 32767 else p16)) + 32768
    q15 = n * p16 - 65536
    if q15 <= 0:
        return 0
    q15 //= 2 * (n - 1)
    return 32767 if q15 > 32767 else <int>q15


cdef _project_array(const PackedLinear *linear, x, Site site):
    cdef const int8_t[:, ::1] x_view = x
    cdef int n = x_view.shape[0]
    cdef void *scratch
    cdef int32_t *acc
    cdef int16_t[:, ::1] out_view
    if x_view.shape[1] != linear.cols:
        raise ValueError(f"input has {x_view.shape[1]} columns, wanted {linear.cols}")
    out = np.empty((n, linear.rows), np.int16)
    if n:
        out_view = out
        acc = <int32_t *>allocate_aligned(<size_t>n * linear.rows * sizeof(int32_t))
        try:
            scratch = allocate_aligned(scratch_bytes(linear.cols))
            with nogil:
                project(linear, &x_view[0, 0], n, &out_view[0, 0], acc, scratch, site, NULL)
            free_aligned(scratch)
        finally:
            free_aligned(acc)
    return out


cdef class Int8Joint:
    """Joint network in integers.

    Args:
        enc, pred, out: ``Linear`` of [J, E], [J, H] and [V + 1, J], effective biases.
        enc_inverse_scale: float32, frames become ``nearest(x * enc_inverse_scale) + enc_zero_point``.
        activation: ``"relu"``, ``"sigmoid"`` or ``"tanh"``.
        activation_left_shift: for sigmoid and tanh, the projections' scale is ``2**(left_shift - 12)``.
        hidden: (multiplier, shift) from the activation to the int8 hidden vector.
        hidden_zero_point: of the hidden vector, -128..127.
        softmax: (multiplier, shift, diff_min) from logits to Q5.26.

    Raises:
        ValueError: sizes that do not fit each other, or a value outside its range.
    """

    def __cinit__(self, Linear enc not None, Linear pred not None, Linear out not None, *,
                  float enc_inverse_scale, int enc_zero_point, str activation, int activation_left_shift,
                  hidden, int hidden_zero_point, softmax):
        for name, linear in (("joint.enc", enc), ("joint.pred", pred)):
            if (<Linear>linear).c.rows != out.c.cols:
                raise ValueError(
                    f"{name} has {(<Linear>linear).c.rows} rows, wanted {out.c.cols} as the output takes")
        if activation not in ACTIVATIONS:
            raise ValueError(f"joint activation is {activation!r}, wanted one of {sorted(ACTIVATIONS)}")
        if not -4 <= activation_left_shift <= 4:
            raise ValueError(f"activation_left_shift is {activation_left_shift}, wanted -4..4")
        if not -31 <= hidden[1] <= 15:
            raise ValueError(f"hidden shift is {hidden[1]}, wanted -31..15")
        if not (softmax[0] > 0 and 0 <= softmax[1] <= 31 and -31 * 2**26 <= softmax[2] << softmax[1] <= 0):
            raise ValueError(
                f"softmax is {softmax}, wanted a multiplier above 0, a shift of 0..31 and a diff_min that "
                f"shifted by it stays within -31 * 2^26..0")
        self._linears = (enc, pred, out)
        self.c.enc = enc.c
        self.c.pred = pred.c
        self.c.out = out.c
        self.c.enc_inverse_scale = enc_inverse_scale
        self.c.enc_zero_point = enc_zero_point
        self.c.activation.function = ACTIVATIONS[activation]
        self.c.activation.left_shift = activation_left_shift
        self.c.activation.multiplier, self.c.activation.shift = hidden
        self.c.activation.zero_point = hidden_zero_point
        self.c.softmax_multiplier, self.c.softmax_shift, self.c.softmax_diff_min = softmax

    def quantize_enc(self, enc):
        """int8 encoder frames [T, E] of float frames [T, E]; raises ValueError as ``check_frames``."""
        cdef const float[:, ::1] view = check_frames(enc, self.c.enc.cols)
        frames = np.empty((view.shape[0], view.shape[1]), np.int8)
        cdef int8_t[:, ::1] frames_view = frames
        if frames.size:
            quantize_frames(&view[0, 0], frames.size, self.c.enc_inverse_scale, self.c.enc_zero_point,
                            &frames_view[0, 0], NULL)
        return frames

    def project_enc(self, enc):
        """int16 [T, J] projections of float encoder frames [T, E]; raises ValueError as ``check_frames``."""
        return _project_array(&self.c.enc, self.quantize_enc(enc), SITE_JOINT_ENC)

    def project_pred(self, g):
        """int16 [J] projection of the prediction network's output, int8 [H]."""
        return _project_array(&self.c.pred, np.atleast_2d(g), SITE_JOINT_PRED)[0]

    def output(self, enc_proj_t, pred_proj):
        """int32 logits [V + 1] of two int16 projections [J]."""
        cdef const int16_t[::1] enc_view = enc_proj_t
        cdef const int16_t[::1] pred_view = pred_proj
        cdef void *scratch
        for name, length in (("enc_proj_t", enc_view.shape[0]), ("pred_proj", pred_view.shape[0])):
            if length != self.c.out.cols:
                raise ValueError(f"{name} has {length} values, wanted {self.c.out.cols}")
        hidden, logits = np.empty(self.c.out.cols, np.int8), np.empty(self.c.out.rows, np.int32)
        cdef int8_t[::1] hidden_view = hidden
        cdef int32_t[::1] logits_view = logits
        cdef int64_t sums, hiddens
        scratch = allocate_aligned(scratch_bytes(self.c.out.cols))
        self.c.out.kernels.add_activate_s8(&enc_view[0], &pred_view[0], self.c.out.cols, &self.c.activation,
                                           &hidden_view[0], &sums, &hiddens)
        run_linear(&self.c.out, &hidden_view[0], 1, &logits_view[0], scratch)
        free_aligned(scratch)
        return logits

    def logits(self, enc_proj_t, g):
        """int32 logits [V + 1] of an encoder projection [J] and the prediction network's output [H]."""
        return self.output(enc_proj_t, self.project_pred(g))

    def argmax(self, logits):
        """Index of the largest of the int32 logits [V + 1]; the lowest index on a tie."""
        cdef const int32_t[::1] view = logits
        if view.shape[0] != self.c.out.rows:
            raise ValueError(f"{view.shape[0]} logits, wanted {self.c.out.rows}")
        return self.c.out.kernels.argmax(&view[0], view.shape[0])

    def confidence(self, logits, int token):
        """(N * p - 1) / (N - 1) of the best token in Q0.15, as an exact float in [0, 32767/32768].

        Raises:
            ValueError: ``token`` is not a maximum of the logits, or N is not the model's V + 1.
        """
        cdef const int32_t[::1] view = logits
        if view.shape[0] != self.c.out.rows:
            raise ValueError(f"{view.shape[0]} logits, wanted {self.c.out.rows}")
        if not 0 <= token < view.shape[0] or view[token] != max(view):
            raise ValueError(f"token is {token}, wanted a maximum of the logits")
        return confidence_q15(&self.c, &view[0], token) / 32768.0
