/* What the harness needs of the machine it runs on. */
#ifndef HARNESS_H
#define HARNESS_H

#include <stddef.h>
#include <stdint.h>

void harness_open(void); /* input.bin to read, output.bin to write */
void harness_read(void *data, size_t size); /* ends the program where the file is too short */
void harness_write(const void *data, size_t size);
void harness_exit(int code);
uint64_t harness_ticks(void); /* of a clock that counts executed instructions, or 0 */
void harness_paint(void); /* the stack below, */
int32_t harness_depth(void); /* and how deep it was used since, or 0 */

int harness(void);

#endif
