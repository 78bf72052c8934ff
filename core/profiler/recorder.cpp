#include "profiler/recorder.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <chrono>
#include <limits>

namespace gannet::profiler {
namespace {

// Visits each tensor among the values, including those in lists.
template <class Visit>
void each_tensor(const std::vector<c10::IValue>& stack, size_t count, Visit visit) {
  for (size_t i = stack.size() - std::min(count, stack.size()); i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isTensor())
      visit(value.toTensor());
    else if (value.isList())
      for (const c10::IValue& element : value.toListRef())
        if (element.isTensor()) visit(element.toTensor());
  }
}

// The sequence number of AccumulateGrad nodes, which is the largest possible, so that the autograd
// engine runs them first. They store gradients, so their operators belong to the step and not to
// the model.
constexpr uint64_t kAccumulates = std::numeric_limits<uint64_t>::max();

}  // namespace

OperatorRecorder::OperatorRecorder(const torch::nn::Module& model, bool is_timed)
    : modules_(model), is_timed_(is_timed), first_node_(at::sequence_number::peek()) {}

std::optional<size_t> OperatorRecorder::owner(const std::vector<c10::IValue>& stack, size_t count) const {
  std::optional<size_t> owner;
  each_tensor(stack, count, [&](const at::Tensor& tensor) {
    if (const auto module = modules_.owner(tensor)) owner = owner ? modules_.common_ancestor(*owner, *module) : *module;
  });
  return owner;
}

size_t OperatorRecorder::index_of(const std::string& name) {
  const auto [place, is_new] = index_.try_emplace(name, names_.size());
  if (is_new) {
    names_.push_back(name);
    rules_.push_back(find_rule(name));
    is_copy_.push_back(name == "aten::to" || name == "aten::_to_copy" || name == "aten::clone");
  }
  return place->second;
}

void OperatorRecorder::on_operator(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack,
                                   c10::function_ref<void()> run) {
  using Clock = std::chrono::steady_clock;
  const auto node = torch::autograd::get_current_node();
  if (!listens_ || (node && node->sequence_nr() == kAccumulates)) return run();

  Event event;
  Call call(op, stack);
  {
    std::lock_guard lock(mutex_);
    event.op = index_of(op.operator_name().name);
    event.own = owner(stack, op.schema().arguments().size());
  }
  // The lock is not held while the operator runs, so that other threads can record their operators.
  event.is_backward = node != nullptr;
  if (node) event.node = node->sequence_nr();
  event.is_of_this_thread = thread_number() == thread_;
  event.first_node = at::sequence_number::peek();
  const auto began = Clock::now();
  run();
  if (is_timed_) event.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  event.next_node = at::sequence_number::peek();
  call.add_results(stack);

  std::lock_guard lock(mutex_);
  const Rule* rule = rules_[event.op];
  if (rule) event.counted = rule->count(call);
  const size_t results = op.schema().returns().size();
  if (event.own && is_copy_[event.op])
    each_tensor(stack, results, [&](const at::Tensor& tensor) { modules_.add_copy(tensor, *event.own); });
  if (!event.is_backward)
    each_tensor(stack, results, [&](const at::Tensor& tensor) {
      if (!tensor.defined() || !tensor.has_storage()) return;
      const auto& storage = tensor.storage();
      if (modules_.is_part_of_model(storage.unsafeGetStorageImpl())) return;
      made_.try_emplace(storage.unsafeGetStorageImpl(), CreatedStorage{storage.getWeakStorageImpl(), events_.size()});
    });
  events_.push_back(std::move(event));
}

void OperatorRecorder::end_forward() {
  std::lock_guard lock(mutex_);
  alive_.clear();
  for (auto& [address, made] : made_)
    if (const auto storage = made.storage.lock()) alive_.emplace_back(made.event, static_cast<int64_t>(storage->nbytes()));
  made_.clear();
}

}  // namespace gannet::profiler
