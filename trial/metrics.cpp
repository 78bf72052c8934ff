#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>
#include <gannet/engine.h>
#include <gannet/error.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "metric_sums.h"

namespace gannet {

Value FunctionReducer::cross_slot_reduce(const List& per_slot) {
  List all;
  for (const Value& of_rank : per_slot)
    for (const Value& value : of_rank.as_list()) all.push_back(value);
  return function_(all);
}

namespace detail {

void fail_unread_validation() {
  throw Error(ErrorCode::kArgument, "evaluate_batch asked for a batch beyond the end of the validation loader",
              "draw the same number of batches in each call, one that divides those of the loader");
}
void fail_without_evaluation() {
  throw Error(ErrorCode::kUnsupported, "the trial has a validation loader, but neither evaluate_batch nor evaluate_full_dataset",
              "override one of them, or build no validation loader");
}

}  // namespace detail

namespace trials {
namespace {

std::string names_of(const auto& by_name) {
  std::string names;
  for (const auto& entry : by_name) names += (names.empty() ? "" : ", ") + entry.first;
  return names.empty() ? "none" : names;
}

at::Tensor scalar(const at::Tensor& tensor, const std::string& name, const std::string& where) {
  if (!tensor.defined())
    throw Error(ErrorCode::kArgument, where + ": metric '" + name + "' is an undefined tensor",
                "return the loss that was computed");
  if (tensor.numel() != 1) {
    std::ostringstream shape;
    shape << tensor.sizes();
    throw Error(ErrorCode::kArgument, where + ": metric '" + name + "' has the shape " + shape.str() + ", not one element",
                "return its mean");
  }
  return tensor.detach().reshape({}).to(at::kDouble);
}

}  // namespace

Value number_to_value(double number) {
  if (std::isfinite(number)) return number;
  return std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
}
double number_from_value(const Value& value) {
  if (!value.is_string()) return value.as_number();
  const std::string& text = value.as_string();
  return text == "inf"    ? std::numeric_limits<double>::infinity()
         : text == "-inf" ? -std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
}

double MetricSums::Sum::total() const { return host + (device.defined() ? device.item<double>() : 0); }

void MetricSums::add(const BatchMetrics& metrics, const detail::DrawnCount& drawn, const std::string& where) {
  const at::NoGradGuard no_grad;
  if (metrics.values().empty())
    throw Error(ErrorCode::kArgument, where + " returned no metrics",
                "return the loss, or {{\"loss\", loss}, {\"accuracy\", accuracy}}");
  double weight = 1;
  if (metrics.samples())
    weight = *metrics.samples();
  else if (drawn.batches > 0 && drawn.samples && *drawn.samples > 0)
    weight = *drawn.samples;
  if (!std::isfinite(weight) || weight < 0)
    throw Error(ErrorCode::kArgument, where + ": of_samples(" + std::to_string(weight) + ")", "give the number of samples");
  if (!drawn.counts) weight = 0;

  const bool is_first = sums_.empty();
  bool is_same = is_first || sums_.size() == metrics.values().size();
  for (const auto& [name, value] : metrics.values()) {
    if (!is_first && !sums_.contains(name)) {
      is_same = false;
      break;
    }
    Sum& sum = sums_[name];
    if (value.is_tensor()) {
      const at::Tensor number = scalar(value.tensor(), name, where);
      if (weight == 0) continue;  // NaN * 0 would be NaN
      const at::Tensor part = number * weight;
      sum.device = sum.device.defined() ? sum.device.to(part.device()) + part : part;
    } else if (weight != 0) {
      sum.host += value.number() * weight;
    }
  }
  if (!is_same)
    throw Error(
        ErrorCode::kArgument,
        where + " returned the metrics " + names_of(metrics.values()) + "; those of the calls before were " + names_of(sums_),
        "return the same names every time");
  weight_ += weight;
}

TrialMetrics MetricSums::average(EngineBase& engine, const std::string& what) {
  std::string bytes = names_of(sums_);
  bytes += '\0';
  const auto append = [&](double number) { bytes.append(reinterpret_cast<const char*>(&number), sizeof number); };
  append(weight_);
  for (const auto& [name, sum] : sums_) append(sum.total());
  const auto ranks = engine.gather(bytes);

  const std::string head = bytes.substr(0, bytes.find('\0'));
  std::vector<double> totals(1 + sums_.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string other = ranks[rank].substr(0, ranks[rank].find('\0'));
    if (other != head)
      throw Error(ErrorCode::kMismatch,
                  what + ": rank " + std::to_string(engine.rank()) + " has the metrics " + head + ", rank " +
                      std::to_string(rank) + " has " + other,
                  "return the same names on every rank");
    for (size_t i = 0; i < totals.size(); ++i) {
      double number;
      std::memcpy(&number, ranks[rank].data() + head.size() + 1 + i * sizeof number, sizeof number);
      totals[i] += number;
    }
  }
  TrialMetrics averages;
  size_t i = 0;
  for (const auto& [name, sum] : sums_) averages[name] = totals[++i] / totals[0];
  sums_.clear();
  weight_ = 0;
  return averages;
}

Value MetricSums::save() const {
  Dict host, device;
  for (const auto& [name, sum] : sums_) {
    host[name] = number_to_value(sum.host);
    if (sum.device.defined()) device[name] = number_to_value(sum.device.item<double>());
  }
  return Dict{{"weight", weight_}, {"host", host}, {"device", device}};
}

void MetricSums::load(const Value& saved, double share) {
  sums_.clear();
  weight_ = saved.at("weight").as_number() * share;
  for (const auto& [name, number] : saved.at("host").as_dict().entries()) sums_[name].host = number_from_value(number) * share;
  for (const auto& [name, number] : saved.at("device").as_dict().entries())
    sums_[name].device = at::scalar_tensor(number_from_value(number) * share, at::kDouble);
}

}  // namespace trials
}  // namespace gannet
