/* A CUDA driver that does nothing but remember what it was asked, for tests: a shared library with
 * the functions that src/tier/cuda_memory.cc looks for. What goes wrong is said in the variable
 * FAKE_CUDA_FAILS: the name of a function. Tests read fake_cuda_calls. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct fake_cuda_calls {
  int contexts;   /* Retained and not released, */
  int device;     /* the last on this one. */
  int pushed;     /* And not popped. */
  int registered; /* And not unregistered. */
  void* memory;   /* The last that was registered. */
  size_t bytes;
  unsigned int flags;
};
struct fake_cuda_calls fake_cuda_calls;

static int fails(const char* name) {
  const char* which = getenv("FAKE_CUDA_FAILS");
  return which != NULL && strcmp(which, name) == 0;
}
/* The number in a variable, or -1. */
static int number(const char* name) {
  const char* text = getenv(name);
  return text != NULL ? atoi(text) : -1;
}

static char context;

int cuInit(unsigned int flags) { return flags != 0 || fails("cuInit") ? 100 : 0; }
/* Three devices, called 7, 8 and 9. FAKE_CUDA_ACTIVE has a context, FAKE_CUDA_BUSY and those before
 * can get none. */
int cuDeviceGetCount(int* out) {
  *out = 3;
  return fails("cuDeviceGetCount") ? 100 : 0;
}
int cuDeviceGet(int* out, int ordinal) {
  *out = 7 + ordinal;
  return ordinal < 0 || ordinal > 2 || fails("cuDeviceGet") ? 101 : 0;
}
int cuDevicePrimaryCtxGetState(int device, unsigned int* flags, int* active) {
  *flags = 0;
  *active = device == number("FAKE_CUDA_ACTIVE");
  return fails("cuDevicePrimaryCtxGetState") ? 101 : 0;
}
int cuDevicePrimaryCtxRetain(void** out, int device) {
  if (device < 7 || device <= number("FAKE_CUDA_BUSY") || fails("cuDevicePrimaryCtxRetain"))
    return 2;
  *out = &context;
  fake_cuda_calls.device = device;
  ++fake_cuda_calls.contexts;
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  if (device != fake_cuda_calls.device) return 101;
  --fake_cuda_calls.contexts;
  return 0;
}
int cuCtxPushCurrent_v2(void* which) {
  if (which != &context || fails("cuCtxPushCurrent_v2")) return 201;
  ++fake_cuda_calls.pushed;
  return 0;
}
int cuCtxPopCurrent_v2(void** out) {
  *out = &context;
  --fake_cuda_calls.pushed;
  return 0;
}
int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned int flags) {
  if (fake_cuda_calls.pushed != 1) return 201;
  if (fails("cuMemHostRegister_v2")) return 2;
  fake_cuda_calls.memory = memory;
  fake_cuda_calls.bytes = bytes;
  fake_cuda_calls.flags = flags;
  ++fake_cuda_calls.registered;
  return 0;
}
int cuMemHostUnregister(void* memory) {
  if (fake_cuda_calls.pushed != 1 || memory != fake_cuda_calls.memory) return 1;
  --fake_cuda_calls.registered;
  return 0;
}
