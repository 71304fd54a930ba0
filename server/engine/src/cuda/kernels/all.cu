// Everything in one translation unit: one fatbin for a GPU, one object for the host.
#include "attention.cu"
#include "codec.cu"
#include "norm.cu"
#include "pointwise.cu"
#include "product.cu"
#include "sample.cu"
