// Evaluation: each sample counts once, whatever the number of ranks; predictions keep the order of
// the data set.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gannet/error.h>
#include <gannet/log.h>
#include <gannet/trainer_base.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "exception_text.h"
#include "model_errors.h"

namespace gannet {
namespace {

// Serialises a tensor: dtype, number of dimensions, sizes, elements.
std::string to_bytes(const at::Tensor& tensor) {
  if (!tensor.defined()) return "";
  const at::Tensor whole = tensor.to(at::kCPU).contiguous();
  std::vector<int64_t> head = {static_cast<int64_t>(whole.scalar_type()), whole.dim()};
  head.insert(head.end(), whole.sizes().begin(), whole.sizes().end());
  std::string bytes(reinterpret_cast<const char*>(head.data()), head.size() * sizeof(int64_t));
  if (whole.numel() > 0) bytes.append(static_cast<const char*>(whole.const_data_ptr()), whole.nbytes());
  return bytes;
}

at::Tensor from_bytes(const std::string& bytes) {
  if (bytes.empty()) return {};
  std::vector<int64_t> head(2);
  std::memcpy(head.data(), bytes.data(), 2 * sizeof(int64_t));
  std::vector<int64_t> sizes(static_cast<size_t>(head[1]));
  if (!sizes.empty()) std::memcpy(sizes.data(), bytes.data() + 2 * sizeof(int64_t), sizes.size() * sizeof(int64_t));
  at::Tensor tensor = at::empty(sizes, at::TensorOptions(static_cast<at::ScalarType>(head[0])));
  const size_t offset = (2 + sizes.size()) * sizeof(int64_t);
  if (tensor.numel() > 0) std::memcpy(tensor.mutable_data_ptr(), bytes.data() + offset, tensor.nbytes());
  return tensor;
}

std::string named_by(const std::string& prefix, const std::string& name) {
  return name.starts_with(prefix + "_") ? name : prefix + "_" + name;
}

// Serialises metrics: for each one its name, a zero byte, and the bits of its value.
std::string to_bytes(const Metrics& metrics) {
  std::string bytes = "=";
  for (const auto& [name, value] : metrics) {
    bytes += name + '\0';
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return bytes;
}

Metrics metrics_from(const std::string& bytes) {
  Metrics metrics;
  for (size_t at = 1; at < bytes.size();) {
    const std::string name = bytes.c_str() + at;
    at += name.size() + 1;
    std::memcpy(&metrics[name], bytes.data() + at, sizeof(double));
    at += sizeof(double);
  }
  return metrics;
}

// Concatenates along dimension 0. Where the sizes of other dimensions differ, smaller batches are
// padded with -100, the ignored label.
at::Tensor joined(std::vector<at::Tensor> parts) {
  std::erase_if(parts, [](const at::Tensor& part) { return !part.defined() || (part.dim() > 0 && part.size(0) == 0); });
  if (parts.empty()) return {};
  std::vector<int64_t> sizes = parts[0].sizes().vec();
  for (const auto& part : parts) {
    if (part.dim() != static_cast<int64_t>(sizes.size()) || part.dim() == 0)
      throw Error(ErrorCode::kMismatch, "predictions of an evaluation have batches of different dimensions",
                  "return [samples, ...] from compute_loss or preprocess_logits_for_metrics");
    for (size_t d = 1; d < sizes.size(); ++d) sizes[d] = std::max(sizes[d], part.size(static_cast<int64_t>(d)));
  }
  for (auto& part : parts) {
    sizes[0] = part.size(0);
    if (part.sizes() == at::IntArrayRef(sizes)) continue;
    at::Tensor filled = at::full(sizes, -100, part.options());
    at::Tensor inner = filled;
    for (int64_t d = 1; d < part.dim(); ++d) inner = inner.narrow(d, 0, part.size(d));
    inner.copy_(part);
    part = filled;
  }
  return at::cat(parts);
}

}  // namespace

at::Tensor TrainerBase::gather_rows(const at::Tensor& mine) {
  // In a pipeline, only the last stage has predictions.
  const auto all = is_pipeline() ? gather_from_all(to_bytes(mine)) : engine_->gather(to_bytes(mine));
  std::vector<at::Tensor> parts;
  for (const std::string& bytes : all) parts.push_back(from_bytes(bytes));
  return joined(std::move(parts));
}

EvalLoopOutput TrainerBase::evaluation_loop(const std::string& prefix, bool wants_predictions) try {
  ensure_engine();
  const auto began = std::chrono::steady_clock::now();
  const bool wants_metrics = has_metrics() && !arguments_.prediction_loss_only;
  const bool keeps = wants_predictions || wants_metrics;
  LoaderOptions options = engine_->loader_options();
  options.batch_size = arguments_.per_device_eval_batch_size;
  options.shuffle = false;
  options.drop_last = false;
  options.micro_batches_multiple = 1;
  options.workers = arguments_.dataloader_num_workers;
  if (arguments_.dataloader_prefetch_factor) options.prefetch = *arguments_.dataloader_prefetch_factor;

  EvalLoopOutput output;
  double loss = 0, items = 0, samples = 0, rounds = 0, losses = 0;
  std::vector<at::Tensor> predictions, labels;
  Metrics computed;
  std::exception_ptr thrown;
  const auto compute = [&](const EvalPrediction& prediction) {
    if (thrown) return;
    try {
      computed = compute_metrics(prediction);
    } catch (...) {
      thrown = std::current_exception();
    }
  };
  {
    at::NoGradGuard no_grad;
    engine_->eval();
    // Ends the evaluation even if a batch, a metric or a callback throws, so that the next call
    // finds the Trainer unchanged.
    struct EvaluationScope {
      void end() {
        is_over = true;
        trainer.end_evaluation();
        if (trainer.is_begun_) trainer.engine_->train();
      }
      ~EvaluationScope() {
        try {
          if (!is_over) end();
        } catch (...) {  // keep the first exception
        }
      }
      TrainerBase& trainer;
      bool is_over = false;
    } evaluating{*this};
    begin_evaluation(options, keeps);
    const auto next_batch = [&] {
      const std::string where = prefix + ", batch " + std::to_string(static_cast<int64_t>(rounds) + 1);
      return of_model(where, [&] { return evaluate_batch(); });
    };
    while (auto batch = next_batch()) {
      ++rounds;
      if (batch->loss.defined()) ++losses;
      if (batch->loss.defined() && batch->items > 0) loss += batch->loss.item<double>();
      items += batch->items;
      samples += static_cast<double>(batch->samples);
      if (keeps && (batch->predictions.defined() || is_pipeline())) {
        at::Tensor predicted = gather_rows(batch->predictions), wanted = gather_rows(batch->labels);
        if (wants_metrics && arguments_.batch_eval_metrics) {
          if (wanted.defined()) compute({.predictions = predicted, .label_ids = wanted});
        } else {
          predictions.push_back(std::move(predicted));
          labels.push_back(std::move(wanted));
        }
      }
      fire(TrainerEventKind::kPredictionStep);
    }
    evaluating.end();
  }
  if (is_evaluation_stopped_) stop_evaluation(std::to_string(static_cast<int64_t>(rounds)) + " batches");
  loss = over_ranks(loss);
  items = over_ranks(items);
  losses = over_ranks(losses);
  output.num_samples = std::llround(over_ranks(samples));
  output.predictions = joined(std::move(predictions));
  output.label_ids = joined(std::move(labels));
  // As in Hugging Face's Trainer: without labels there are no metrics.
  const bool has_labels = losses > 0 || output.label_ids.defined();
  if (wants_metrics && has_labels) {
    computed.clear();
    compute({.predictions = output.predictions, .label_ids = output.label_ids, .is_last_call = arguments_.batch_eval_metrics});
    agree_on_metrics(computed, thrown);
  }

  if (losses > 0 && items == 0 && is_first())
    log_warning(named_by(prefix, "loss") + " is not a number: all labels of the " + std::to_string(output.num_samples) +
                " samples are -100, so that there is nothing to average");

  const auto named = [&](const std::string& name) { return named_by(prefix, name); };
  if (has_labels) output.metrics[named("loss")] = items > 0 ? loss / items : std::numeric_limits<double>::quiet_NaN();
  for (const auto& [name, value] : computed) output.metrics[named(name)] = value;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const Dict times{{named("runtime"), seconds},
                   {named("samples_per_second"), seconds > 0 ? static_cast<double>(output.num_samples) / seconds : 0.0},
                   {named("steps_per_second"), seconds > 0 ? rounds / seconds : 0.0}};
  Dict values;
  for (const auto& [name, value] : output.metrics) values[name] = value;
  log(std::move(values), times);
  fire(TrainerEventKind::kEvaluate, {}, output.metrics);
  return output;
} catch (const Error& error) {
  if (error.code() != ErrorCode::kOutOfMemory) throw;
  throw Error(ErrorCode::kOutOfMemory,
              kInEvaluation + (" of batches of " + std::to_string(arguments_.per_device_eval_batch_size)) +
                  " samples: " + error.message(),
              "give a smaller per_device_eval_batch_size");
}

// An exception from compute_metrics on one rank becomes an error on all ranks, so that no rank
// waits in a collective call. All ranks use the metrics of rank 0 to choose the best model and to
// decide when to stop.
void TrainerBase::agree_on_metrics(Metrics& computed, const std::exception_ptr& thrown) {
  const auto all = gather_from_all(thrown ? "!" + exception_text(thrown) : to_bytes(computed));
  if (thrown) std::rethrow_exception(thrown);
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].starts_with('!'))
      throw Error(ErrorCode::kArgument, "compute_metrics failed on rank " + std::to_string(rank) + ": " + all[rank].substr(1),
                  "this rank's did not; it ends with it");
  const auto other = std::find_if(all.begin(), all.end(), [&](const std::string& one) { return one != all[0]; });
  if (other == all.end()) return;
  if (is_first() && !std::exchange(has_told_of_metrics_, true))
    log_warning("compute_metrics returned on rank " + std::to_string(other - all.begin()) +
                " something else than on rank 0, whose metrics are used on all ranks");
  computed = metrics_from(all[0]);
}

