#include "params/interception.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <gannet/error.h>

#include <algorithm>
#include <atomic>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/format.h"
#include "params/observer.h"
#include "params/reads_no_bytes.h"
#include "params/residency.h"
#include "tensor/absent_storage.h"
#include "tensor/thread_info.h"

namespace gannet::zero {
namespace {

constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;
// A key below kKey, for threads whose operators gather nothing. Its fallback translates the error
// for an absent parameter.
constexpr c10::DispatchKey kErrorKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

// Runs an operator, and translates the exception that LibTorch throws when it reads absent bytes.
void redispatch(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack* stack) {
  try {
    op.redispatchBoxed(below, stack);
  } catch (const c10::Error& error) {
    if (const auto ours = absent_bytes_error(error)) throw *ours;
    throw;
  }
}

struct WatchedParameter {
  Residency* residency;
  size_t parameter;
};

struct WatchTable {
  std::shared_mutex mutex;
  std::unordered_map<const c10::StorageImpl*, WatchedParameter> entries;
};

WatchTable& table() {
  static WatchTable* const forever = new WatchTable;  // leaked: operators may run during process exit
  return *forever;
}

bool is_written(const c10::OperatorHandle& op, size_t argument) {
  const auto* alias = op.schema().arguments()[argument].alias_info();
  return alias && alias->isWrite();
}

thread_local Builder* builder = nullptr;
thread_local CallWatcher* call_watcher = nullptr;

bool takes_tensors(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const size_t count = std::min(op.schema().arguments().size(), stack.size());
  return std::any_of(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end(),
                     [](const c10::IValue& value) { return value.isTensor() || value.isTensorList(); });
}

// The tensors that an operator has just put on the stack.
std::vector<at::Tensor> made_by(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  std::vector<at::Tensor> made;
  const size_t count = op.schema().returns().size();
  for (size_t i = 0; i < count && count <= stack.size(); ++i)
    if (const c10::IValue& value = stack[stack.size() - count + i]; value.isTensor() && value.toTensor().defined())
      made.push_back(value.toTensor());
  return made;
}

// The watched parameters that an operator uses, grouped by residency, each listed once.
class OperatorUses {
 public:
  void look_at(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
    const size_t count = op.schema().arguments().size();
    if (stack.size() < count) return;
    for (size_t i = 0; i < count; ++i) look_at(op, i, stack[stack.size() - count + i]);
  }
  bool empty() const { return all_.empty(); }
  const std::vector<at::Tensor>& leaves() const { return leaves_; }
  void store_written() {
    for (const WatchedParameter& one : written_) one.residency->store(one.parameter);
  }

  void acquire() {
    for (; acquired_ < all_.size(); ++acquired_) all_[acquired_].first->acquire(all_[acquired_].second);
  }
  ~OperatorUses() {
    while (acquired_ > 0) {
      --acquired_;
      all_[acquired_].first->release(all_[acquired_].second);
    }
  }

 private:
  void look_at(const c10::OperatorHandle& op, size_t argument, const c10::IValue& value) {
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      if (!tensor.defined() || !tensor.has_storage()) return;
      const auto& entries = table().entries;
      const auto found = entries.find(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
      if (found != entries.end())
        add(op, argument, found->second);
      else if (builder && tensor.requires_grad() && tensor.is_leaf())
        leaves_.push_back(tensor);
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) look_at(op, argument, tensor);
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef())
        if (element.isTensor()) look_at(op, argument, element);
    }
  }

  void add(const c10::OperatorHandle& op, size_t argument, const WatchedParameter& watched) {
    if (builder && is_written(op, argument) && !reads_no_bytes(op))
      written_.push_back(watched);
    else if (is_written(op, argument) && !watched.residency->is_writable(watched.parameter) && !reads_no_bytes(op))
      throw Error(
          ErrorCode::kUnsupported,
          formatted("operator {} writes into parameter '{}', of which each rank keeps a part: what it writes would be lost",
                    op.operator_name().name, watched.residency->name(watched.parameter)),
          "write under a zero::GatheredParameters guard with a rank to write from");
    auto place = std::find_if(all_.begin(), all_.end(), [&](const auto& entry) { return entry.first == watched.residency; });
    if (place == all_.end()) place = all_.insert(all_.end(), {watched.residency, {}});
    if (std::find(place->second.begin(), place->second.end(), watched.parameter) == place->second.end())
      place->second.push_back(watched.parameter);
  }

  std::vector<std::pair<Residency*, std::vector<size_t>>> all_;
  std::vector<WatchedParameter> written_;
  std::vector<at::Tensor> leaves_;
  size_t acquired_ = 0;
};

template <class Run>
void run_with_parameters(const c10::OperatorHandle& op, const torch::jit::Stack& stack, Run run) {
  const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKeySet({kKey, kErrorKey}));
  if (builder && !takes_tensors(op, stack)) builder->before_making();
  OperatorUses uses;
  {
    std::shared_lock lock(table().mutex);
    if (builder || !table().entries.empty()) uses.look_at(op, stack);
  }
  if (!uses.empty() && !reads_no_bytes(op)) uses.acquire();
  run();
  if (!builder) return;
  uses.store_written();
  builder->after_operator(uses.leaves(), made_by(op, stack));
}

std::atomic<int> observing = 0;

// Whether the operator is composed of other operators for these keys: its only kernel then calls
// them through the dispatcher.
bool is_composite(const c10::OperatorHandle& op, c10::DispatchKeySet keys) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::legacyExtractDispatchKey(keys));
}

