#include "on_cpu.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/enum_tag.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>
#include <gannet/sdk.hpp>
#include <optional>

#include "generator.h"
#include "hooks.h"
#include "memory.h"

namespace gannet::accelerators::checked {

void add_accesses(std::vector<Access>& accesses, const at::Tensor& tensor, bool writes) {
  if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) return;
  constexpr size_t kMostRuns = 256;
  // Works from the innermost stride outwards: contiguous dimensions extend the run, the others
  // multiply the number of runs.
  std::vector<std::pair<uint64_t, uint64_t>> dimensions;  // stride, size
  for (int64_t i = 0; i < tensor.dim(); ++i)
    if (tensor.size(i) > 1 && tensor.stride(i) != 0)
      dimensions.emplace_back(static_cast<uint64_t>(tensor.stride(i)), static_cast<uint64_t>(tensor.size(i)));
  std::sort(dimensions.begin(), dimensions.end());
  const uint64_t item = tensor.itemsize();
  uint64_t run = 1, extent = 1;  // in elements
  std::vector<std::pair<uint64_t, uint64_t>> apart;
  size_t runs = 1;
  for (const auto& [stride, size] : dimensions) {
    extent += stride * (size - 1);
    if (apart.empty() && stride <= run) {
      run = stride * (size - 1) + run;
    } else {
      apart.emplace_back(stride, size);
      runs = std::min<size_t>(runs * size, kMostRuns + 1);
    }
  }
  const auto begin = reinterpret_cast<uint64_t>(tensor.const_data_ptr());
  if (runs > kMostRuns) {
    accesses.push_back({begin, begin + extent * item, writes});
    return;
  }
  std::vector<uint64_t> starts{0};
  for (const auto& [stride, size] : apart) {
    const size_t count = starts.size();
    for (uint64_t k = 1; k < size; ++k)
      for (size_t i = 0; i < count; ++i) starts.push_back(starts[i] + k * stride);
  }
  for (const uint64_t start : starts) accesses.push_back({begin + start * item, begin + (start + run) * item, writes});
}

std::string shape_of(const at::Tensor& tensor) {
  std::string text = c10::toString(tensor.scalar_type());
  text += " [";
  for (int64_t i = 0; i < tensor.dim(); ++i) text += (i ? ", " : "") + std::to_string(tensor.size(i));
  return text + "]";
}

void launch(uint32_t device, std::string_view name, const std::vector<Access>& accesses) {
  ++Checker::get().counters().launches;
  try {
    Checker::get().launch(current_stream(device).actor, name, accesses);
  } catch (const sdk::Failure& failure) {
    throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, GANNET_INVALID_ARGUMENT,
                                std::string(failure.what()) +
                                    " (let the later stream wait for an event after the earlier use; memory that another stream "
                                    "than its own uses is named to record_stream)");
  }
}

// ---- Views -----------------------------------------------------------------------------------------------------------

at::Tensor Views::of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.device().is_privateuseone()) return tensor;
  for (const View& view : views_)
    if (view.device.is_same(tensor)) return view.cpu;
  const c10::Storage& storage = tensor.storage();
  c10::Storage& cpu = storages_[storage.unsafeGetStorageImpl()];
  if (!cpu) {
    cpu = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), storage.nbytes(),
        c10::DataPtr(Memory::get().alias(storage.unsafeGetStorageImpl()->mutable_data()), c10::DeviceType::CPU),
        c10::GetCPUAllocator(), /*resizable=*/true);
    device_of_.emplace(cpu.unsafeGetStorageImpl(), storage);
  }
  at::Tensor view =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(cpu), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.is_conj()) view._set_conj(true);
  if (tensor.is_neg()) view._set_neg(true);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) view.unsafeGetTensorImpl()->set_wrapped_number(true);
  views_.push_back({tensor, view});
  return view;
}

