/* A QEMU plugin that counts how often each translated block runs; it writes "address instructions times"
 * lines to the file its argument out= names. Debian ships no header, so what is used of QEMU's plugin interface, version
 * 1, is declared here. (QEMU 9 replaced the inline count by one a processor: this is for versions before.) */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;

int qemu_plugin_version = 1;
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *block);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, void (*callback)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *block, int operation, void *to, uint64_t value);
void qemu_plugin_register_atexit_cb(plugin_id id, void (*callback)(plugin_id, void *), void *data);

typedef struct count {
    struct count *next;
    uint64_t address, instructions, times;
} count;

static count *counts;
static const char *path;

static void translated(plugin_id id, struct qemu_plugin_tb *block)
{
    count *one = calloc(1, sizeof *one);
    (void)id;
    if (one == NULL) {
        abort();
    }
    one->address = qemu_plugin_tb_vaddr(block);
    one->instructions = qemu_plugin_tb_n_insns(block);
    one->next = counts;
    counts = one;
    qemu_plugin_register_vcpu_tb_exec_inline(block, 0, &one->times, 1);
}

static void finished(plugin_id id, void *data)
{
    FILE *out = fopen(path, "w");
    const count *one;
    (void)id;
    (void)data;
    for (one = counts; out != NULL && one != NULL; one = one->next) {
        fprintf(out, "%llx %llu %llu\n", (unsigned long long)one->address, (unsigned long long)one->instructions,
                (unsigned long long)one->times);
    }
    if (out == NULL || fclose(out) != 0) {
        abort();
    }
}

int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
    (void)info;
    if (argc != 1 || strncmp(argv[0], "out=", 4) != 0) {
        return -1;
    }
    path = strdup(argv[0] + 4);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, finished, NULL);
    return 0;
}
