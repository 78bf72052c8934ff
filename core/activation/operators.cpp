#include "activation/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace gannet::activation {
namespace {

using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

// Running statistics of a batch norm and its kin are written, and their schemas do not say so.
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

const c10::StorageImpl* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

}  // namespace

void copy_quietly(at::Tensor into, const at::Tensor& from) {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView no_version;
  const c10::impl::ExcludeDispatchKeyGuard unseen(
      c10::DispatchKeySet({c10::DispatchKey::TESTING_ONLY_GenericMode, c10::DispatchKey::TESTING_ONLY_GenericWrapper}));
  into.copy_(from);
}

class Operators::Observer : public zero::Observer {
 public:
  explicit Observer(Operators& operators) : operators_(operators) {}

  void on_operator(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack, c10::function_ref<void()> run) override {
    const auto& arguments = op.schema().arguments();
    const size_t first = stack.size() - arguments.size();
    std::vector<const c10::StorageImpl*> given;
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (stack[first + i].isGenerator()) note(stack[first + i].toGenerator());
      for_each_tensor(stack[first + i], [&](const at::Tensor& tensor) {
        given.push_back(storage_of(tensor));
        if (operators_.made_.contains(given.back())) return;
        if (is_written(arguments[i])) operators_.keep(tensor);
        if (operators_.known_.insert(tensor.unsafeGetTensorImpl()).second)
          operators_.reads_.emplace_back(Weak(tensor.getIntrusivePtr()));
      });
    }
    struct Name {
      std::string& at;
      std::string before;
      ~Name() { at = std::move(before); }
    } name{operators_.operator_, std::exchange(operators_.operator_, op.operator_name().name)};
    if (outer_)
      outer_->on_operator(op, stack, run);
    else
      run();
    const size_t results = op.schema().returns().size();
    for (size_t i = 0; i < results && results <= stack.size(); ++i)
      for_each_tensor(stack[stack.size() - results + i], [&](const at::Tensor& tensor) {
        operators_.known_.insert(tensor.unsafeGetTensorImpl());
        if (std::find(given.begin(), given.end(), storage_of(tensor)) == given.end()) operators_.made_.insert(storage_of(tensor));
      });
  }

 private:
  void note(const at::Generator& generator) {
    auto& all = operators_.drawn_from_;
    if (!generator.defined() ||
        std::any_of(all.begin(), all.end(), [&](const DrawnFrom& one) { return one.generator == generator; }))
      return;
    at::Generator own = generator;
    const std::lock_guard lock(own.mutex());
    all.push_back({own, own.get_state()});
  }

  Operators& operators_;
  zero::Observer* const outer_ = zero::observer_here();  // the profiler, or a region around this one
};

Operators::Operators() : observing_(std::make_unique<zero::Observing>(std::make_shared<Observer>(*this))) {}
Operators::~Operators() = default;

void Operators::keep(const at::Tensor& tensor) {
  const c10::StorageImpl* const storage = storage_of(tensor);
  // from_blob's have no allocator: memory of the program's, which may be gone by now.
  if (kept_.contains(storage) || tensor.storage().allocator() == nullptr) return;
  // All of the storage: another operator may write into another view of it.
  at::Tensor whole = tensor.detach();
  if (const auto numel = static_cast<int64_t>(tensor.storage().nbytes() / tensor.itemsize()); numel != tensor.numel())
    whole = whole.as_strided({numel}, {1}, 0);
  const auto& counter = tensor.unsafeGetTensorImpl()->version_counter();
  Kept one{whole, at::empty_like(whole), counter.enabled() ? counter.current_version() : 0};
  copy_quietly(one.values, one.tensor);
  kept_.emplace(storage, std::move(one));
}

void Operators::put_back() {
  for (const auto& [storage, one] : kept_) {
    copy_quietly(one.tensor, one.values);
    c10::VariableVersion version = one.tensor.unsafeGetTensorImpl()->version_counter();
    if (version.enabled()) version.set_version(one.version);
  }
  kept_.clear();
}

}  // namespace gannet::activation
