# A variant's table, from the functions the files included before this one define.

from cpython.pycapsule cimport PyCapsule_New

from pkrnnt.kernels.contract cimport KernelTable

cdef KernelTable _table
_table.packed_bytes = _packed_bytes
_table.pack = _pack
_table.unpack = _unpack
_table.matmul = _matmul
_table.requantize = _requantize
_table.saturate_s16 = _saturate_s16
_table.add_activate_s8 = _add_activate_s8
_table.lstm_cell_s8 = _lstm_cell_s8
_table.argmax = _argmax
_table.exp_sum = _exp_sum
table = PyCapsule_New(&_table, "pkrnnt.kernels.table", NULL)
