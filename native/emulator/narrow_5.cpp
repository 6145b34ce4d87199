#define NARROW 1
#define CLASS_BITS 5
#define NUM_FORWARD 27
#define RUN run_narrow_5
#include "kernels.inc"