EvalLoopOutput TrainerBase::evaluate_alone(const char* call, const std::string& prefix, bool wants_predictions) {
  try {
    return evaluation_loop(prefix, wants_predictions);
  } catch (...) {
    report_failure(call);
    throw;
  }
}

Metrics TrainerBase::evaluate(const std::string& prefix) { return evaluate_alone("evaluate()", prefix, false).metrics; }
EvalLoopOutput TrainerBase::predict(const std::string& prefix) { return evaluate_alone("predict()", prefix, true); }

// Whether this evaluation is the best so far; records it if so. NaN is never the best. Throws if the metric is missing.
bool TrainerBase::judge(const Metrics& metrics) {
  if (arguments_.metric_for_best_model.empty()) return false;
  std::string name = arguments_.metric_for_best_model;
  if (!name.starts_with("eval_")) name = "eval_" + name;
  const auto found = metrics.find(name);
  if (found == metrics.end()) {
    std::string names;
    for (const auto& [other, value] : metrics) names += (names.empty() ? "" : ", ") + other;
    throw Error(ErrorCode::kArgument, "metric_for_best_model is '" + name + "', which this evaluation does not have: " + names,
                "name one of these, or return it from compute_metrics");
  }
  if (std::isnan(found->second)) {
    log_warning("metric_for_best_model: " + name + " is NaN after update " + std::to_string(state_.global_step) +
                "; this evaluation is not the best one");
    return false;
  }
  const bool greater = arguments_.greater_is_better.value_or(!name.ends_with("loss"));
  const bool is_better =
      !state_.best_metric || (greater ? found->second > *state_.best_metric : found->second < *state_.best_metric);
  if (!is_better) return false;
  state_.best_metric = found->second;
  if (arguments_.save_strategy != "no") state_.best_global_step = state_.global_step;
  return true;
}

}  // namespace gannet
