"""The fused int8 decoder: a whole chunk of encoder frames in one call without the GIL.

Design: ``greedy.decode_frames`` is the specification, and this equals it byte for byte. Model
parameters are C structures bound when the model was built; working memory is one block that a
stream's first call lays out and its state keeps; frames are quantized and projected FRAME_BLOCK at
a time, so that it stays small however long the chunk is. Nothing allocates in the frame loop but the
growing result.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

import numpy as np

from pkrnnt.frames cimport frames_view, quantize_frames
from pkrnnt.joint cimport Int8Joint, Joint, confidence_q15, project
from pkrnnt.kernels.linear cimport PackedLinear, allocate_aligned, free_aligned, scratch_bytes
from pkrnnt.prediction cimport Int8Prediction, Prediction, step_prediction
from pkrnnt.saturation cimport (
    SITE_JOINT_ENC, SITE_JOINT_HIDDEN, SITE_JOINT_PRED, SITE_JOINT_SUM, Counters, SaturationCounters,
    count)

from pkrnnt.hypothesis import Hypothesis, Lookahead

cdef enum:
    FRAME_BLOCK = 32  # frames quantized and projected together
    # Frames whose joint is taken in one pass over the output weights: as many as the matrix kernels
    # take together (measured, see docs/architecture.md).
    WINDOW = 4

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
    int8_t *hidden  # [WINDOW, J]
    int32_t *logits  # [WINDOW, V + 1]
    int32_t *acc  # the larger of [6H] and [FRAME_BLOCK, J]
    void *scratch

cdef struct Emission:
    int32_t token
    int32_t frame
    int32_t confidence  # Q0.15

# One of several utterances decoded together.
cdef struct Utterance:
    const float *enc
    Py_ssize_t frames
    Py_ssize_t first  # of its tokens in the result

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
    work.hidden = <int8_t *>_take(&cursor, WINDOW * width)
    work.logits = <int32_t *>_take(&cursor, sizeof(int32_t) * WINDOW * joint.out.rows)
    work.acc = <int32_t *>_take(&cursor, sizeof(int32_t) * max(
        <size_t>6 * prediction.hidden_size, FRAME_BLOCK * width))
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


cdef void _take_step(const Prediction *prediction, const Joint *joint, Work *work,
                     Counters *counters) noexcept nogil:
    # The prediction step for the last token, and its projection.
    step_prediction(prediction, work.last_token, work.adopted.h, work.adopted.c, work.ahead.h,
                    work.ahead.c, work.acc, work.scratch, counters)
    project(&joint.pred, work.ahead.h + (prediction.layers - 1) * prediction.hidden_size, 1,
            work.pred_proj, work.acc, work.scratch, SITE_JOINT_PRED, counters)
    work.have_ahead = True


cdef bint _decode_block(const Prediction *prediction, const Joint *joint, int blank_id, int frames,
                        Py_ssize_t first_frame, int max_symbols, int window, Work *work, Result *result,
                        Counters *counters) noexcept nogil:
    # Frames whose projections stand in work.enc_proj. While blanks run the prediction network stands
    # still, so the joints of a window of frames are taken together; the first token ends it, and
    # what lies behind it is thrown away (and not counted). False when memory ran out.
    cdef int width = joint.out.cols, rows = joint.out.rows
    cdef int t = 0, symbols = 0
    cdef int64_t sums[WINDOW]
    cdef int64_t hiddens[WINDOW]
    cdef const PackedLinear *out = &joint.out
    cdef int32_t *logits
    cdef Step adopted
    cdef int n, i, token
    while t < frames:
        if not work.have_ahead:
            _take_step(prediction, joint, work, counters)
        n = min(window, frames - t)
        for i in range(n):
            out.kernels.add_activate_s8(
                work.enc_proj + <Py_ssize_t>(t + i) * width, work.pred_proj, width, &joint.activation,
                work.hidden + <Py_ssize_t>i * width, &sums[i], &hiddens[i])
        out.kernels.matmul(out.packed, rows, width, work.hidden, n, work.logits, work.scratch)
        for i in range(n):
            count(counters, SITE_JOINT_SUM, sums[i], width)
            count(counters, SITE_JOINT_HIDDEN, hiddens[i], width)
            logits = work.logits + <Py_ssize_t>i * rows
            out.kernels.requantize(logits, out.multiplier, out.shift, rows, logits)
            token = out.kernels.argmax(logits, rows)
            if token == blank_id:
                t += 1
                symbols = 0
                continue
            if not _emit(result, token, first_frame + t, confidence_q15(joint, logits, token)):
                return False
            adopted = work.adopted
            work.adopted = work.ahead
            work.ahead = adopted
            work.last_token = token
            work.have_ahead = False
            symbols += 1
            if symbols == max_symbols:
                t += 1
                symbols = 0
            break
    return True


cdef bint _decode(const Prediction *prediction, const Joint *joint, int blank_id, const float *enc,
                  Py_ssize_t frames, int max_symbols, int window, Work *work, Result *result,
                  Counters *counters) noexcept nogil:
    # False when memory for the result ran out.
    cdef Py_ssize_t start = 0
    cdef int width = joint.enc.cols
    cdef int n
    while start < frames:
        n = <int>min(frames - start, FRAME_BLOCK)
        quantize_frames(enc + start * width, <Py_ssize_t>n * width, joint.enc_inverse_scale,
                        joint.enc_zero_point, work.enc, counters)
        project(&joint.enc, work.enc, n, work.enc_proj, work.acc, work.scratch, SITE_JOINT_ENC, counters)
        if not _decode_block(prediction, joint, blank_id, n, start, max_symbols, window, work, result,
                             counters):
            return False
        start += n
    return True


cdef class DecoderMemory:
    """Working memory of one stream: h, c and the lookahead live here between calls."""

    cdef Work work
    cdef char *_block
    cdef char *_saved  # a copy of the front of the block, for a call that fails
    cdef size_t _state_bytes
    cdef Int8Prediction prediction
    cdef Int8Joint joint

    def __cinit__(self, Int8Prediction prediction not None, Int8Joint joint not None):
        cdef size_t size = _layout(&self.work, NULL, &prediction.c, &joint.c)
        self._block = <char *>allocate_aligned(size)
        _layout(&self.work, self._block, &prediction.c, &joint.c)
        self._state_bytes = <char *>self.work.enc - self._block
        self._saved = <char *>allocate_aligned(self._state_bytes)
        self.prediction = prediction
        self.joint = joint

    def __dealloc__(self):
        free_aligned(self._block)
        free_aligned(self._saved)

    cdef _load_step(self, step_state, Step *step):
        cdef const int8_t[:, ::1] h
        cdef const int16_t[:, ::1] c
        wanted = (self.prediction.c.layers, self.prediction.c.hidden_size)
        h, c = step_state
        if (h.shape[0], h.shape[1]) != wanted or (c.shape[0], c.shape[1]) != wanted:
            raise ValueError(f"the state's h and c have other shapes than this model's, wanted {wanted}")
        memcpy(step.h, &h[0, 0], h.nbytes)
        memcpy(step.c, &c[0, 0], c.nbytes)

    cdef load(self, state):
        # A state may come from a pickle: nothing about it is taken on trust.
        cdef const int16_t[::1] pred_proj
        lookahead = state.lookahead
        self._load_step(state.prediction_state, &self.work.adopted)
        self.work.have_ahead = lookahead is not None
        if self.work.have_ahead:
            pred_proj, ahead = lookahead
            if pred_proj.shape[0] != self.joint.c.out.cols:
                raise ValueError(
                    f"the state's projection has {pred_proj.shape[0]} values, "
                    f"wanted {self.joint.c.out.cols}")
            self._load_step(ahead, &self.work.ahead)
            memcpy(self.work.pred_proj, &pred_proj[0], pred_proj.nbytes)

    cdef _copy_step(self, const Step *step):
        shape = (self.prediction.c.layers, self.prediction.c.hidden_size)
        h, c = np.empty(shape, np.int8), np.empty(shape, np.int16)
        cdef int8_t[:, ::1] h_view = h
        cdef int16_t[:, ::1] c_view = c
        memcpy(&h_view[0, 0], step.h, h.nbytes)
        memcpy(&c_view[0, 0], step.c, c.nbytes)
        return h, c

    def export(self):
        """(prediction state, lookahead) as arrays of their own."""
        cdef int16_t[::1] view
        lookahead = None
        if self.work.have_ahead:
            pred_proj = np.empty(self.joint.c.out.cols, np.int16)
            view = pred_proj
            memcpy(&view[0], self.work.pred_proj, pred_proj.nbytes)
            lookahead = Lookahead(pred_proj, self._copy_step(&self.work.ahead))
        return self._copy_step(&self.work.adopted), lookahead


cdef DecoderMemory _memory_of(state, Int8Prediction prediction, Int8Joint joint, int blank_id):
    # The state's own memory, or new memory with what the state holds.
    last_token = state.last_token
    if not -1 <= last_token < prediction.embed_rows or last_token == blank_id:
        raise ValueError(
            f"the state's last token is {last_token}, wanted SOS (-1) or a token below "
            f"{prediction.embed_rows} that is not blank ({blank_id})")
    memory = state._memory
    if (type(memory) is DecoderMemory and (<DecoderMemory>memory).prediction is prediction
            and (<DecoderMemory>memory).joint is joint):
        (<DecoderMemory>memory).work.last_token = last_token
        return memory
    memory = DecoderMemory(prediction, joint)
    (<DecoderMemory>memory).load(state)
    (<DecoderMemory>memory).work.last_token = last_token
    return memory


cdef _check(Int8Prediction prediction, Int8Joint joint, int blank_id):
    # That the networks fit each other, on which the loops rely.
    cdef const Prediction *p = &prediction.c
    cdef const Joint *j = &joint.c
    if not 0 <= blank_id < j.out.rows:
        raise ValueError(f"blank_id is {blank_id}, wanted 0..{j.out.rows - 1}")
    if j.pred.cols != p.hidden_size or prediction.embed_rows + (blank_id == j.out.rows - 1) < j.out.rows:
        raise ValueError(
            f"the prediction network has {p.hidden_size} units and {prediction.embed_rows} embedding "
            f"rows, wanted {j.pred.cols} and {j.out.rows} as the joint has")


cdef _append(hyp, const Result *result, Py_ssize_t first, Py_ssize_t last):
    cdef Py_ssize_t i
    for i in range(first, last):
        hyp.append(result.items[i].token, result.items[i].frame, result.items[i].confidence / 32768.0)


def decode_frames(Int8Prediction prediction not None, Int8Joint joint not None, int blank_id, enc, state,
                  int max_symbols, SaturationCounters counters=None, int window=WINDOW):
    """``greedy.decode_frames`` for an int8 model, with the same arguments, result and errors.

    Args:
        counters: adds up what saturates, on request.
        window: frames whose joints are taken together, 1 to 4; the result is the same.
    """
    cdef const Prediction *p = &prediction.c
    cdef const Joint *j = &joint.c
    if not 1 <= window <= WINDOW:
        raise ValueError(f"window is {window}, wanted 1..{WINDOW}")
    _check(prediction, joint, blank_id)
    cdef const float[:, ::1] view = frames_view(enc, j.enc.cols)
    cdef Py_ssize_t frames = view.shape[0]
    cdef Counters *c = NULL if counters is None else &counters.c
    cdef DecoderMemory memory
    cdef Work saved
    cdef Result result
    cdef bint complete
    hyp = Hypothesis()
    if frames == 0:
        return hyp
    memory = _memory_of(state, prediction, joint, blank_id)
    saved = memory.work
    memcpy(memory._saved, memory._block, memory._state_bytes)
    result.items = NULL
    result.size = result.capacity = 0
    with nogil:
        complete = _decode(p, j, blank_id, &view[0, 0], frames, max_symbols, window, &memory.work,
                           &result, c)
    try:
        if not complete:
            raise MemoryError(f"no memory for the result after {result.size} tokens")
        _append(hyp, &result, 0, result.size)
        state.commit(hyp, frames, None, memory)
    except BaseException:  # a signal that waited for the GIL comes up here
        memory.work = saved
        memcpy(memory._block, memory._saved, memory._state_bytes)
        raise
    finally:
        free(result.items)
    return hyp


def decode_utterances(Int8Prediction prediction not None, Int8Joint joint not None, int blank_id,
                      utterances, state, int max_symbols, Py_ssize_t first=0):
    """Whole utterances, all from the same state, in one stretch without the GIL.

    Short utterances on several threads would wait for the GIL as long as they decode.

    Args:
        utterances: encoder frames of each, as ``decode_frames`` takes them.
        state: where each utterance starts; it stays as it is.
        first: number of the first utterance, for messages.

    Returns:
        A list of hypotheses, each equal to that of ``decode_frames``.

    Raises:
        ValueError: as ``decode_frames``, with the utterance's number.
    """
    cdef const Prediction *p = &prediction.c
    cdef const Joint *j = &joint.c
    cdef const float[:, ::1] view
    cdef Py_ssize_t size = len(utterances), i
    cdef DecoderMemory memory = DecoderMemory(prediction, joint)
    cdef Work start
    cdef Result result
    cdef Utterance *each
    cdef bint complete = True
    _check(prediction, joint, blank_id)
    memory.load(state)
    memory.work.last_token = state.last_token
    start = memory.work
    memcpy(memory._saved, memory._block, memory._state_bytes)
    result.items = NULL
    result.size = result.capacity = 0
    each = <Utterance *>calloc(size + 1, sizeof(Utterance))
    if each == NULL:
        raise MemoryError(f"no memory for {size} utterances")
    try:
        held = []  # what the pointers point into
        for i, enc in enumerate(utterances):
            try:
                view = frames_view(enc, j.enc.cols)
            except ValueError as error:
                raise ValueError(f"utterance {first + i}: {error}") from None
            held.append(view)
            each[i].frames = view.shape[0]
            each[i].enc = &view[0, 0] if view.shape[0] else NULL
        with nogil:
            for i in range(size):
                memory.work = start
                memcpy(memory._block, memory._saved, memory._state_bytes)
                each[i].first = result.size
                complete = complete and _decode(p, j, blank_id, each[i].enc, each[i].frames, max_symbols,
                                                WINDOW, &memory.work, &result, NULL)
            each[size].first = result.size
        if not complete:
            raise MemoryError(f"no memory for the result after {result.size} tokens")
        hyps = []
        for i in range(size):
            hyp = Hypothesis()
            _append(hyp, &result, each[i].first, each[i + 1].first)
            hyps.append(hyp)
        return hyps
    finally:
        free(each)
        free(result.items)
