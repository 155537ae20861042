/* The harness on a Cortex-M board of QEMU: start, files by semihosting, SysTick as the clock. */
#include "harness.h"

enum { SYS_OPEN = 1, SYS_WRITE = 5, SYS_READ = 6, SYS_EXIT_EXTENDED = 0x20 };
enum { READ_BINARY = 1, WRITE_BINARY = 5, APPLICATION_EXIT = 0x20026 };

#define SYST_CSR (*(volatile uint32_t *)0xE000E010u)
#define SYST_RVR (*(volatile uint32_t *)0xE000E014u)
#define SYST_CVR (*(volatile uint32_t *)0xE000E018u)
#define SYST_PERIOD 0x1000000u

static volatile uint32_t wraps;
static int32_t input, output;

static int32_t semihosting(int32_t operation, const void *block)
{
    register int32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = block;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static int32_t open_file(const char *name, uint32_t length, uint32_t mode)
{
    const uint32_t block[3] = {(uint32_t)name, mode, length};
    const int32_t file = semihosting(SYS_OPEN, block);
    if (file < 0) {
        harness_exit(3);
    }
    return file;
}

void harness_open(void)
{
    input = open_file("input.bin", 9, READ_BINARY);
    output = open_file("output.bin", 10, WRITE_BINARY);
}

void harness_read(void *data, size_t size)
{
    const uint32_t block[3] = {(uint32_t)input, (uint32_t)data, size};
    if (size != 0 && semihosting(SYS_READ, block) != 0) {
        harness_exit(4);
    }
}

void harness_write(const void *data, size_t size)
{
    const uint32_t block[3] = {(uint32_t)output, (uint32_t)data, size};
    if (semihosting(SYS_WRITE, block) != 0) {
        harness_exit(5);
    }
}

void harness_exit(int code)
{
    const uint32_t block[2] = {APPLICATION_EXIT, (uint32_t)code};
    semihosting(SYS_EXIT_EXTENDED, block);
    for (;;) {
    }
}

/* SysTick counts down 24 bits and its exception counts the wraps; under -icount each instruction
 * takes a fixed time, so ticks are instructions. */
uint64_t harness_ticks(void)
{
    uint32_t before, value;
    do {
        before = wraps;
        value = SYST_CVR;
    } while (before != wraps);
    return (uint64_t)before * SYST_PERIOD + (SYST_PERIOD - 1 - value);
}

enum { PAINTED_WORDS = 1024, OWN_WORDS = 8, PAINT = 0x5A5AA5A5 };

__attribute__((noinline)) void harness_paint(void)
{
    volatile int32_t *top = (volatile int32_t *)__builtin_frame_address(0) - OWN_WORDS;
    int32_t i;
    for (i = 1; i <= PAINTED_WORDS; i++) {
        top[-i] = PAINT;
    }
}

__attribute__((noinline)) int32_t harness_depth(void)
{
    volatile int32_t *top = (volatile int32_t *)__builtin_frame_address(0) - OWN_WORDS;
    int32_t i = PAINTED_WORDS;
    while (i > 0 && top[-i] == PAINT) {
        i--;
    }
    return (i + OWN_WORDS) * 4;
}

/* What gcc may call for copies and clears, even freestanding. */
void *memcpy(void *to, const void *from, size_t size)
{
    char *out = to;
    const char *in = from;
    while (size-- > 0) {
        *out++ = *in++;
    }
    return to;
}

void *memset(void *to, int value, size_t size)
{
    char *out = to;
    while (size-- > 0) {
        *out++ = (char)value;
    }
    return to;
}

extern uint32_t bss_start[], bss_end[], stack_top[];

__attribute__((used)) static void start(void)
{
    uint32_t *p;
    for (p = bss_start; p < bss_end; p++) {
        *p = 0;
    }
    SYST_RVR = SYST_PERIOD - 1;
    SYST_CVR = 0;
    SYST_CSR = 7; /* processor clock, exception, on */
    harness_exit(harness());
}

__attribute__((naked)) static void reset(void)
{
#if defined(__ARM_FEATURE_MVE)
    /* Full access to the vector unit (CPACR), before any compiled code might use it. */
    __asm__ volatile("ldr r0, =0xE000ED88\n"
                     "ldr r1, [r0]\n"
                     "orr r1, r1, #0xF00000\n"
                     "str r1, [r0]\n"
                     "dsb\n"
                     "isb\n"
                     "b start\n");
#else
    __asm__ volatile("bl start\n");
#endif
}

static void fault(void)
{
    harness_exit(99);
}

static void systick(void)
{
    wraps++;
}

typedef struct {
    uint32_t *stack;
    void (*handlers[15])(void); /* reset, the faults, and SysTick last */
} vector_table;

extern const vector_table vectors;
__attribute__((section(".vectors"))) const vector_table vectors = {
    stack_top,
    {reset, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, systick},
};