void Views::take_over_sizes() {
  for (const auto& [cpu, storage] : device_of_) {
    const c10::StorageImpl& device = *storage.unsafeGetStorageImpl();
    if (cpu->nbytes() == device.nbytes()) continue;
    const bool moved = cpu->data() != Memory::get().alias(device.data());
    resize_storage(storage, cpu->nbytes());
    if (moved && cpu->nbytes() > 0)
      std::memcpy(Memory::get().alias(storage.unsafeGetStorageImpl()->mutable_data()), cpu->data(), cpu->nbytes());
  }
  for (const auto& [device, cpu] : views_)
    if (device.sizes() != cpu.sizes() || device.strides() != cpu.strides())
      device.unsafeGetTensorImpl()->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
}

at::Tensor Views::to_device(const at::Tensor& result) {
  if (!result.defined() || !result.device().is_cpu()) return result;
  for (const View& view : views_)
    if (view.cpu.is_same(result)) return view.device;
  const auto behind = device_of_.find(result.storage().unsafeGetStorageImpl());
  if (behind != device_of_.end()) {
    at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(behind->second), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), result.dtype());
    view.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides(), result.storage_offset());
    return view;
  }
  const at::Tensor resolved = result.is_conj() || result.is_neg() ? result.resolve_conj().resolve_neg() : result;
  at::Tensor copy = at::detail::empty_strided_generic(resolved.sizes(), resolved.strides(), device_allocator(),
                                                      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), resolved.scalar_type());
  if (const size_t bytes = copy.storage().nbytes(); bytes > 0)
    std::memcpy(Memory::get().alias(copy.storage().mutable_data()), resolved.const_data_ptr(), bytes);
  return copy;
}

// ---- An operator -----------------------------------------------------------------------------------------------------

namespace {

// Makes `device` current, because the allocator allocates on the current device.
class DeviceScope {
 public:
  explicit DeviceScope(uint32_t device) : before_(current_device()) { set_current_device(device); }
  ~DeviceScope() { set_current_device(before_); }
  DeviceScope(const DeviceScope&) = delete;

 private:
  uint32_t before_;
};

// Whether the operator accepts host tensors together with device tensors, as on a GPU.
bool takes_host_tensors(const std::string& name) {
  static constexpr std::string_view kPrefixes[] = {"aten::index", "aten::_index_put_impl_", "aten::_unsafe_index",
                                                   "aten::_pack_padded_sequence"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes), [&](auto prefix) { return name.rfind(prefix, 0) == 0; });
}

// One call of an operator. Translates device arguments to CPU views, and results back to the
// device.
class OperatorCall {
 public:
  OperatorCall(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : op_(op), stack_(stack), count_(op.schema().arguments().size()), first_(stack.size() - count_) {
    find_device();
  }

  void take_arguments() {
    for (size_t i = 0; i < count_; ++i) {
      const c10::Argument& argument = op_.schema().arguments()[i];
      c10::IValue& value = stack_[first_ + i];
      const bool writes = argument.alias_info() && argument.alias_info()->isWrite();
      if (value.isTensor()) {
        value = take(value.toTensor(), argument, writes);
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> views;
        for (const at::Tensor& tensor : value.toTensorVector()) views.push_back(take(tensor, argument, writes));
        value = views;
      } else if (value.isOptionalTensorList()) {
        c10::List<std::optional<at::Tensor>> views;
        for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
          views.push_back(tensor ? std::optional(take(*tensor, argument, writes)) : std::nullopt);
        value = views;
      } else if (value.isDevice()) {
        value = c10::Device(c10::DeviceType::CPU);
      } else if (value.isGenerator()) {
        value = cpu_generator_of(value.toGenerator());
        has_generator_ = true;
      } else if (value.isNone() && is_generator(*argument.type())) {
        value = cpu_generator_of(default_generator(device_));
        has_generator_ = true;
      }
    }
  }

  void run(const c10::OperatorHandle& kernel) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    std::optional<DrawsForDevice> draws;
    if (!has_generator_ && op_.hasTag(at::Tag::nondeterministic_seeded)) draws.emplace(device_);
    kernel.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
  }

