"""Counts of values that left their integer range, kept on request while decoding."""

from libc.string cimport memset


cdef class SaturationCounters:
    """How many values of the int8 path were computed, and how many of them saturated.

    Pass one to ``rnnt_greedy`` or ``rnnt_decode_frames``; counts add up over calls. One object
    must not be used by two threads at once.

    Sites: ``enc`` encoder frames, ``gate_input`` the input's part of LSTM pre-activations and
    ``gate`` their sum (int16, +-8), ``cell`` and ``hidden`` LSTM states, ``joint_enc`` and
    ``joint_pred`` projections, ``joint_sum`` their sum, ``joint_hidden`` the joint's activation.
    """

    NAMES = ("enc", "gate_input", "gate", "cell", "hidden", "joint_enc", "joint_pred", "joint_sum",
             "joint_hidden")

    def __cinit__(self):
        memset(&self.c, 0, sizeof(Counters))

    def as_dict(self):
        """``{site: {"saturated": int, "total": int}}``."""
        return {name: {"saturated": self.c.saturated[i], "total": self.c.total[i]}
                for i, name in enumerate(self.NAMES)}
