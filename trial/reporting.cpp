// Reports of the training metrics, validations, and the choice of the best validation.
#include <ATen/core/grad_mode.h>
#include <gannet/error.h>
#include <gannet/log.h>

#include <cmath>
#include <utility>

#include "common/json.h"
#include "common/nearest.h"
#include "runner.h"

namespace gannet {

void TrialRunner::reduce(bool is_training, const std::string& what, TrialMetrics& into) {
  for (size_t i = 0; i < context_.reducers_.size(); ++i) {
    const auto& [name, reducer, use] = context_.reducers_[i];
    if (!(is_training ? use.for_training : use.for_validation)) continue;
    const bool is_early = !is_training && !reduced_early_.empty();
    const std::string mine = is_early ? reduced_early_[i] : reducer->per_slot_reduce().to_json();
    const std::string title = what + ", reducer" + (name.empty() ? "" : " '" + name + "'");
    List per_slot;
    for (const std::string& text : engine().gather(mine))
      per_slot.push_back(common::parse_json("[" + text + "]", title).as_list().at(0));
    const Value reduced = reducer->cross_slot_reduce(per_slot);
    if (!(name.empty() ? reduced.is_dict() : reduced.is_number()))
      throw Error(ErrorCode::kArgument,
                  title + " gave " + reduced.type_name() + ", not " + (name.empty() ? "a dictionary of numbers" : "a number"),
                  "a reducer with a name gives one number, one without a name gives a dictionary");
    const Dict numbers = name.empty() ? reduced.as_dict() : Dict{{name, reduced}};
    for (const auto& [metric, number] : numbers.entries()) {
      if (!number.is_number())
        throw Error(ErrorCode::kArgument, title + ": '" + metric + "' is " + number.type_name() + ", not a number");
      if (!into.emplace(metric, number.as_number()).second)
        throw Error(ErrorCode::kArgument, title + ": there is a metric '" + metric + "' already",
                    "give the reducer another name");
    }
  }
}

namespace {

void warn_of_non_finite(const TrialMetrics& metrics, const std::string& what) {
  for (const auto& [name, number] : metrics)
    if (!std::isfinite(number)) log_warning(what + ": metric '" + name + "' is " + std::to_string(number));
}

}  // namespace

void TrialRunner::report_training() {
  if (reported_at_ == batches_) return;
  const std::string what = "training after batch " + std::to_string(batches_);
  TrialMetrics metrics = training_.average(engine(), what);
  reduce(true, what, metrics);
  for (const auto& [name, reducer, use] : context_.reducers_)
    if (use.for_training) reducer->reset();
  reported_at_ = batches_;
  for (const auto& [name, number] : metrics) engine().record("trial/" + name, number);
  records_->write("training", batches_, epochs_shown(), metrics);
  if (!is_first()) return;
  log_info("batch " + std::to_string(batches_) + ": " + trials::shown(metrics));
  warn_of_non_finite(metrics, what);
}

TrialMetrics TrialRunner::validation_metrics() {
  const std::string what = "validation after batch " + std::to_string(batches_);
  trials::MetricSums sums;
  if (auto whole = trial_.call_evaluate_full_dataset()) {
    sums.add(*whole, {}, "evaluate_full_dataset, " + what);
    return sums.average(engine(), what);
  }
  trial_.begin_validation(engine());
  for (int64_t batch = 0; trial_.prepare_validation_batch(); ++batch) {
    if (!trial_.has_validation_data() && reduced_early_.empty())
      for (const auto& [name, reducer, use] : context_.reducers_)
        reduced_early_.push_back(use.for_validation ? reducer->per_slot_reduce().to_json() : "");
    const auto called = trial_.call_evaluate_batch(batch);
    sums.add(called.metrics, called.drawn, "evaluate_batch, batch " + std::to_string(batch));
  }
  if (sums.empty()) throw Error(ErrorCode::kArgument, what + ": the validation loader is empty on every rank", "give it samples");
  return sums.average(engine(), what);
}

void TrialRunner::validate() {
  if (validated_at_ == batches_) return;
  // A reducer used in both phases may hold training values collected since the last report, which
  // are set aside.
  std::vector<std::pair<MetricReducer*, Value>> aside;
  for (const auto& [name, reducer, use] : context_.reducers_) {
    if (!use.for_validation) continue;
    if (use.for_training && reported_at_ != batches_) {
      aside.emplace_back(reducer.get(), reducer->save());
      if (aside.back().second.is_null() && is_first())
        log_warning("reducer '" + name + "' has no save(): what it collected in training since the last report is lost");
    }
    reducer->reset();
  }
  TrialMetrics metrics;
  reduced_early_.clear();
  {
    const at::NoGradGuard no_grad;
    for (const auto& wrapped : context_.engines_) wrapped.engine->eval();
    metrics = validation_metrics();
    for (const auto& wrapped : context_.engines_) wrapped.engine->train();
  }
  const std::string what = "validation after batch " + std::to_string(batches_);
  reduce(false, what, metrics);
  for (const auto& [name, reducer, use] : context_.reducers_)
    if (use.for_validation) reducer->reset();
  for (const auto& [reducer, saved] : aside)
    if (!saved.is_null()) reducer->load(saved);
  validated_at_ = batches_;
  for (const auto& [name, number] : metrics) engine().record("validation/" + name, number);
  records_->write("validation", batches_, epochs_shown(), metrics);
  if (is_first()) {
    log_info("batch " + std::to_string(batches_) + ", validation: " + trials::shown(metrics));
    warn_of_non_finite(metrics, what);
  }
  judge(metrics);
}

void TrialRunner::judge(const TrialMetrics& metrics) {
  std::string name = settings_.metric;
  if (name.empty()) name = metrics.contains("loss") ? "loss" : "validation_loss";
  const auto found = metrics.find(name);
  if (found == metrics.end() && settings_.metric.empty()) return;  // there is no metric to choose by
  if (found == metrics.end()) {
    save();  // so that a misspelt name costs no training: the next run resumes here
    std::vector<std::string> names;
    for (const auto& entry : metrics) names.push_back(entry.first);
    throw Error(ErrorCode::kArgument,
                "metric is '" + name + "', which validation does not give" + common::did_you_mean(name, names) + " (it gives " +
                    trials::shown(metrics) + ")",
                "name one of these, or return it from evaluate_batch");
  }
  if (!std::isfinite(found->second))
    throw Error(
        ErrorCode::kNonFinite,
        "validation after batch " + std::to_string(batches_) + ": metric '" + name + "' is " + std::to_string(found->second),
        "it chooses the best checkpoint; look at what evaluate_batch returned");
  forget_best_of_another(name);
  if (best_metric_ && !(settings_.smaller_is_better ? found->second < *best_metric_ : found->second > *best_metric_)) return;
  best_metric_ = found->second;
  best_name_ = name;
  best_is_smallest_ = settings_.smaller_is_better;
  best_batch_ = batches_;
  is_new_best_ = true;
}

// A resumed run may select by a different metric or direction; the best value so far then does not
// apply.
void TrialRunner::forget_best_of_another(const std::string& metric) {
  if (!best_metric_ || (best_name_ == metric && best_is_smallest_ == settings_.smaller_is_better)) return;
  const auto text = [](const std::string& name, bool smallest) {
    return std::string(smallest ? "the smallest " : "the largest ") + name;
  };
  if (is_first())
    log_warning("the best checkpoint was chosen by " + text(best_name_, best_is_smallest_) + ", and is by " +
                text(metric, settings_.smaller_is_better) + " from now on: batch " + std::to_string(best_batch_) +
                " is not the best any more");
  best_metric_.reset();
  best_batch_ = 0;
}

}  // namespace gannet
