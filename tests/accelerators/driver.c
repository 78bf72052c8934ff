/* Stands in for NVIDIA's driver, libcuda.so.1, where a machine's driver serves nobody: of CUDA $DRIVER_VERSION (13000 is 13.0),
 * with no device. The runtime asks for every function by name. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { kNoDevice = 100, kNotSupported = 801 };

int cuInit(unsigned flags) {
  (void)flags;
  return kNoDevice;
}
int cuDriverGetVersion(int* version) {
  const char* text = getenv("DRIVER_VERSION");
  *version = text ? atoi(text) : 13000;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 0;
  return kNoDevice;
}
static int not_supported(void) { return kNotSupported; }

int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* found) {
  (void)version;
  (void)flags;
  if (found) *found = 0;
  if (!strcmp(name, "cuInit"))
    *function = (void*)cuInit;
  else if (!strcmp(name, "cuDriverGetVersion"))
    *function = (void*)cuDriverGetVersion;
  else if (!strcmp(name, "cuDeviceGetCount"))
    *function = (void*)cuDeviceGetCount;
  else if (!strcmp(name, "cuGetProcAddress"))
    *function = (void*)cuGetProcAddress_v2;
  else
    *function = (void*)not_supported;
  return 0;
}
int cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
