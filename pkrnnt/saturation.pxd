from libc.stdint cimport int64_t

# Where the integer path may saturate, in the order of SaturationCounters.NAMES.
cdef enum Site:
    SITE_ENC = 0
    SITE_GATE_INPUT
    SITE_GATE
    SITE_CELL
    SITE_HIDDEN
    SITE_JOINT_ENC
    SITE_JOINT_PRED
    SITE_JOINT_SUM
    SITE_JOINT_HIDDEN
    SITE_COUNT

cdef struct Counters:
    int64_t saturated[SITE_COUNT]
    int64_t total[SITE_COUNT]


cdef inline void count(Counters *counters, Site site, int64_t saturated, int64_t total) noexcept nogil:
    if counters != NULL:
        counters.saturated[<int>site] += saturated
        counters.total[<int>site] += total


cdef class SaturationCounters:
    cdef Counters c
