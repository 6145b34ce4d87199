#define NARROW 0
#define CLASS_BITS 4
#define NUM_FORWARD 16
#define RUN run_wide_4
#include "kernels.inc"
