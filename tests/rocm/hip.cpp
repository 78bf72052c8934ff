// Stands in for AMD's runtime, libamdhip64.so: $GANNET_TEST_HIP_DEVICES devices (2 by default) whose
// memory is the host's and whose streams do at once what they are given. Kernels cannot be launched.
#include <hip/hip_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

struct ihipStream_t {};
struct ihipEvent_t {
  bool is_recorded = false;
};

namespace {

std::mutex mutex;
std::map<const char*, size_t> memory, registered;
thread_local int current = 0;
thread_local hipError_t last = hipSuccess;

int devices() {
  const char* const text = std::getenv("GANNET_TEST_HIP_DEVICES");
  return text ? std::atoi(text) : 2;
}
hipError_t result(hipError_t error) {
  if (error != hipSuccess) last = error;
  return error;
}
bool is_device(int device) { return device >= 0 && device < devices(); }

}  // namespace

extern "C" {

hipError_t hipGetDeviceCount(int* count) {
  *count = devices();
  return result(*count > 0 ? hipSuccess : hipErrorNoDevice);
}
hipError_t hipGetDevice(int* device) {
  *device = current;
  return hipSuccess;
}
hipError_t hipSetDevice(int device) {
  if (!is_device(device)) return result(hipErrorInvalidDevice);
  current = device;
  return hipSuccess;
}
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t which, int device) {
  if (!is_device(device)) return result(hipErrorInvalidDevice);
  *value = which == hipDeviceAttributeComputeCapabilityMajor ? 9 : which == hipDeviceAttributeComputeCapabilityMinor ? 4 : 304;
  return hipSuccess;
}
hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int device) {
  if (!is_device(device)) return result(hipErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "stand-in for an AMD GPU");
  properties->totalGlobalMem = size_t{192} << 30;
  properties->major = 9;
  properties->minor = 4;
  return hipSuccess;
}
hipError_t hipDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 1;
  *highest = -1;
  return hipSuccess;
}
const char* hipGetErrorString(hipError_t error) {
  switch (error) {
    case hipErrorNoDevice:
      return "no ROCm-capable device is detected";
    case hipErrorInvalidValue:
      return "invalid argument";
    case hipErrorInvalidDevice:
      return "invalid device ordinal";
    default:
      return "an error of the stand-in";
  }
}
hipError_t hipGetLastError() {
  const hipError_t error = last;
  last = hipSuccess;
  return error;
}
hipError_t hipMemGetInfo(size_t* available, size_t* total) {
  *available = size_t{190} << 30;
  *total = size_t{192} << 30;
  return hipSuccess;
}
hipError_t hipMallocAsync(void** address, size_t bytes, hipStream_t) {
  *address = std::malloc(bytes);
  const std::lock_guard lock(mutex);
  memory[static_cast<char*>(*address)] = bytes;
  return hipSuccess;
}
hipError_t hipFree(void* address) {
  const std::lock_guard lock(mutex);
  if (memory.erase(static_cast<char*>(address)) == 0) return result(hipErrorInvalidValue);
  std::free(address);
  return hipSuccess;
}
hipError_t hipFreeAsync(void* address, hipStream_t) { return hipFree(address); }
hipError_t hipHostRegister(void* address, size_t bytes, unsigned) {
  const std::lock_guard lock(mutex);
  return result(registered.emplace(static_cast<char*>(address), bytes).second ? hipSuccess : hipErrorInvalidValue);
}
hipError_t hipHostUnregister(void* address) {
  const std::lock_guard lock(mutex);
  return result(registered.erase(static_cast<char*>(address)) ? hipSuccess : hipErrorInvalidValue);
}
hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind, hipStream_t) {
  std::memcpy(to, from, bytes);
  return hipSuccess;
}
hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* address) {
  const std::lock_guard lock(mutex);
  *attributes = {};
  auto after = memory.upper_bound(static_cast<const char*>(address));
  if (after == memory.begin()) return hipSuccess;
  --after;
  if (static_cast<const char*>(address) < after->first + after->second) attributes->type = hipMemoryTypeDevice;
  return hipSuccess;
}
hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned flags, int priority) {
  if (flags != hipStreamNonBlocking || priority != -1) return result(hipErrorInvalidValue);
  *stream = new ihipStream_t;
  return hipSuccess;
}
hipError_t hipStreamDestroy(hipStream_t stream) {
  delete stream;
  return hipSuccess;
}
hipError_t hipStreamSynchronize(hipStream_t) { return hipSuccess; }
hipError_t hipStreamWaitEvent(hipStream_t, hipEvent_t event, unsigned) {
  return result(event && event->is_recorded ? hipSuccess : hipErrorInvalidValue);
}
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags) {
  if (flags != hipEventDisableTiming) return result(hipErrorInvalidValue);
  *event = new ihipEvent_t;
  return hipSuccess;
}
hipError_t hipEventDestroy(hipEvent_t event) {
  delete event;
  return hipSuccess;
}
hipError_t hipEventRecord(hipEvent_t event, hipStream_t) {
  event->is_recorded = true;
  return hipSuccess;
}
hipError_t hipEventQuery(hipEvent_t event) { return result(event->is_recorded ? hipSuccess : hipErrorInvalidValue); }
hipError_t hipEventSynchronize(hipEvent_t) { return hipSuccess; }
}
