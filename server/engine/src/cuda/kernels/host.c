// The kernels for the host; ORDER is the beginning of their names.
#include "all.cu"
