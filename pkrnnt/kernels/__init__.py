"""Matrix kernels behind one contract, one module per instruction set; they know nothing of RNN-T.

``contract.pxd`` says what a variant must provide, the ``.pxi`` files hold the loops, a variant such as
``baseline.pyx`` includes some of them under its own flags, ``dispatch.pyx`` chooses one at import,
``linear.pyx`` is what the rest of the package uses, and ``vectors.pyx`` lets tests and ports call the
rest of the contract on arrays.
"""

from pkrnnt.kernels.dispatch import available, selected

__all__ = ["available", "selected"]