// During its lifetime, the operators that the current one calls are intercepted too; their
// parameters have already been gathered.
class InnerInterception {
 public:
  InnerInterception() : was_excluded_(c10::impl::tls_is_dispatch_key_excluded(kKey)) {
    c10::impl::tls_set_dispatch_key_excluded(kKey, false);
    ++depth;
  }
  ~InnerInterception() {
    --depth;
    c10::impl::tls_set_dispatch_key_excluded(kKey, was_excluded_);
  }
  InnerInterception(const InnerInterception&) = delete;
  static bool is_here() { return depth > 0; }

 private:
  bool was_excluded_;
  static thread_local int depth;
};
thread_local int InnerInterception::depth = 0;

void run_observed(Observer& observer, const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack* stack) {
  const auto run = [&] {
    if (is_composite(op, below)) {
      const InnerInterception inside;
      return redispatch(op, below, stack);
    }
    const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKeySet({kKey, kErrorKey}));
    observer.on_operator(op, *stack, [&] { redispatch(op, below, stack); });
  };
  if (InnerInterception::is_here())
    run();
  else
    run_with_parameters(op, *stack, run);
}

void on_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kErrorKey);
  // The whole backward pass runs inside this operator and inherits this thread's state.
  static const c10::OperatorName kBackward("aten::_backward", "");
  if (op.operator_name() == kBackward) return redispatch(op, below, stack);
  const auto run = [&] {
    if (observing.load(std::memory_order_relaxed) > 0)
      if (Observer* const observer = observer_here()) return run_observed(*observer, op, below, stack);
    run_with_parameters(op, *stack, [&] { redispatch(op, below, stack); });
  };
  if (call_watcher && !InnerInterception::is_here())
    call_watcher->on_call(op, *stack, run);
  else
    run();
}

void on_operator_elsewhere(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard once(kErrorKey);
  redispatch(op, keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kErrorKey), stack);
}

void register_once() {
  static const c10::RegistrationHandleRAII* const forever =
      new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().registerFallback(
          kKey, c10::KernelFunction::makeFromBoxedFunction<&on_operator>(), "gannet: parameters are gathered on demand"));
  static const c10::RegistrationHandleRAII* const elsewhere =
      new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().registerFallback(
          kErrorKey, c10::KernelFunction::makeFromBoxedFunction<&on_operator_elsewhere>(),
          "gannet: says which parameter is away"));
  static_cast<void>(forever);
  static_cast<void>(elsewhere);
}

// The number of scopes on this thread that currently include a dispatch key, and whether the key
// was already included before the outermost one. An autograd thread inherits the key, with
// LibTorch's other thread-local state, from the thread that called backward; a recomputation on the
// autograd thread must not remove it.
struct KeyInclusion {
  int count = 0;
  bool was_included = false;
};
thread_local KeyInclusion armed, reporting;

void include(KeyInclusion& wanted, c10::DispatchKey key) {
  if (wanted.count++ > 0) return;
  wanted.was_included = c10::impl::tls_is_dispatch_key_included(key);
  c10::impl::tls_set_dispatch_key_included(key, true);
}

void leave(KeyInclusion& wanted, c10::DispatchKey key) {
  if (--wanted.count == 0) c10::impl::tls_set_dispatch_key_included(key, wanted.was_included);
}

}  // namespace

void watch(const c10::StorageImpl* storage, Residency* residency, size_t parameter) {
  register_once();
  std::unique_lock lock(table().mutex);
  table().entries[storage] = {residency, parameter};
}

void unwatch(const Residency* residency) {
  std::unique_lock lock(table().mutex);
  std::erase_if(table().entries, [&](const auto& entry) { return entry.second.residency == residency; });
}

bool is_watched(const c10::StorageImpl* storage) {
  std::shared_lock lock(table().mutex);
  return table().entries.contains(storage);
}

void release_ownership(const c10::StorageImpl* storage) {
  WatchedParameter watched{};
  {
    std::unique_lock lock(table().mutex);
    const auto found = table().entries.find(storage);
    if (found == table().entries.end()) return;
    watched = found->second;
    table().entries.erase(found);
  }
  watched.residency->source().released(watched.parameter);
}

bool write_at_source(const c10::StorageImpl* storage, ReadElements read) {
  WatchedParameter watched{};
  {
    std::shared_lock lock(table().mutex);
    const auto found = table().entries.find(storage);
    if (found == table().entries.end()) return false;
    watched = found->second;
  }
  return watched.residency->source().write(watched.parameter, read);
}

void set_builder(Builder* next) { builder = next; }
CallWatcher* set_call_watcher(CallWatcher* next) { return std::exchange(call_watcher, next); }

Observer* observer_here() {
  auto* const observer = dynamic_cast<Observer*>(c10::ThreadLocalDebugInfo::get(kObserverKind));
  return observer && !observer->is_over_ ? observer : nullptr;
}

ObserverScope::ObserverScope(std::shared_ptr<Observer> observer)
    : observer_(std::move(observer)), carried_(std::make_unique<c10::DebugInfoGuard>(kObserverKind, observer_)) {
  ++observing;
}

ObserverScope::~ObserverScope() {
  --observing;
  observer_->is_over_ = true;
  if (!armed_.is_of_this_thread()) static_cast<void>(carried_.release());  // the guard would restore another thread's state
}

Interception::Interception() {
  register_once();
  include(armed, kKey);
}

Interception::~Interception() {
  if (is_of_this_thread()) leave(armed, kKey);
}

AbsenceErrors::AbsenceErrors() {
  register_once();
  include(reporting, kErrorKey);
}

AbsenceErrors::~AbsenceErrors() {
  if (thread_ == thread_number()) leave(reporting, kErrorKey);
}

}  // namespace gannet::zero
