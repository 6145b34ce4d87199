#define NARROW 1
#define CLASS_BITS 4
#define NUM_FORWARD 16
#define RUN run_narrow_4
#include "kernels.inc"
