"""Matrix kernels behind one contract, one module per instruction set; they know nothing of RNN-T.

``contract.pxd`` says what a variant must provide, ``loops.pxi`` holds the loops written once, a
variant such as ``baseline.pyx`` compiles them with its own flags, ``dispatch.pyx`` chooses one at
import, and ``linear.pyx`` is what the rest of the package uses.
"""

from pkrnnt.kernels.dispatch import available, selected

__all__ = ["available", "selected"]
