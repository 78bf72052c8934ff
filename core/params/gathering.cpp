// Gathers parameters on demand, from forward to step, for the operators that read them.
#include <gannet/log.h>

#include "base/format.h"
#include "params/store.h"

namespace gannet {

void ParameterStore::make_residency() {
  const auto& zero = context_.settings().zero;
  std::optional<Gatherer::CopyToDevice> to_device;
  if (context_.param_tier && context_.memory_is_apart)
    to_device = {context_.accelerator->make_queue("parameters", context_.device_index()),
                 [this] { return context_.current_stream(); }};
  gatherer_ = std::make_unique<Gatherer>(context_.comm.get(), context_.host_group, context_.timers, std::move(to_device),
                                         [this] { return formatted("{} of step {}", residency_->stretch_name(), step_()); });
  residency_ = std::make_unique<zero::Residency>(
      *gatherer_, zero::Residency::Limits{zero.prefetch_bucket_size, zero.max_live_parameters, zero.max_reuse_distance});
  if (context_.is_first()) residency_->on_new_order([](const std::string& sentence) { log_info(sentence); });
}

std::unique_ptr<zero::Interception> ParameterStore::arm() const {
  if (!residency_ || (interception_ && interception_->is_of_this_thread())) return nullptr;
  return std::make_unique<zero::Interception>();
}

void ParameterStore::disarm() { interception_.reset(); }

void ParameterStore::begin_forward(bool trains) {
  if (!residency_) return;
  if (auto armed = arm()) interception_ = std::move(armed);
  residency_->begin(trains ? zero::Residency::Pass::kForward : zero::Residency::Pass::kEvaluation);
}

void ParameterStore::begin_backward() {
  if (residency_) residency_->begin(zero::Residency::Pass::kBackward);
}

void ParameterStore::end_backward() {
  end_pass();
  if (gatherer_) gatherer_->meet("the end of backward", residency_->order());
}

void ParameterStore::end_pass() {
  if (residency_) residency_->end();
}

void ParameterStore::meet(const char* where) {
  if (gatherer_) gatherer_->meet(where);
}

void ParameterStore::answer() {
  if (gatherer_) gatherer_->answer();
}

std::string ParameterStore::held() const { return residency_ ? residency_->held() : ""; }

void ParameterStore::forget_gathered() {
  if (residency_) residency_->forget();
}

void ParameterStore::abandon() noexcept {
  for (auto& work : publishing_) {
    try {
      work.wait();
    } catch (const std::exception&) {  // the exception that ended the step is the one to report
    }
  }
  publishing_.clear();
  end_pass();
  disarm();
}

}  // namespace gannet