  void give_results() {
    const DeviceScope current(device_);
    views_.take_over_sizes();
    bool host_sees = op_.hasTag(at::Tag::dynamic_output_shape) || op_.hasTag(at::Tag::data_dependent_output);
    const size_t results = op_.schema().returns().size();
    for (size_t i = stack_.size() - results; i < stack_.size(); ++i) {
      c10::IValue& value = stack_[i];
      if (value.isTensor()) {
        value = give(value.toTensor());
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> given;
        for (const at::Tensor& tensor : value.toTensorVector()) given.push_back(give(tensor));
        value = given;
      } else {
        host_sees = true;  // a scalar, which the host reads
      }
    }
    std::vector<Access> writes;  // listed first: a race on a write is more informative
    for (const at::Tensor& tensor : written_) add_accesses(writes, tensor, true);
    accesses_.insert(accesses_.begin(), writes.begin(), writes.end());
    const auto& name = op_.operator_name();
    launch(device_, name.overload_name.empty() ? name.name : name.name + "." + name.overload_name, accesses_);
    if (host_sees) Checker::get().host_waits_for(current_stream(device_).actor);
  }

 private:
  static bool is_generator(const c10::Type& type) {
    if (type.kind() == c10::TypeKind::GeneratorType) return true;
    return type.kind() == c10::TypeKind::OptionalType && type.containedTypes().front()->kind() == c10::TypeKind::GeneratorType;
  }

  // Uses the tensors' device, or else the device argument, or else the current device.
  void find_device() {
    std::optional<c10::Device> of_tensors, named;
    const auto look = [&](const at::Tensor& tensor) {
      if (!tensor.defined() || !tensor.device().is_privateuseone()) return;
      TORCH_CHECK(!of_tensors || *of_tensors == tensor.device(), op_.operator_name(),
                  ": expected all tensors to be on the same device, but found ", *of_tensors, " and ", tensor.device());
      of_tensors = tensor.device();
    };
    for (size_t i = first_; i < stack_.size(); ++i) {
      const c10::IValue& value = stack_[i];
      if (value.isTensor()) look(value.toTensor());
      if (value.isTensorList())
        for (const at::Tensor& tensor : value.toTensorVector()) look(tensor);
      if (value.isOptionalTensorList())
        for (const auto& tensor : value.toOptionalTensorVector())
          if (tensor) look(*tensor);
      if (value.isDevice() && value.toDevice().has_index()) named = value.toDevice();
    }
    has_tensors_ = of_tensors.has_value();
    if (of_tensors)
      device_ = static_cast<uint32_t>(of_tensors->index());
    else
      device_ = named ? static_cast<uint32_t>(named->index()) : current_device();
  }

  at::Tensor take(const at::Tensor& tensor, const c10::Argument& argument, bool writes) {
    if (!tensor.defined()) return tensor;
    if (!tensor.device().is_privateuseone()) {
      TORCH_CHECK(!has_tensors_ || tensor.dim() == 0 || takes_host_tensors(op_.operator_name().name), op_.operator_name(),
                  ": argument '", argument.name(), "' is a tensor of ", tensor.device(), " among tensors of checked:", device_,
                  ": expected all tensors to be on the same device");
      return tensor;
    }
    if (writes)
      written_.push_back(tensor);  // the kernel may replace its memory, so accesses are added later
    else
      add_accesses(accesses_, tensor, false);
    return views_.of(tensor);
  }

  at::Tensor give(const at::Tensor& result) {
    const at::Tensor given = views_.to_device(result);
    if (!given.defined() || !given.device().is_privateuseone()) return given;
    if (views_.has_storage(given.storage())) return given;  // it is an argument, or a view of an argument's storage
    Memory::get().set_shape(given.const_data_ptr(), shape_of(given));
    add_accesses(accesses_, given, true);
    return given;
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  const size_t count_, first_;
  uint32_t device_ = 0;
  bool has_tensors_ = false, has_generator_ = false;
  Views views_;
  std::vector<Access> accesses_;
  std::vector<at::Tensor> written_;
};

}  // namespace

void run_on_cpu(const c10::OperatorHandle& op, const c10::OperatorHandle& kernel, torch::jit::Stack* stack,
                void (*change)(torch::jit::Stack&)) {
  OperatorCall call(op, *stack);
  call.take_arguments();
  if (change) change(*stack);
  call.run(kernel);
  call.give_results();
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) { run_on_cpu(op, op, stack); }

}  // namespace gannet::accelerators::checked
