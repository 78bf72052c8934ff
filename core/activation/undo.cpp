#include "activation/undo.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "params/observer.h"

namespace gannet::activation {
namespace {

// Copies without a trace: no graph, no version, none who watches operators.
void copy_quietly(at::Tensor into, const at::Tensor& from) {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView no_version;
  const c10::impl::ExcludeDispatchKeyGuard unseen(
      c10::DispatchKeySet({c10::DispatchKey::TESTING_ONLY_GenericMode, c10::DispatchKey::TESTING_ONLY_GenericWrapper}));
  into.copy_(from);
}

// Batch norm's and its kin's running statistics are written, and their schemas do not say so.
bool is_written(const c10::Argument& argument) {
  return (argument.alias_info() && argument.alias_info()->isWrite()) || argument.name() == "running_mean" ||
         argument.name() == "running_var";
}

template <class F>
void for_each_tensor(const c10::IValue& value, const F& f) {
  if (value.isTensor()) {
    if (const at::Tensor& tensor = value.toTensor(); tensor.defined() && tensor.has_storage()) f(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& part : value.toListRef()) for_each_tensor(part, f);
  }
}

}  // namespace

class Undo::Writes : public zero::Observer {
 public:
  void on_operator(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack, c10::function_ref<void()> run) override {
    const auto& arguments = op.schema().arguments();
    const size_t count = arguments.size(), first = stack.size() - count;
    std::unordered_set<const c10::StorageImpl*> given;
    for (size_t i = 0; i < count; ++i)
      for_each_tensor(stack[first + i], [&](const at::Tensor& tensor) {
        const auto* const storage = tensor.storage().unsafeGetStorageImpl();
        given.insert(storage);
        if (is_written(arguments[i]) && !made_.contains(storage)) keep(tensor);
      });
    struct Name {
      std::string& at;
      std::string before;
      ~Name() { at = std::move(before); }
    } name{operator_, std::exchange(operator_, op.operator_name().name)};
    if (outer_)
      outer_->on_operator(op, stack, run);
    else
      run();
    const size_t results = op.schema().returns().size();
    for (size_t i = 0; i < results && results <= stack.size(); ++i)
      for_each_tensor(stack[stack.size() - results + i], [&](const at::Tensor& tensor) {
        const auto* const storage = tensor.storage().unsafeGetStorageImpl();
        if (!given.contains(storage)) made_.insert(storage);
      });
  }

  void put_back() {
    for (const auto& [storage, one] : kept_) {
      copy_quietly(one.tensor, one.values);
      c10::VariableVersion version = one.tensor.unsafeGetTensorImpl()->version_counter();
      if (version.enabled()) version.set_version(one.version);
    }
    kept_.clear();
  }
  const std::string& current_operator() const { return operator_; }

 private:
  struct Kept {
    at::Tensor tensor, values;
    uint32_t version;
  };

  void keep(const at::Tensor& tensor) {
    const auto* const storage = tensor.storage().unsafeGetStorageImpl();
    if (kept_.contains(storage)) return;
    // All of the storage: another operator may write into another view of it.
    at::Tensor whole = tensor.detach();
    if (const int64_t numel = static_cast<int64_t>(tensor.storage().nbytes() / tensor.itemsize()); numel != tensor.numel())
      whole = whole.as_strided({numel}, {1}, 0);
    const auto& counter = tensor.unsafeGetTensorImpl()->version_counter();
    Kept one{whole, at::empty_like(whole), counter.enabled() ? counter.current_version() : 0};
    copy_quietly(one.values, one.tensor);
    kept_.emplace(storage, std::move(one));
  }

  zero::Observer* const outer_ = zero::observer_here();  // the profiler, which counts what runs here, too
  std::unordered_map<const c10::StorageImpl*, Kept> kept_;
  std::unordered_set<const c10::StorageImpl*> made_;  // by the recomputation itself
  std::string operator_;
};

Undo::Undo() : writes_(std::make_shared<Writes>()), observing_(std::make_unique<zero::Observing>(writes_)) {}

Undo::~Undo() {
  observing_.reset();
  writes_->put_back();
}

std::string Undo::current_operator() const { return writes_->current_operator(); }

}  // namespace gannet::activation
