"""The fused int8 decoder: a whole chunk of encoder frames in one call without the GIL.

Design: ``greedy.decode_frames`` is the specification, and this equals it byte for byte. Model
parameters are C structures bound when the model was built; working memory is one block laid out at
the start of a call; frames are quantized and projected FRAME_BLOCK at a time, so that it stays
small however long the chunk is. Nothing allocates in the frame loop but the growing result.
"""

from libc.stdint cimport int8_t, int16_t, int32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

import numpy as np

from pkrnnt.frames cimport quantize_frames
from pkrnnt.joint cimport Int8Joint, Joint, confidence_q15, joint_logits, project
from pkrnnt.kernels.linear cimport allocate_aligned, free_aligned, scratch_bytes
from pkrnnt.prediction cimport Int8Prediction, Prediction, step_prediction
from pkrnnt.saturation cimport (
    SITE_JOINT_ENC, SITE_JOINT_PRED, Counters, SaturationCounters)

from pkrnnt.frames import check_frames
from pkrnnt.hypothesis import Hypothesis, Lookahead

cdef enum:
    FRAME_BLOCK = 32

# A prediction state and the step already taken from it.
cdef struct Step:
    int8_t *h  # [layers, H]
    int16_t *c  # [layers, H]

cdef struct Work:
    Step adopted
    Step ahead
    int16_t *pred_proj  # [J], of ahead
    bint have_ahead
    int last_token
    int8_t *enc  # [FRAME_BLOCK, E]
    int16_t *enc_proj  # [FRAME_BLOCK, J]
    int8_t *hidden  # [J]
    int32_t *acc  # the largest of [8H], [FRAME_BLOCK, J] and [V + 1]
    void *scratch

cdef struct Emission:
    int32_t token
    int32_t frame
    int32_t confidence  # Q0.15

cdef struct Result:
    Emission *items
    Py_ssize_t size
    Py_ssize_t capacity


cdef char *_take(char **cursor, size_t size) noexcept nogil:
    # The next size bytes of the work block; with a NULL block it only measures.
    cdef char *here = cursor[0]
    cursor[0] += (size + 63) & ~<size_t>63
    return here


cdef size_t _layout(Work *work, char *block, const Prediction *prediction, const Joint *joint) noexcept nogil:
    cdef char *cursor = block
    cdef size_t state = <size_t>prediction.layers * prediction.hidden_size
    cdef size_t width = joint.out.cols
    cdef size_t cols = max(max(prediction.embed_dim, prediction.hidden_size),
                           max(joint.enc.cols, joint.out.cols))
    work.adopted.h = <int8_t *>_take(&cursor, state)
    work.adopted.c = <int16_t *>_take(&cursor, state * sizeof(int16_t))
    work.ahead.h = <int8_t *>_take(&cursor, state)
    work.ahead.c = <int16_t *>_take(&cursor, state * sizeof(int16_t))
    work.pred_proj = <int16_t *>_take(&cursor, width * sizeof(int16_t))
    work.enc = <int8_t *>_take(&cursor, <size_t>FRAME_BLOCK * joint.enc.cols)
    work.enc_proj = <int16_t *>_take(&cursor, FRAME_BLOCK * width * sizeof(int16_t))
    work.hidden = <int8_t *>_take(&cursor, width)
    work.acc = <int32_t *>_take(&cursor, sizeof(int32_t) * max(
        max(<size_t>8 * prediction.hidden_size, FRAME_BLOCK * width), <size_t>joint.out.rows))
    work.scratch = _take(&cursor, scratch_bytes(<int>cols))
    return cursor - block


cdef bint _emit(Result *result, int token, Py_ssize_t frame, int confidence) noexcept nogil:
    cdef Py_ssize_t capacity
    cdef Emission *items
    if result.size == result.capacity:
        capacity = 2 * result.capacity if result.capacity else 64
        items = <Emission *>realloc(result.items, capacity * sizeof(Emission))
        if items == NULL:
            return False
        result.items = items
        result.capacity = capacity
    result.items[result.size].token = token
    result.items[result.size].frame = <int32_t>frame
    result.items[result.size].confidence = confidence
    result.size += 1
    return True


