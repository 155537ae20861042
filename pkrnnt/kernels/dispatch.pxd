from pkrnnt.kernels.contract cimport KernelTable

cdef const KernelTable *find_table(name) except NULL
