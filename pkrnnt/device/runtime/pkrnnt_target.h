/* Which kernels this compiler and processor get; the bytes are the same with each.
 * Define PKRNNT_PORTABLE to have the portable ones anywhere. */
#ifndef PKRNNT_TARGET_H
#define PKRNNT_TARGET_H

#if !defined(PKRNNT_PORTABLE) && defined(__ARM_FEATURE_MVE)
#define PKRNNT_MVE 1 /* Cortex-M55 and later: 128-bit vectors */
#elif !defined(PKRNNT_PORTABLE) && defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && defined(__GNUC__)
#define PKRNNT_DSP 1 /* Cortex-M4, M7, M33 with the DSP extension: two 16-bit products at once */
#elif !defined(PKRNNT_PORTABLE) && defined(__ARM_ARCH_ISA_THUMB) && __ARM_ARCH_ISA_THUMB == 1 && \
    defined(__OPTIMIZE__) && !defined(__clang__)
#define PKRNNT_THUMB1 1 /* Cortex-M0+ and M0: eight registers for most instructions, no 64-bit product */
#endif

#endif
