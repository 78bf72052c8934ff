// The device's own kernels: memory, views, and copies to and from the host. All other operators use
// the fallback in on_cpu.h.
#include "kernels.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "checker.h"
#include "hooks.h"
#include "memory.h"
#include "on_cpu.h"
#include "recurrent.h"
#include "streams.h"

namespace gannet::accelerators::checked {
namespace {

constexpr c10::DispatchKeySet kKey(c10::DispatchKey::PrivateUse1);
constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

// ---- Memory -------------------------------------------------------------------------------------

// Makes `device` current while `make` runs, because the allocator allocates on the current device.
template <class Make>
at::Tensor on_device(std::optional<c10::Device> device, Make&& make) {
  const uint32_t before = current_device();
  if (device && device->has_index()) set_current_device(static_cast<uint32_t>(device->index()));
  struct DeviceRestorer {
    uint32_t device;
    ~DeviceRestorer() { set_current_device(device); }
  } const back{before};
  at::Tensor made = make();
  Memory::get().set_shape(made.const_data_ptr(), shape_of(made));
  return made;
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return on_device(
      device, [&] { return at::detail::empty_generic(size, device_allocator(), kKey, c10::dtype_or_default(dtype), format); });
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  return on_device(device, [&] {
    return at::detail::empty_strided_generic(size, stride, device_allocator(), kKey, c10::dtype_or_default(dtype));
  });
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  std::vector<int64_t> strides(stride.begin(), stride.end());
  if (stride.empty() && !size.empty()) {
    strides.assign(size.size(), 1);
    for (size_t i = size.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * std::max<int64_t>(size[i], 1);
  }
  const uint64_t bytes = at::detail::computeStorageNbytes(size, strides, self.itemsize(), static_cast<size_t>(offset));
  if (bytes > source.nbytes()) resize_storage(source, bytes);
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, strides, offset);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage(self, std::move(source), 0, {count}, {});
}

at::Tensor& set_nothing(at::Tensor& self) {
  return set_storage(self, c10::Storage(c10::Storage::use_byte_size_t(), 0, device_allocator(), true), 0, {0}, {});
}

void record_stream(at::Tensor& self, at::Stream stream) {
  Memory::get().record_use(self.storage().data(), stream_of(stream).actor);
}

// ---- Copies -------------------------------------------------------------------------------------

// Waits for a copy between host and device unless it is non-blocking. A non-blocking copy from pageable
// memory has read its source by the time the call returns (the source is staged), and the host waits for
// a copy to pageable memory. Both are CUDA's rules.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const bool is_between = from.device().is_privateuseone() && to.device().is_privateuseone();
  const at::Tensor& there = to.device().is_privateuseone() ? to : from;
  const at::Tensor& other = to.device().is_privateuseone() ? from : to;
  Views views;
  at::Tensor target = views.of(to);
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    at::_ops::copy_::redispatch(kCpu, target, views.of(from), non_blocking);
  }
  const bool is_pinned = !is_between && other.numel() > 0 && Memory::get().is_pinned(other.const_data_ptr());
  std::vector<Access> accesses;
  if (from.device().is_privateuseone() || is_pinned) add_accesses(accesses, from, false);
  if (to.device().is_privateuseone() || is_pinned) add_accesses(accesses, to, true);
  const auto device = static_cast<uint32_t>(there.device().index());
  launch(device, "aten::copy_", accesses);
  if (is_pinned) Memory::get().record_use(other.storage().data(), current_stream(device).actor);
  if (!is_between && (!non_blocking || (!is_pinned && !to.device().is_privateuseone())))
    Checker::get().host_waits_for(current_stream(device).actor);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

// ---- Convolutions, for which LibTorch requires device operators ---------------------------------

const c10::OperatorHandle& operator_named(const char* name) {
  static auto* const found = new std::unordered_map<std::string, c10::OperatorHandle>;
  static auto* const mutex = new std::mutex;
  const std::lock_guard lock(*mutex);
  auto at = found->find(name);
  if (at == found->end()) at = found->emplace(name, c10::Dispatcher::singleton().findSchemaOrThrow(name, "")).first;
  return at->second;
}

void convolution(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run_on_cpu(op, operator_named("aten::convolution"), stack);
}

// Inserts the sizes of the bias after the weight, where the CPU operator expects them: one element
// per output channel.
void convolution_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run_on_cpu(op, operator_named("aten::convolution_backward"), stack, [](torch::jit::Stack& arguments) {
    const size_t first = arguments.size() - 10;
    const at::Tensor grad = arguments[first].toTensor();
    arguments.insert(arguments.begin() + static_cast<std::ptrdiff_t>(first) + 3, c10::List<int64_t>({grad.size(1)}));
  });
}

}  // namespace

void register_kernels() {
  // The library objects are never destroyed, since that would unregister the kernels. The copies
  // resolve conjugation and negation themselves, as LibTorch's copies do; for other operators
  // LibTorch makes a copy first.
  for (const auto key : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative}) {
    auto* const lazy = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    for (const char* copy : {"_copy_from", "_copy_from_and_resize"}) lazy->impl(copy, torch::CppFunction::makeFallthrough());
  }
  static auto* const all = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  all->fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
  static auto* const aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  aten->impl("empty.memory_format", TORCH_FN(empty));
  aten->impl("empty_strided", TORCH_FN(empty_strided));
  aten->impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  aten->impl("set_.source_Storage", TORCH_FN(set_whole_storage));
  aten->impl("set_", TORCH_FN(set_nothing));
  aten->impl("record_stream", TORCH_FN(record_stream));
  aten->impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  aten->impl("view", TORCH_FN(at::native::view));
  aten->impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  aten->impl("_copy_from", TORCH_FN(copy_from));
  aten->impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  // For other devices LibTorch uses the overload with `out`. For this device that overload would
  // warn that it resizes the output of a mean.
  for (const char* loss : {"mse_loss", "smooth_l1_loss"})
    aten->impl(loss, torch::CppFunction::makeFromBoxedFunction<&fallback>());
  register_recurrent_cells();
  aten->impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  aten->impl("convolution_backward_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution_backward>());
}

}  // namespace gannet::accelerators::checked