cdef bint _decode(const Prediction *prediction, const Joint *joint, int blank_id, const float *enc,
                  Py_ssize_t frames, int max_symbols, Work *work, Result *result,
                  Counters *counters) noexcept nogil:
    # False when memory for the result ran out.
    cdef Py_ssize_t start = 0, t
    cdef int block, symbols, token
    cdef int width = joint.enc.cols
    cdef int16_t *enc_proj
    cdef Step adopted
    while start < frames:
        block = <int>min(frames - start, FRAME_BLOCK)
        quantize_frames(enc + start * width, <Py_ssize_t>block * width, joint.enc_inverse_scale,
                        joint.enc_zero_point, work.enc, counters)
        project(&joint.enc, work.enc, block, work.enc_proj, work.acc, work.scratch,
                SITE_JOINT_ENC, counters)
        for t in range(block):
            enc_proj = work.enc_proj + t * joint.out.cols
            symbols = 0
            while symbols < max_symbols:
                if not work.have_ahead:
                    step_prediction(prediction, work.last_token, work.adopted.h, work.adopted.c,
                                    work.ahead.h, work.ahead.c, work.acc, work.scratch, counters)
                    project(&joint.pred,
                            work.ahead.h + (prediction.layers - 1) * prediction.hidden_size, 1,
                            work.pred_proj, work.acc, work.scratch, SITE_JOINT_PRED, counters)
                    work.have_ahead = True
                joint_logits(joint, enc_proj, work.pred_proj, work.hidden, work.acc, work.scratch,
                             counters)
                token = joint.out.kernels.argmax(work.acc, joint.out.rows)
                if token == blank_id:
                    break
                if not _emit(result, token, start + t, confidence_q15(joint, work.acc, token)):
                    return False
                adopted = work.adopted
                work.adopted = work.ahead
                work.ahead = adopted
                work.last_token = token
                work.have_ahead = False
                symbols += 1
        start += block
    return True


cdef _load_state(const Prediction *prediction, const Joint *joint, state, Work *work):
    cdef size_t size = <size_t>prediction.layers * prediction.hidden_size
    cdef const int8_t[:, ::1] h
    cdef const int16_t[:, ::1] c
    cdef const int16_t[::1] pred_proj
    h, c = state.prediction_state
    memcpy(work.adopted.h, &h[0, 0], size)
    memcpy(work.adopted.c, &c[0, 0], size * sizeof(int16_t))
    work.last_token = state.last_token
    work.have_ahead = state.lookahead is not None
    if work.have_ahead:
        pred_proj, (h, c) = state.lookahead
        memcpy(work.ahead.h, &h[0, 0], size)
        memcpy(work.ahead.c, &c[0, 0], size * sizeof(int16_t))
        memcpy(work.pred_proj, &pred_proj[0], joint.out.cols * sizeof(int16_t))


cdef _copy_step(const Prediction *prediction, const Step *step):
    cdef tuple shape = (prediction.layers, prediction.hidden_size)
    h, c = np.empty(shape, np.int8), np.empty(shape, np.int16)
    cdef int8_t[:, ::1] h_view = h
    cdef int16_t[:, ::1] c_view = c
    memcpy(&h_view[0, 0], step.h, h.nbytes)
    memcpy(&c_view[0, 0], step.c, c.nbytes)
    return h, c


def decode_frames(Int8Prediction prediction, Int8Joint joint, int blank_id, enc, state,
                  int max_symbols, SaturationCounters counters=None):
    """``greedy.decode_frames`` for an int8 model, with the same arguments, result and errors.

    Args:
        counters: adds up what saturates, on request.
    """
    cdef const float[:, ::1] view = check_frames(enc, joint.c.enc.cols)
    cdef Py_ssize_t frames = view.shape[0]
    cdef const Prediction *p = &prediction.c
    cdef const Joint *j = &joint.c
    cdef Counters *c = NULL
    cdef Work work
    cdef Result result
    cdef void *block
    cdef bint complete
    hyp = Hypothesis()
    if frames == 0:
        return hyp
    if counters is not None:
        c = &counters.c
    result.items = NULL
    result.size = result.capacity = 0
    block = allocate_aligned(_layout(&work, NULL, p, j))
    try:
        _layout(&work, <char *>block, p, j)
        _load_state(p, j, state, &work)
        had_ahead = bool(work.have_ahead)
        with nogil:
            complete = _decode(p, j, blank_id, &view[0, 0], frames, max_symbols, &work, &result, c)
        if not complete:
            raise MemoryError(f"no memory for the result after {result.size} tokens")
        for emission in result.items[:result.size]:
            hyp.append(emission.token, emission.frame, emission.confidence / 32768.0)
        adopted, lookahead = state.prediction_state, state.lookahead
        if result.size:
            adopted = _copy_step(p, &work.adopted)
            lookahead = None
        if work.have_ahead and (result.size or not had_ahead):
            pred_proj = np.empty(j.out.cols, np.int16)
            _copy_pred_proj(pred_proj, &work)
            lookahead = Lookahead(pred_proj, _copy_step(p, &work.ahead))
        state.commit(hyp, frames, adopted, lookahead)
    finally:
        free_aligned(block)
        free(result.items)
    return hyp


cdef _copy_pred_proj(out, const Work *work):
    cdef int16_t[::1] view = out
    memcpy(&view[0], work.pred_proj, out.nbytes)
