#define NARROW 0
#define CLASS_BITS 5
#define NUM_FORWARD 27
#define RUN run_wide_5
#include "kernels.inc"
