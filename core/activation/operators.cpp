#include "activation/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <gannet/error.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/format.h"
#include "base/text.h"
#include "params/interception.h"

namespace gannet::activation {
namespace {

using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

// Batch norm and similar operators write running statistics that their schemas do not declare.
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

// Whether the tensor's memory comes from outside LibTorch and has an owner that manages its
// lifetime, such as an engine's parameters, or from_blob with a deleter.
bool is_of_engine(const at::Tensor& tensor) {
  return tensor.storage().allocator() == nullptr && tensor.storage().data_ptr().get_context() != nullptr;
}
at::Tensor whole_parameter(const at::Tensor& tensor) { return tensor.is_view() ? at::Tensor(tensor._base()) : tensor; }

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
        if (is_written(arguments[i]) && !(operators_.is_replay_ && is_of_engine(tensor))) operators_.keep(tensor);
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
        std::any_of(all.begin(), all.end(), [&](const GeneratorSnapshot& one) { return one.generator == generator; }))
      return;
    at::Generator own = generator;
    const std::lock_guard lock(own.mutex());
    all.push_back({own, own.get_state()});
  }

  Operators& operators_;
  zero::Observer* const outer_ = zero::observer_here();  // the profiler or a surrounding region; null if none
};

Operators::Operators(bool is_replay)
    : is_replay_(is_replay), observing_(std::make_unique<zero::ObserverScope>(std::make_shared<Observer>(*this))) {}
Operators::~Operators() = default;

const void* Operators::key_of(const at::Tensor& tensor) {
  return is_of_engine(tensor) ? whole_parameter(tensor).const_data_ptr() : storage_of(tensor);
}

void Operators::keep(const at::Tensor& tensor) {
  const bool of_engine = is_of_engine(tensor);
  // from_blob memory without a deleter belongs to the program, which may free it before the
  // recomputation.
  if (!of_engine && tensor.storage().allocator() == nullptr) return;
  const void* const key = key_of(tensor);
  if (kept_.contains(key)) return;
  if (zero::is_watched(storage_of(tensor)))
    throw Error(ErrorCode::kUnsupported,
                formatted("a region of activation checkpointing writes into a parameter of shape {} that is gathered for it, and "
                          "its recomputation would write it a second time",
                          shape_text(tensor.sizes())),
                "write it outside of the region, or keep whole parameters on each rank (ZeRO stages 0 to 2)");
  // Keeps the whole storage, because another operator may write into a different view of it.
  at::Tensor whole = (of_engine ? whole_parameter(tensor) : tensor).detach();
  const auto numel = static_cast<int64_t>(tensor.storage().nbytes() / tensor.itemsize());
  if (!of_engine && numel != tensor.numel()) whole = whole.as_strided({numel}, {1}, 0);
  const auto& counter = tensor.unsafeGetTensorImpl()->version_counter();
  StorageSnapshot one{whole, at::empty_like(whole), counter.enabled() ? counter.current_version() : 0};
  copy_quietly(one.values, one.tensor);
  kept_.emplace(key, std::move(one));
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
